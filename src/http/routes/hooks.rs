//! The routes at which services report what people do with messages: the hooks of `delivery`.
//!
//! Such a service signs its requests and sends no token. [`UnverifiedReport::of`] recognizes a request in place of the
//! authentication, and has its head checked before the body is read. [`HookRoute`] has the body verified, and only then
//! read.

use crate::delivery::{HOOK_PATHS, HookAnswer, HookRefusal, InboundHook, UnreadableReport};
use crate::http::auth::failure::Unknown;
use crate::http::body::templates::without_api;
use crate::http::failure::error::ApiError;
use holdpoint_core::clock::Timestamp;
use poem::http::Method;
use poem::{Endpoint, Request, Response, Result, Route, post};
use std::fmt;
use std::sync::Arc;

/// A request that the service of a hook seems to have sent. The middleware puts it into the request.
#[derive(Clone)]
pub(in crate::http) struct UnverifiedReport {
    hook: Arc<dyn InboundHook>,
    now: Timestamp,
}

impl fmt::Debug for UnverifiedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnverifiedReport").field("path", &self.hook.path()).finish_non_exhaustive()
    }
}

impl UnverifiedReport {
    /// Returns the request if it is one for a hook, or the refusal of its head. `None` for every other request.
    pub(in crate::http) fn of(
        request: &Request,
        hooks: &[Arc<dyn InboundHook>],
        now: Timestamp,
    ) -> Option<Result<Self, ApiError>> {
        let path = without_api(request.uri().path());
        let hook = hooks.iter().find(|hook| request.method() == Method::POST && hook.path() == path)?;
        let checked = hook.check_head(request.headers(), now).map_err(unauthenticated);
        Some(checked.map(|()| Self { hook: hook.clone(), now }))
    }
}

fn unauthenticated(refusal: HookRefusal) -> ApiError {
    ApiError::unauthenticated(&Unknown::Hook(refusal), None)
}

/// The endpoint of all hooks.
struct HookRoute;

impl Endpoint for HookRoute {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        // The path of another request can lead here too: it is written in another way.
        let report = request.data::<UnverifiedReport>().cloned().ok_or_else(ApiError::not_found)?;
        let body = request.take_body().into_vec().await?;
        let verified = report.hook.verify(request.headers(), body, report.now).map_err(unauthenticated)?;
        match report.hook.handle(verified).await {
            Ok(HookAnswer::Done) => Ok(Response::default()),
            Ok(HookAnswer::Json(body)) => {
                Ok(Response::builder().content_type("application/json").body(body.to_string()))
            }
            Err(UnreadableReport(why)) => Err(ApiError::bad_request(why).into()),
        }
    }
}

/// Serves the hooks, as pages reach the routes too.
pub(in crate::http) fn served(mut routes: Route, hooks: &[Arc<dyn InboundHook>]) -> Route {
    for hook in hooks {
        let path = hook.path();
        routes = routes.at(path, post(HookRoute)).at(format!("/api{path}"), post(HookRoute));
    }
    routes
}

/// The methods of all paths of hooks, served or not.
pub(in crate::http) fn paths() -> impl Iterator<Item = (&'static str, Method)> {
    HOOK_PATHS.into_iter().map(|path| (path, Method::POST))
}
