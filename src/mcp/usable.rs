//! The listed tools that can be used.

use super::Link;
use super::definition::Definition;
use super::log_rate::LogRate;
use super::names::local_name;
use super::readable::Unread;
use super::redaction::Redaction;
use super::tool::McpTool;
use crate::config::{self, ToolRisk};
use crate::domain::definition::Listed;
use crate::domain::remote::Remote;
use crate::domain::visible::escaped;
use crate::tools::{OfServer, Registered, RiskLevel, SERVER_TOOLS_MAX, ToolSpec};
use rmcp::model::Tool;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of patterns in the schemas of all tools of a server. Each is compiled, and kept.
const PATTERNS_MAX: usize = 256;
/// Maximum size of all compiled patterns of a listing, in bytes. Each has an equal share.
const COMPILED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum size of one compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A tool of a listing that can be used.
pub(super) struct Usable {
    pub(super) tool: Registered,
    pub(super) listed: Listed,
    patterns: usize,
}

/// Makes tools of the definitions of one server.
pub(super) struct Definer {
    pub(super) config: config::McpServer,
    pub(super) link: Arc<Link>,
    pub(super) redaction: Redaction,
    pub(super) log: Arc<LogRate>,
}

impl Definer {
    /// Returns the listed tools that can be used and that the operator allows. A definition that was `before` is not
    /// compiled again. Takes long for large schemas, so it is not for a thread of the runtime.
    pub(super) fn usable(
        &self,
        listed: &[Tool],
        unread: &[Unread],
        before: &[Arc<Usable>],
    ) -> Vec<Arc<Usable>> {
        let server = self.config.name.as_str();
        for Unread { tool, field } in unread.iter().filter(|_| self.log.admits()) {
            let (tool, field) = (self.redaction.text(tool), self.redaction.text(field));
            tracing::warn!(
                server,
                tool,
                field,
                "a tool of an MCP server is left out: the field cannot be read"
            );
        }
        let before: BTreeMap<&str, &Arc<Usable>> =
            before.iter().map(|usable| (usable.listed.hash.as_str(), usable)).collect();
        let allowed = listed.iter().filter(|tool| self.config.allows(&tool.name));
        let defined: Vec<_> = allowed.map(|tool| (&tool.name, Definition::of(server, tool))).collect();
        let all = defined.iter().filter_map(|(_, definition)| definition.as_ref().ok()).map(|it| it.patterns);
        let all = all.fold(0_usize, usize::saturating_add).clamp(1, PATTERNS_MAX);
        let share = COMPILED_BYTES_MAX.checked_div(all).unwrap_or_default().min(PATTERN_BYTES_MAX);
        let (mut names, mut tools, mut patterns) = (BTreeSet::new(), Vec::<Arc<Usable>>::new(), 0_usize);
        for (name, definition) in defined {
            if tools.len() == SERVER_TOOLS_MAX {
                if self.log.admits() {
                    tracing::warn!(
                        server,
                        SERVER_TOOLS_MAX,
                        "an MCP server has too many tools; the rest is left out"
                    );
                }
                break;
            }
            let usable = definition.and_then(|definition| {
                let total = patterns.saturating_add(definition.patterns);
                if total > PATTERNS_MAX {
                    return Err(format!("the tools of its server have more than {PATTERNS_MAX} patterns"));
                }
                match before.get(definition.hash.as_str()) {
                    Some(usable) => Ok(Arc::clone(usable)),
                    None => self.registered(definition, share).map(Arc::new),
                }
            });
            let why = match usable {
                Ok(usable) if names.insert(usable.listed.tool_name.clone()) => {
                    patterns = patterns.saturating_add(usable.patterns);
                    tools.push(usable);
                    continue;
                }
                Ok(_) => "another tool has the same name".to_owned(),
                Err(why) => self.redaction.text(&why),
            };
            if self.log.admits() {
                let tool = self.redaction.text(name);
                tracing::warn!(server, tool, why, "a tool of an MCP server is left out");
            }
        }
        for missing in self.config.tools.iter().flatten() {
            let is_there =
                |it: &Arc<Usable>| it.tool.remote.as_ref().is_some_and(|remote| remote.tool == *missing);
            if !tools.iter().any(is_there) && self.log.admits() {
                tracing::warn!(
                    server,
                    tool = missing,
                    "an MCP server lacks a tool that the configuration names"
                );
            }
        }
        tools
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
        let listed = Listed { tool_name: spec.name.clone(), hash: hash.clone(), text };
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
