//! What is accepted of the definitions of a server, read again while something is not.
//!
//! # One definition
//!
//! 1. `Server::serve` lists the tools, and [`Pins::look`] records the listing (`Store::record_listing`) and reads what
//!    is accepted. A listing that is recorded already writes nothing. Of a server without accepted definitions the
//!    whole listing is accepted in the same transaction.
//! 2. `Server::publish` gives each tool its `Acceptance`, and `CurrentTools::replace` makes them the tools of this
//!    moment. If the database fails, no definition counts as accepted.
//! 3. `Policy::evaluate` asks where it would let a call of an unaccepted definition run.
//! 4. `Approvals::accept_definition` locks the listed row, compares the hash, adds the row of the acceptance and, after
//!    the commit, marks the tool in this process. While a definition is not accepted, each process reads the accepted
//!    hashes of its server every second.

use crate::agent::Tasks;
use holdpoint_core::tool::definition::{Acceptance, DefinitionCause, ListedDefinition, Unaccepted};
use holdpoint_store::{Store, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The definitions of one server in the database.
#[derive(Clone)]
pub(in crate::mcp) struct Pins {
    store: Store,
    tasks: Tasks,
    server: String,
}

/// What was accepted of a server's definitions, when this process looked last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) enum Pinned {
    /// By the name of the tool, the hash and, if another definition is listed now, the text.
    Known(BTreeMap<String, (String, Option<String>)>),
    /// The rows could not be read, or not be written.
    Unknown,
}

/// What the look at the rows is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mcp) enum Look {
    /// The server has listed its tools.
    AfterListing,
    /// An operator may have accepted something. The rows of the listing stay as they are.
    AtAcceptances,
}

impl Pins {
    pub(in crate::mcp) fn new(store: Store, tasks: Tasks, server: &str) -> Self {
        Self { store, tasks, server: server.to_owned() }
    }

    /// Reads what is accepted of these definitions. A failure of the database is an answer too: nothing counts as
    /// accepted then.
    pub(in crate::mcp) async fn look(&self, listed: Arc<[ListedDefinition]>, look: Look) -> Pinned {
        let pins = self.clone();
        let looked = self.tasks.spawn(async move { pins.read(&listed, look).await }).await;
        match looked {
            Ok(Ok(accepted)) => Pinned::Known(accepted),
            Ok(Err(error)) => {
                let server = &*self.server;
                tracing::debug!(server, %error, "the accepted definitions of an MCP server could not be read");
                Pinned::Unknown
            }
            Err(_broken) => Pinned::Unknown,
        }
    }

    async fn read(
        &self,
        listed: &[ListedDefinition],
        look: Look,
    ) -> Result<BTreeMap<String, (String, Option<String>)>, StoreError> {
        if look == Look::AfterListing {
            self.store.record_listing(&self.server, listed).await?;
        }
        self.store.accepted_definitions(&self.server, listed).await
    }
}

impl Pinned {
    /// Returns whether this definition is accepted.
    pub(in crate::mcp) fn acceptance(&self, listed: &ListedDefinition) -> Acceptance {
        let unaccepted = |cause, text| Acceptance::Unaccepted(Arc::new(Unaccepted::new(listed, cause, text)));
        match self {
            Self::Unknown => unaccepted(DefinitionCause::Unknown, None),
            Self::Known(accepted) => match accepted.get(&listed.tool_name) {
                None => unaccepted(DefinitionCause::New, None),
                Some((hash, _)) if *hash == listed.hash => Acceptance::Accepted,
                Some((_, text)) => unaccepted(DefinitionCause::Changed, text.as_deref()),
            },
        }
    }
}
