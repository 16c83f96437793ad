//! The listed tools that can be used.

use crate::config::{self, ToolRisk};
use crate::mcp::client::definitions::definition::Definition;
use crate::mcp::client::link::Link;
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::log::redaction::Redaction;
use crate::mcp::client::message::readable::Unread;
use crate::mcp::client::tool::McpTool;
use crate::mcp::names::local_name;
use crate::tools::{OfServer, Registered, RiskLevel, SERVER_TOOLS_MAX, ToolSpec};
use holdpoint_core::text::visible::escaped;
use holdpoint_core::tool::definition::{ListedDefinition, UnusableTool};
use holdpoint_core::tool::remote::Remote;
use rmcp::model::Tool;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of patterns in the schemas of all tools of a server. Each is compiled, and kept.
const PATTERNS_MAX: usize = 256;
/// Maximum size of all compiled patterns of a listing, in bytes. Each has an equal share.
const COMPILED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum number of tools that are named as left out.
const LEFT_OUT_MAX: usize = 200;
/// Maximum size of one compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A tool of a listing that can be used.
pub(in crate::mcp) struct Usable {
    pub(in crate::mcp) tool: Registered,
    pub(in crate::mcp) listed: ListedDefinition,
    patterns: usize,
}

/// The tools of a listing.
#[derive(Default)]
pub(in crate::mcp) struct Sorted {
    pub(in crate::mcp) usable: Vec<Arc<Usable>>,
    /// Those that cannot be used.
    pub(in crate::mcp) left_out: Vec<UnusableTool>,
}

/// Makes tools of the definitions of one server.
pub(in crate::mcp) struct Definer {
    pub(in crate::mcp) config: config::McpServer,
    pub(in crate::mcp) link: Arc<Link>,
    pub(in crate::mcp) redaction: Redaction,
    pub(in crate::mcp) log: Arc<LogRate>,
}

impl Definer {
    /// Sorts the listed tools that the operator allows. A definition that was `before` is not compiled again. Takes long for
    /// large schemas, so it is not for a thread of the runtime.
    pub(in crate::mcp) fn sorted(
        &self,
        listed: &[Tool],
        unread: &[Unread],
        before: &[Arc<Usable>],
    ) -> Sorted {
        let server = self.config.name.as_str();
        let mut sorted = Sorted::default();
        for Unread { tool, field } in unread {
            self.leave_out(&mut sorted, tool, &format!("the field {field} cannot be read"));
        }
        let before: BTreeMap<&str, &Arc<Usable>> =
            before.iter().map(|usable| (usable.listed.hash.as_str(), usable)).collect();
        let allowed = listed.iter().filter(|tool| self.config.allows(&tool.name));
        let defined: Vec<_> = allowed.map(|tool| (&tool.name, Definition::of(server, tool))).collect();
        // By the name in holdpoint, the definitions that get it. Some servers list a tool twice.
        let mut names = BTreeMap::<String, BTreeSet<String>>::new();
        for (name, definition) in &defined {
            if let Ok(definition) = definition {
                names.entry(local_name(server, name)).or_default().insert(definition.hash.clone());
            }
        }
        let all = defined.iter().filter_map(|(_, definition)| definition.as_ref().ok()).map(|it| it.patterns);
        let all = all.fold(0_usize, usize::saturating_add).clamp(1, PATTERNS_MAX);
        let share = COMPILED_BYTES_MAX.checked_div(all).unwrap_or_default().min(PATTERN_BYTES_MAX);
        let (mut patterns, mut taken) = (0_usize, BTreeSet::new());
        for (name, definition) in defined {
            if definition.as_ref().is_ok_and(|definition| !taken.insert(definition.hash.clone())) {
                continue;
            }
            let usable = definition.and_then(|definition| {
                let total = patterns.saturating_add(definition.patterns);
                if names.get(&local_name(server, name)).is_some_and(|tools| tools.len() > 1) {
                    return Err("another tool gets the same name, so neither has it".to_owned());
                }
                if sorted.usable.len() == SERVER_TOOLS_MAX {
                    return Err(format!("its server has more than {SERVER_TOOLS_MAX} tools"));
                }
                if total > PATTERNS_MAX {
                    return Err(format!("the tools of its server have more than {PATTERNS_MAX} patterns"));
                }
                match before.get(definition.hash.as_str()) {
                    Some(usable) => Ok(Arc::clone(usable)),
                    None => self.registered(definition, share).map(Arc::new),
                }
            });
            match usable {
                Ok(usable) => {
                    patterns = patterns.saturating_add(usable.patterns);
                    sorted.usable.push(usable);
                }
                Err(why) => self.leave_out(&mut sorted, name, &why),
            }
        }
        for missing in self.config.tools.iter().flatten() {
            let is_there =
                |it: &Arc<Usable>| it.tool.remote.as_ref().is_some_and(|remote| remote.tool == *missing);
            let is_listed = listed.iter().any(|tool| tool.name == *missing);
            if !sorted.usable.iter().any(is_there) && !is_listed && self.log.admits() {
                tracing::warn!(
                    server,
                    tool = missing,
                    "an MCP server lacks a tool that the configuration names"
                );
            }
        }
        sorted
    }

    /// Names a tool that cannot be used, in the log and for the callers that see it.
    fn leave_out(&self, sorted: &mut Sorted, tool: &str, why: &str) {
        let (server, tool, why) =
            (self.config.name.clone(), self.redaction.text(tool), self.redaction.text(why));
        if self.log.admits() {
            tracing::warn!(server, tool, why, "a tool of an MCP server is left out");
        }
        if sorted.left_out.len() < LEFT_OUT_MAX {
            sorted.left_out.push(UnusableTool { server, tool, why });
        }
    }

    fn registered(&self, definition: Definition, pattern_bytes_max: usize) -> Result<Usable, String> {
        let server = self.config.name.as_str();
        let Definition { name, title, description, input_schema, hash, text, patterns } = definition;
        let hil = self.config.requires_approval(&name);
        let risk = match self.config.risk {
            Some(ToolRisk::Low) => RiskLevel::Low,
            Some(ToolRisk::Medium) => RiskLevel::Medium,
            Some(ToolRisk::High) => RiskLevel::High,
            None if hil => RiskLevel::High,
            None => RiskLevel::Low,
        };
        let spec = ToolSpec {
            hil,
            risk,
            headline: title.and_then(|title| headline(&title, &name)),
            ..ToolSpec::unclassified(local_name(server, &name), description, input_schema)
        };
        let remote = Remote { server: server.to_owned(), tool: name.clone() };
        let listed = ListedDefinition { tool_name: spec.name.clone(), hash: hash.clone(), text };
        let tool = Arc::new(McpTool { spec, name, definition_hash: hash.clone(), link: self.link.clone() });
        let of_server = OfServer { remote, definition_hash: hash, pattern_bytes_max };
        let tool = Registered::of_server(tool, of_server, self.link.clone());
        let tool = tool.map_err(|error| error.to_string())?;
        Ok(Usable { tool, listed, patterns })
    }
}

/// Returns the title of a tool with its name, for a card. `None` if the title says no more than the name.
fn headline(title: &str, name: &str) -> Option<String> {
    let letters = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let says_more = !title.is_empty() && letters(title) != letters(name);
    // Two braces stand for one.
    says_more.then(|| format!("{title} ({})", escaped(name)).replace('{', "{{").replace('}', "}}"))
}
