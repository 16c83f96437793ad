//! The `callback_url`: the right to report the outcome of one execution of a call, once.
//!
//! It names the call, its execution and its tool, with an HMAC by each key of the tool's service. So every process with
//! one of the keys recognizes it, without the database.

use crate::standard_webhooks::Signer;
use holdpoint_core::id::{ExecId, ToolCallId};

/// The query parameter with the name of the tool.
pub const TOOL: &str = "tool_name";
/// The query parameter with the id of the execution.
pub const EXECUTION: &str = "execution_id";
/// The query parameter with the proof that this server made the URL.
pub const MAC: &str = "mac";

/// What a callback is about.
#[derive(Debug, Clone, Copy)]
pub struct Callback<'a> {
    /// The name of the tool.
    pub tool: &'a str,
    /// The call.
    pub call: ToolCallId,
    /// The execution of the call.
    pub execution: ExecId,
}

impl Callback<'_> {
    /// Returns the URL of the callback at a server with this address.
    pub fn url(&self, server: &str, keys: &Signer) -> String {
        let Self { tool, call, execution } = self;
        let mac = keys.macs(&self.text());
        // No part needs an escape.
        format!("{server}/tool_calls/{call}/result?{TOOL}={tool}&{EXECUTION}={execution}&{MAC}={mac}")
    }

    /// Whether a server with one of these keys made this HMAC for the callback.
    pub fn has(&self, mac: &str, keys: &Signer) -> bool {
        keys.recognizes(&self.text(), mac)
    }

    /// The signed text. A webhook begins with its id, never with these words.
    fn text(&self) -> String {
        let Self { tool, call, execution } = self;
        format!("holdpoint callback\n{tool}\n{call}\n{execution}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn an_hmac_is_for_one_tool_one_call_and_one_execution() {
        let keys = Signer::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let (call, execution) = (ToolCallId::new(Uuid::from_u128(1)), ExecId::new(Uuid::from_u128(2)));
        let callback = Callback { tool: "pay", call, execution };
        let url = callback.url("https://chat.example/api", &keys);
        let (address, mac) = url.split_once("&mac=").unwrap();
        assert_eq!(
            address,
            "https://chat.example/api/tool_calls/00000000-0000-0000-0000-000000000001/result?tool_name=pay\
             &execution_id=00000000-0000-0000-0000-000000000002"
        );
        assert!(callback.has(mac, &keys));
        for other in [
            Callback { tool: "buy", ..callback },
            Callback { call: ToolCallId::new(Uuid::from_u128(2)), ..callback },
            Callback { execution: ExecId::new(Uuid::from_u128(1)), ..callback },
        ] {
            assert!(!other.has(mac, &keys), "{other:?}");
        }
        assert!(!callback.has("", &keys) && !callback.has(&mac[1..], &keys));
    }
}
