//! The tools of a server as they are now. The tools of MCP servers come and go while the server runs.

use super::{Registered, ToolRegistry};
use holdpoint_core::tool::definition::{Acceptance, Accepted, UnusableTool};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The text between the name of an MCP server and the name of its tool.
pub(crate) const SEPARATOR: &str = "__";

/// Maximum number of tools of one MCP server.
pub(crate) const SERVER_TOOLS_MAX: usize = 200;

/// The names that the tools of an MCP server can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTools {
    /// The name of the server, which contains no [`SEPARATOR`] and does not end with a part of one.
    pub(crate) server: String,
    /// The names of its tools in this server. `None`: any name after the server's.
    pub(crate) only: Option<BTreeSet<String>>,
}

impl ServerTools {
    fn may_have(&self, tool: &str) -> bool {
        match &self.only {
            Some(only) => only.contains(tool),
            None => self.is_prefix_of(tool),
        }
    }

    fn is_prefix_of(&self, tool: &str) -> bool {
        let rest = tool.strip_prefix(self.server.as_str()).and_then(|rest| rest.strip_prefix(SEPARATOR));
        rest.is_some_and(|rest| !rest.is_empty())
    }
}

impl ToolRegistry {
    /// Announces the tools of an MCP server, which are not there yet. Returns the tool that has a name of the
    /// server already, if there is one.
    pub(crate) fn announce(&mut self, server: ServerTools) -> Option<String> {
        let existing = self.tools.keys().find(|name| server.is_prefix_of(name)).cloned();
        self.servers.push(server);
        existing
    }

    /// Whether there is a tool of this name, or there may be one once its MCP server is connected.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        self.tools.contains_key(name) || self.servers.iter().any(|server| server.may_have(name))
    }

    /// Returns the greatest number of tools that there can be.
    pub(crate) fn count_max(&self) -> usize {
        self.tools.len() + self.servers.len() * SERVER_TOOLS_MAX
    }

    /// Returns the names that tools have or may have. `files__*` means any name at a server.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tools.keys().cloned().collect();
        for server in &self.servers {
            match &server.only {
                Some(only) => names.extend(only.iter().cloned()),
                None => names.push(format!("{}{SEPARATOR}*", server.server)),
            }
        }
        names
    }
}

/// The tools of a server, replaced as a whole. What needs several answers about the tools takes one
/// [`now`](Self::now).
#[derive(Clone)]
pub(crate) struct CurrentTools(Arc<RwLock<Arc<ToolRegistry>>>);

impl fmt::Debug for CurrentTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now().fmt(f)
    }
}

impl CurrentTools {
    pub(crate) fn new(fixed: ToolRegistry) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(fixed))))
    }

    pub(crate) fn now(&self) -> Arc<ToolRegistry> {
        self.0.read().clone()
    }

    /// Replaces the tools of an MCP server, and those that cannot be used. The operator's rules apply to the new ones by their names.
    pub(crate) fn replace(&self, server: &str, tools: Vec<Registered>, left_out: Vec<UnusableTool>) {
        let mut current = self.0.write();
        let mut next = ToolRegistry::clone(&current);
        let is_of_server =
            |tool: &Registered| tool.remote.as_ref().is_some_and(|remote| remote.server == server);
        next.tools.retain(|_, tool| !is_of_server(tool));
        next.left_out.retain(|tool| tool.server != server);
        next.left_out.extend(left_out);
        for mut tool in tools {
            let name = tool.spec.name.clone();
            tool.rules = next.rules.get(&name).cloned().unwrap_or_default();
            next.tools.insert(name, Arc::new(tool));
        }
        *current = Arc::new(next);
    }

    /// Marks the definition of a tool as accepted, if it is still the one with this hash.
    pub(crate) fn accept(&self, accepted: &Accepted) {
        let mut current = self.0.write();
        let Some(tool) = current.get(&accepted.tool_name) else { return };
        if tool.remote.is_none() || tool.schema_hash != accepted.hash {
            return;
        }
        let tool = tool.with_acceptance(Acceptance::Accepted);
        let mut next = ToolRegistry::clone(&current);
        next.tools.insert(accepted.tool_name.clone(), Arc::new(tool));
        *current = Arc::new(next);
    }
}
