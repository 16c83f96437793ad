//! `approvals resolve`: the outcome of an interrupted call, as an operator found it out.

use super::client::Client;
use super::failure::Failure;
use super::json_text;
use crate::config;
use clap::Args;
use holdpoint_core::text::visible::visible;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::{Write, stdout};

/// The arguments of `approvals resolve`.
#[derive(Debug, Args)]
pub struct Resolve {
    /// Id of the call
    pub tool_call_id: String,
    /// Record the outcome in the database, without a server: name of the operator, for the audit trail
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// What happened.
    #[command(flatten)]
    pub finding: FoundOutcome,
    /// Evidence for the outcome
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print the response of the server as JSON, in one line
    #[arg(long, conflicts_with = "by")]
    json: bool,
}

/// What an operator found out.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct FoundOutcome {
    /// The call took effect; the value is its output, if known
    #[arg(long, value_name = "JSON", num_args = 0..=1, default_missing_value = "null", value_parser = json)]
    pub succeeded: Option<Value>,
    /// The call failed or never ran; the value is the cause
    #[arg(long, value_name = "TEXT")]
    pub failed: Option<String>,
}

fn json(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}

/// An outcome as the server takes it.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
struct Resolved {
    tool_call_id: String,
    state: String,
}

impl Resolve {
    /// Checks that the command does not name the operator: the server knows the operator by the token.
    fn check_at_server(&self) -> Result<(), Failure> {
        match self.by {
            Some(_) => {
                let expected = "--by: expected none with --url, because the access token names the operator";
                Err(Failure::Usage(expected.to_owned()))
            }
            None => Ok(()),
        }
    }

    pub(crate) async fn run(&self, config: config::Client) -> Result<(), Failure> {
        self.check_at_server()?;
        let client = Client::new(config)?;
        let FoundOutcome { succeeded, failed } = &self.finding;
        let body = Outcome {
            outcome: if failed.is_some() { "failed" } else { "succeeded" },
            result: succeeded.as_ref(),
            error: failed.as_deref(),
            reason: self.reason.as_deref(),
        };
        let response: Box<RawValue> = client.resolve(&self.tool_call_id, &body).await?;
        if self.json {
            return Ok(writeln!(stdout(), "{}", json_text::line(&response))?);
        }
        let Resolved { tool_call_id, state } = super::client::parsed(response.get().as_bytes())?;
        let (id, state) = (visible(&tool_call_id), visible(&state));
        Ok(writeln!(stdout(), "{id} is {state}; the model reads that an operator established it")?)
    }
}
