//! The thread or session that a request names: by its id, or by the caller's own name for it.
//!
//! An id is looked up first. So an id costs no statement of its own, and a thread whose name has the form of an
//! id is found under that name. A session is named like its root thread.

use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::body::formats::{Text, TextFormat};
use crate::http::body::posted::CLIENT_ID_MAX;
use crate::http::failure::error::ApiError;
use holdpoint_core::id::ThreadId;
use poem_openapi::param::Header;
use poem_openapi::registry::{MetaSchema, MetaSchemaRef};
use std::future::Future;
use uuid::Uuid;

/// A thread: its id, or the caller's own name for it.
pub(in crate::http) type ThreadRef = Text<ClientName>;

/// The format of the names that clients give to threads and messages. An id has this format too.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct ClientName;

impl TextFormat for ClientName {
    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Inline(Box::new(MetaSchema {
            min_length: Some(1),
            max_length: Some(CLIENT_ID_MAX),
            ..MetaSchema::new("string")
        }))
    }
}

/// Returns the name of the request that its `idempotency-key` gives.
pub(in crate::http) fn checked_key(
    header: Header<Option<Text<ClientName>>>,
) -> Result<Option<String>, ApiError> {
    let key: Option<String> = header.0.map(String::from);
    let fits = |key: &String| (1..=CLIENT_ID_MAX).contains(&key.chars().count());
    if key.as_ref().is_some_and(|key| !fits(key)) {
        let expected = format!("idempotency-key: expected 1 to {CLIENT_ID_MAX} characters");
        return Err(ApiError::bad_request(expected));
    }
    Ok(key)
}

impl Api {
    /// Runs the work of a route on the named thread or session. An unknown name counts as an unknown id, so
    /// that the route answers both alike. The work runs a second time only if it found nothing by the id.
    pub(in crate::http) async fn with_thread<T, F: Future<Output = Result<T, ApiError>>>(
        &self,
        caller: &Caller,
        name: &ThreadRef,
        work: impl Fn(ThreadId) -> F,
    ) -> Result<T, ApiError> {
        let id: Option<ThreadId> = name.parse().ok();
        let missing = match id {
            None => None,
            Some(id) => match work(id).await {
                Err(error) if error.is_not_found() => Some(error),
                done => return done,
            },
        };
        let named = self.own_thread(caller, name).await?.filter(|named| Some(*named) != id);
        match (named, missing) {
            (Some(named), _) => work(named).await,
            (None, Some(missing)) => Err(missing),
            // No thread has this id.
            (None, None) => work(ThreadId::new(Uuid::nil())).await,
        }
    }

    /// Returns the thread or session whose rows a list or a stream shows. The id of another user's thread is
    /// returned as it is: the rows themselves are visible or not. An unknown name is an error, because such a
    /// stream would stay silent even after the thread is made.
    pub(in crate::http) async fn selected_thread(
        &self,
        caller: &Caller,
        name: Option<&ThreadRef>,
    ) -> Result<Option<ThreadId>, ApiError> {
        let Some(name) = name else { return Ok(None) };
        let own = self.own_thread(caller, name).await?;
        own.or_else(|| name.parse().ok()).map(Some).ok_or_else(ApiError::not_found)
    }

    async fn own_thread(&self, caller: &Caller, name: &ThreadRef) -> Result<Option<ThreadId>, ApiError> {
        let found = self.store.read().await?.thread_named(&caller.0, name).await?;
        Ok(found.map(|thread| thread.id))
    }
}
