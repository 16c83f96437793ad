//! `[tools]`: what the model may ask for.

use super::{ConfigError, duration, wrong};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// `[tools]`
#[derive(Debug, Clone)]
pub struct Tools {
    /// `files_dir`: the folder of the demo tools, made if it is not there.
    pub files_dir: PathBuf,
    /// `timeout`: how long a tool may take; then its outcome is unknown.
    pub timeout: Duration,
    /// `[tools.<name>]`: what holds for one tool. Every other key of the section is the name of one.
    pub rules: BTreeMap<String, ToolRules>,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            files_dir: PathBuf::from("holdpoint-files"),
            timeout: Duration::from_secs(60),
            rules: BTreeMap::new(),
        }
    }
}

/// `[tools.<name>]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolRules {
    /// `run_roles`: only on behalf of who has one of these roles is it run; if absent, of everybody.
    #[serde(deserialize_with = "some_roles")]
    pub run_roles: Vec<String>,
    /// `approve_roles`: who has one of these roles may decide its calls, beside the user of the thread.
    #[serde(deserialize_with = "super::sources::list")]
    pub approve_roles: Vec<String>,
    /// `other_person`: whether the user of the thread may not approve its calls.
    pub other_person: bool,
}

impl Tools {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        duration("tools.timeout", self.timeout)?;
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
                    "expected a role: other_person leaves nobody who may approve",
                );
            }
        }
        Ok(())
    }
}

/// By hand: with `flatten` values of the environment, which are text, would be of the wrong type, and errors would not
/// name their key.
impl<'de> Deserialize<'de> for Tools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Section;

        impl<'de> Visitor<'de> for Section {
            type Value = Tools;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tools, A::Error> {
                let mut tools = Tools::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "files_dir" => tools.files_dir = map.next_value()?,
                        "timeout" => {
                            tools.timeout =
                                map.next_value::<humantime_serde::Serde<Duration>>()?.into_inner();
                        }
                        _ => {
                            let rules = map.next_value()?;
                            tools.rules.insert(key, rules);
                        }
                    }
                }
                Ok(tools)
            }
        }

        deserializer.deserialize_map(Section)
    }
}

/// An empty list, or a variable that somebody forgot to fill, would open the tool to everybody.
fn some_roles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let roles = super::sources::list(deserializer)?;
    if roles.is_empty() {
        return Err(D::Error::custom("expected at least one role; leave the key out for everybody"));
    }
    Ok(roles)
}
