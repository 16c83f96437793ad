//! `[tools]`: what the model may ask for.

use super::{ConfigError, duration, wrong};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// `[tools]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Tools {
    /// `files_dir`: the folder of the demo tools, made if it is not there.
    pub files_dir: PathBuf,
    /// `timeout`: how long a tool may take; then its outcome is unknown.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// `[tools.<name>]`: what holds for one tool. Every other key of the section is the name of one.
    #[serde(flatten)]
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
    /// `run_roles`: only on behalf of who has one of these roles is it run; none means everybody.
    #[serde(deserialize_with = "super::sources::list")]
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
