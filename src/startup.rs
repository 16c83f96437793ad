//! What a server prints when it starts to serve: the answers to an operator's first questions.

use crate::config::{ApprovalMode, AuthMode, Config, McpServer};
use crate::mcp::local_name;
use crate::tools::{SEPARATOR, ToolRegistry};
use holdpoint_core::text::visible::visible;
use holdpoint_models::LanguageModel;

/// Returns the names of the tools of an MCP server that ask, or of those that do not. The server need not be connected.
fn at_server(server: &McpServer, requires_approval: bool) -> Vec<String> {
    match &server.tools {
        Some(tools) => {
            let tools = tools.iter().filter(|tool| server.requires_approval(tool) == requires_approval);
            tools.map(|tool| local_name(&server.name, tool)).collect()
        }
        // Without a list of tools, all of them ask.
        None if requires_approval => vec![format!("{}{SEPARATOR}*", server.name)],
        None => Vec::new(),
    }
}

/// The database, the model, the callers, the tools and the documents of a server at this URL, a line each. Passwords
/// are masked.
pub fn summary(config: &Config, tools: &ToolRegistry, model: &dyn LanguageModel, url: &str) -> String {
    let callers = match config.auth.mode {
        AuthMode::None => "every process of this machine, as one user (auth.mode = \"none\")",
        AuthMode::Jwt => "holders of a token (auth.mode = \"jwt\")",
    };
    let mode = match config.approval.mode {
        ApprovalMode::Manual => "held for an approval",
        ApprovalMode::AutoApprove => "run without an approval (approval.mode = \"auto-approve\")",
        ApprovalMode::AutoDeny => "denied (approval.mode = \"auto-deny\")",
    };
    let named = |hil: bool| {
        let names = tools.specs().filter(|tool| tool.hil == hil).map(|tool| tool.name.clone());
        let names: Vec<String> = names.chain(config.mcp.iter().flat_map(|it| at_server(it, hil))).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let approval = &config.approval;
    let has_exceptions =
        !(approval.always_allow.is_empty() && approval.always_deny.is_empty() && approval.rules.is_empty());
    let exceptions =
        if has_exceptions { ", unless approval.always_allow, always_deny or rules apply" } else { "" };
    let lines = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("database", config.database.masked_url()),
        ("model", format!("{} (model.provider = \"{}\")", model.id(), model.provider())),
        ("callers", callers.to_owned()),
        ("tools that ask", format!("{}: {mode}{exceptions}", named(true))),
        ("other tools", named(false)),
        ("console", if config.serves_console() { format!("{url}/") } else { "none".to_owned() }),
        ("documents", format!("{url}/{}", if config.serves_docs() { "docs" } else { "openapi.json" })),
    ];
    lines.map(|(name, value)| format!("  {name:<15} {}\n", visible(&value))).concat()
}
