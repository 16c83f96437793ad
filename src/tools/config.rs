//! `[tools]`: the tools that the model may call.

use crate::config::ExactNumbers;
use holdpoint_settings::{ConfigError, check_duration, check_some_duration, forms, wrong};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// `[tools]`
#[derive(Debug, Clone, Serialize)]
pub struct Tools {
    /// Whether the server has the [demo tools](tools.md#demo-tools).
    ///
    /// Value: switch. Default: `true`.
    pub demo: bool,
    /// Folder of the demo tools, created if absent.
    ///
    /// Value: path. Default: `holdpoint-files`.
    pub files_dir: PathBuf,
    /// Longest execution of a tool. After it the call is cancelled. Also the longest `verify`.
    ///
    /// Value: duration. Default: `60s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub timeout: Duration,
    /// Longest execution of a tool of an MCP server that reports progress. Each report begins `timeout` again.
    ///
    /// Value: duration, at least `timeout`. Default: `10m`, or `timeout` if that is longer.
    #[serde(with = "holdpoint_settings::forms::some_duration", skip_serializing_if = "Option::is_none")]
    pub timeout_max: Option<Duration>,
    /// Time that a cancelled tool has to return. After it the call is `interrupted`.
    ///
    /// Value: duration. Default: `5s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub cancel_grace: Duration,
    /// Longest [preview](tools.md#previews) of a call. The hold waits for it.
    ///
    /// Value: duration, more than 0, at most `30s`. Default: `5s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub preview_timeout: Duration,
    /// Whether arguments that do not fit the schema of their tool are [repaired](tools.md#repaired-inputs) before the
    /// call is judged.
    ///
    /// Value: switch. Default: `false`.
    pub repair: bool,
    /// `[tools.<name>]`: the settings of one tool. Every other key of the section is the name of a tool.
    #[serde(flatten)]
    pub rules: BTreeMap<String, ToolRules>,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            demo: true,
            files_dir: PathBuf::from("holdpoint-files"),
            timeout: Duration::from_secs(60),
            timeout_max: None,
            cancel_grace: Duration::from_secs(5),
            preview_timeout: Duration::from_secs(5),
            repair: false,
            rules: BTreeMap::new(),
        }
    }
}

/// The longest execution of a tool that reports progress, unless `timeout_max` or a longer `timeout` says otherwise.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// The most that a preview may delay a hold. A user waits for the answer meanwhile.
const PREVIEW_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// The most approvals that a tool can require.
const APPROVALS_MAX: u8 = 10;

/// `[tools.<name>]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolRules {
    /// Roles for which the tool runs. For other users the tool does not exist.
    ///
    /// Value: list of roles, not empty. Default: absent: all users.
    #[serde(deserialize_with = "some_roles", skip_serializing_if = "Vec::is_empty")]
    pub run_roles: Vec<String>,
    /// Roles whose holders may decide calls of other users. Without them only the user of the thread decides.
    ///
    /// Value: list of roles. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub approve_roles: Vec<String>,
    /// Whether the user of the thread may only reject. Needs `approve_roles`.
    ///
    /// Value: switch. Default: `false`.
    pub other_person: bool,
    /// Number of different people whose approvals of the same inputs the call needs. One rejection rejects the call.
    /// More than 1 needs `approve_roles` and `auth.mode = "jwt"`.
    ///
    /// Value: integer, 1 to 10. Default: `1`.
    pub approvals: u8,
    /// How many people an answer to a [request of the tool](tools.md#forms) needs while a held call runs: as many as
    /// `approvals`, or one.
    ///
    /// Value: `quorum`, `one`. Default: `quorum`.
    pub answers: Answers,
    /// What happens to held calls with numbers that a page cannot show; see [tools.md](tools.md#exact-numbers).
    ///
    /// Value: `require`, `allow`. Default: `approval.exact_numbers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact_numbers: Option<ExactNumbers>,
}

impl Default for ToolRules {
    fn default() -> Self {
        Self {
            run_roles: Vec::new(),
            approve_roles: Vec::new(),
            other_person: false,
            approvals: 1,
            answers: Answers::Quorum,
            exact_numbers: None,
        }
    }
}

/// How many people an answer to a request of a tool needs, while a held call of the tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answers {
    /// As many as the call needs approvals: `approvals`.
    Quorum,
    /// One.
    One,
}

/// Deserialized by hand, because the names of tools are beside the keys of the section.
impl<'de> Deserialize<'de> for Tools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SectionVisitor)
    }
}

struct SectionVisitor;

impl<'de> Visitor<'de> for SectionVisitor {
    type Value = Tools;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut section: A) -> Result<Tools, A::Error> {
        #[derive(Deserialize)]
        struct Time(#[serde(with = "holdpoint_settings::forms::duration")] Duration);

        let mut tools = Tools::default();
        while let Some(key) = section.next_key::<String>()? {
            match key.as_str() {
                "demo" => tools.demo = section.next_value()?,
                "files_dir" => tools.files_dir = section.next_value()?,
                "timeout" => tools.timeout = section.next_value::<Time>()?.0,
                "timeout_max" => tools.timeout_max = Some(section.next_value::<Time>()?.0),
                "cancel_grace" => tools.cancel_grace = section.next_value::<Time>()?.0,
                "preview_timeout" => tools.preview_timeout = section.next_value::<Time>()?.0,
                "repair" => tools.repair = section.next_value()?,
                _ => {
                    let ToolTable(rules) = section.next_value()?;
                    tools.rules.insert(key, rules);
                }
            }
        }
        Ok(tools)
    }
}

/// The table of one tool. Another value is that of a misspelt key.
struct ToolTable(ToolRules);

impl<'de> Deserialize<'de> for ToolTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ToolTableVisitor).map(Self)
    }
}

struct ToolTableVisitor;

impl<'de> Visitor<'de> for ToolTableVisitor {
    type Value = ToolRules;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "demo, files_dir, timeout, timeout_max, cancel_grace, preview_timeout, repair, or a table with the name \
             of a tool",
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<ToolRules, A::Error> {
        ToolRules::deserialize(MapAccessDeserializer::new(table))
    }
}

impl Tools {
    /// Returns the longest execution of a tool that reports progress.
    pub(crate) fn timeout_max(&self) -> Duration {
        self.timeout_max.unwrap_or(TIMEOUT_MAX.max(self.timeout))
    }

    /// Refuses a time to answer that is nothing, or longer than an execution.
    pub(crate) fn check_answer_time(&self, key: &str, time: Option<Duration>) -> Result<(), ConfigError> {
        if time.is_some_and(|time| time > self.timeout) {
            return wrong(key, "expected at most tools.timeout, the longest execution of a tool");
        }
        check_some_duration(key, time)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check_duration("tools.timeout", self.timeout)?;
        if let Some(most) = self.timeout_max {
            if most < self.timeout {
                return wrong("tools.timeout_max", "expected at least tools.timeout");
            }
            check_duration("tools.timeout_max", most)?;
        }
        check_duration("tools.cancel_grace", self.cancel_grace)?;
        if self.preview_timeout.is_zero() || self.preview_timeout > PREVIEW_TIMEOUT_MAX {
            let why = format!("expected more than 0s, and at most {}s", PREVIEW_TIMEOUT_MAX.as_secs());
            return wrong("tools.preview_timeout", why);
        }
        for (name, rules) in &self.rules {
            for (key, roles) in [("run_roles", &rules.run_roles), ("approve_roles", &rules.approve_roles)] {
                if let Some(role) = roles.iter().find(|role| role.is_empty() || role.trim() != *role) {
                    let why =
                        format!("expected the names of roles, without spaces around them, not {role:?}");
                    return wrong(format!("tools.{name}.{key}"), why);
                }
            }
            if rules.other_person && rules.approve_roles.is_empty() {
                return wrong(
                    format!("tools.{name}.approve_roles"),
                    "expected a role: with other_person and without a role, no person may approve",
                );
            }
            if !(1..=APPROVALS_MAX).contains(&rules.approvals) {
                let why = format!("expected 1 to {APPROVALS_MAX} people");
                return wrong(format!("tools.{name}.approvals"), why);
            }
            if rules.approvals > 1 && rules.approve_roles.is_empty() {
                return wrong(
                    format!("tools.{name}.approve_roles"),
                    "expected a role: without one only the user approves, and approvals needs several people",
                );
            }
        }
        Ok(())
    }
}

/// Refuses an empty list. An empty list, or a variable that was not filled in, would open the tool to all
/// users.
fn some_roles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let roles = forms::list(deserializer)?;
    if roles.is_empty() {
        return Err(D::Error::custom("expected at least one role; leave the key out for all users"));
    }
    Ok(roles)
}
