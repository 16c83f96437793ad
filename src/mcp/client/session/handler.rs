//! What a server may send by itself.

use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::session::elicitation::result_of;
use crate::mcp::client::transport::watched::CallOfForm;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorCode, FormElicitationCapability, Implementation, JsonObject, ProtocolVersion,
    TASKS_EXTENSION_ID,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use std::sync::Arc;
use tokio::sync::Notify;

/// What a server may ask of holdpoint: the fields of a form. A server may also say that its tools have changed.
#[derive(Clone)]
pub(in crate::mcp) struct Handler {
    changed: Arc<Notify>,
    log: Arc<LogRate>,
}

impl Handler {
    /// Creates the handler of one connection. It notifies `changed` when the tools have changed.
    pub(in crate::mcp) fn new(changed: Arc<Notify>, log: Arc<LogRate>) -> Self {
        Self { changed, log }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("holdpoint", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        let extensions = [(TASKS_EXTENSION_ID.to_owned(), JsonObject::new())];
        capabilities.extensions = Some(extensions.into());
        capabilities.elicitation =
            Some(ElicitationCapability::new().with_form(FormElicitationCapability::new()));
        ClientConfig::new(capabilities, own).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    #[expect(
        deprecated,
        reason = "a server may still ask for roots, and the default answer is an empty list"
    )]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "roots/list", None))
    }

    /// A form of a server with a session. The request does not say to which call it belongs.
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let call = context.extensions.get::<CallOfForm>().and_then(|call| call.0.clone());
        let asking = result_of(request, call, &self.log);
        tokio::select! {
            answered = asking => Ok(answered),
            // The server withdrew its request, so nothing reads this answer.
            () = context.ct.cancelled() => Ok(ElicitResult::new(ElicitationAction::Cancel)),
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
