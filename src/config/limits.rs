//! `[limits]`: limits of sizes and counts.

use super::{AuthMode, ConfigError, wrong};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The default of `agent_depth`.
const AGENT_DEPTH: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);
/// The default of `agents_per_run`.
const AGENTS_PER_RUN: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);

/// `[limits]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// `body_bytes`: the longest request body.
    pub body_bytes: usize,
    /// `chat_body_bytes`: the longest body of a chat request. Pages post their whole conversation in it.
    pub chat_body_bytes: usize,
    /// `bodies_in_flight_bytes`: the sum of all bodies that one process reads or has yet to parse. One user has
    /// at most a quarter of it.
    pub bodies_in_flight_bytes: usize,
    /// `answers_in_flight_bytes`: the sum of all answers of one process that their clients have not read. One
    /// user has at most a quarter of it.
    pub answers_in_flight_bytes: usize,
    /// `message_bytes`: the longest message of a user.
    pub message_bytes: usize,
    /// `thread_bytes`: the largest size of a thread: texts, arguments and results. A thread of this size
    /// takes no new message, and a run in it opens no step.
    pub thread_bytes: u64,
    /// `thread_messages`: the most messages of a thread, superseded messages included.
    pub thread_messages: u64,
    /// `page_bytes`: the longest page of a list. An item that is longer has its outputs cut.
    pub page_bytes: usize,
    /// `args_bytes`: the longest arguments of one call.
    pub args_bytes: usize,
    /// `result_bytes`: the longest answer of a call for the model. A longer answer is cut and marked.
    pub result_bytes: usize,
    /// `json_depth`: the deepest nesting of arguments.
    pub json_depth: usize,
    /// `calls_per_step`: the most calls in one answer of the model.
    pub calls_per_step: usize,
    /// `pending_per_thread`: the most pending calls of a thread.
    pub pending_per_thread: u64,
    /// `agent_depth`: the deepest nesting of sub-agents. With 1, no sub-agent starts another one.
    pub agent_depth: NonZeroU32,
    /// `agents_per_run`: the most sub-agents of one run, nested ones included.
    pub agents_per_run: NonZeroU32,
    /// `batch`: the most new decisions in one request.
    pub batch: usize,
    /// `stream_buffer_bytes`: how much of a stream the server buffers for one client, approximately.
    pub stream_buffer_bytes: usize,
    /// `requests_per_minute`: requests of one user at one process. For this key and the following ones, 0
    /// means no limit. In mode `none` an absent key means no limit as well.
    pub requests_per_minute: Option<u32>,
    /// `turns_per_minute`: turns of one user at one process.
    pub turns_per_minute: Option<u32>,
    /// `decisions_per_minute`: decisions of one user at one process.
    pub decisions_per_minute: Option<u32>,
    /// `turns_per_user`: concurrent turns of one user, over all processes.
    pub turns_per_user: Option<u32>,
    /// `turns_per_tenant`: concurrent turns of one tenant, over all processes.
    pub turns_per_tenant: Option<u32>,
    /// `open_requests_per_user`: requests of one user that one process handles at once.
    pub open_requests_per_user: Option<u32>,
    /// `streams_per_user`: concurrent streams of one user at one process.
    pub streams_per_user: Option<u32>,
    /// `claims_per_user`: claims of workers of one user that wait at one process.
    pub claims_per_user: Option<u32>,
    /// `connections`: open connections of one process. A further connection waits until one closes.
    pub connections: Option<u32>,
    /// `connections_per_ip`: open connections of one client address at one process. An IPv6 network (/64)
    /// counts as one address. The server closes further connections at once. The default is no limit in any
    /// mode: with a TLS proxy in front of the server, all connections come from the address of the proxy, and
    /// the server does not read the client address from headers.
    pub connections_per_ip: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        const KIB: usize = 1024;
        Self {
            body_bytes: 256 * KIB,
            chat_body_bytes: 16 * KIB * KIB,
            bodies_in_flight_bytes: 128 * KIB * KIB,
            answers_in_flight_bytes: 128 * KIB * KIB,
            message_bytes: 256 * KIB,
            thread_bytes: 64 << 20,
            thread_messages: 10_000,
            page_bytes: 4 * KIB * KIB,
            args_bytes: 256 * KIB,
            result_bytes: KIB * KIB,
            json_depth: 32,
            calls_per_step: 16,
            pending_per_thread: 50,
            agent_depth: AGENT_DEPTH,
            agents_per_run: AGENTS_PER_RUN,
            batch: 50,
            stream_buffer_bytes: KIB * KIB,
            requests_per_minute: None,
            turns_per_minute: None,
            decisions_per_minute: None,
            turns_per_user: None,
            turns_per_tenant: None,
            open_requests_per_user: None,
            streams_per_user: None,
            claims_per_user: None,
            connections: None,
            connections_per_ip: None,
        }
    }
}

/// The counted limits in force. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) requests_per_minute: Option<NonZeroU32>,
    pub(crate) turns_per_minute: Option<NonZeroU32>,
    pub(crate) decisions_per_minute: Option<NonZeroU32>,
    pub(crate) turns_per_user: Option<NonZeroU32>,
    pub(crate) turns_per_tenant: Option<NonZeroU32>,
    pub(crate) open_requests_per_user: Option<NonZeroU32>,
    pub(crate) streams_per_user: Option<NonZeroU32>,
    pub(crate) claims_per_user: Option<NonZeroU32>,
    pub(crate) connections: Option<NonZeroU32>,
    pub(crate) connections_per_ip: Option<NonZeroU32>,
}

impl Caps {
    pub(crate) fn of_listener(&self) -> holdpoint_serve::Limits {
        holdpoint_serve::Limits { connections: self.connections, connections_per_ip: self.connections_per_ip }
    }
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let least = self.body_bytes.max(self.chat_body_bytes).saturating_mul(4);
        if self.bodies_in_flight_bytes < least {
            let why = format!(
                "expected at least {least}, four times the longest body: one user has a quarter of these bytes"
            );
            return wrong("limits.bodies_in_flight_bytes", why);
        }
        let least = self.page_bytes.saturating_mul(4);
        if self.answers_in_flight_bytes < least {
            let why = format!(
                "expected at least {least}, four times limits.page_bytes: one user has a quarter of these bytes"
            );
            return wrong("limits.answers_in_flight_bytes", why);
        }
        // A user message and its answer.
        if self.thread_messages < 2 {
            return wrong("limits.thread_messages", "expected at least 2");
        }
        let bytes = u64::try_from(self.message_bytes).unwrap_or(u64::MAX);
        if bytes == 0 {
            return wrong("limits.message_bytes", "expected at least 1");
        }
        if self.thread_bytes <= bytes {
            let why = format!("expected more than limits.message_bytes, {bytes}, or a message cannot fit");
            return wrong("limits.thread_bytes", why);
        }
        Ok(())
    }

    /// Returns a copy in which absent keys have the values in force.
    pub(super) fn in_force(&self, mode: AuthMode) -> Self {
        let caps = self.caps(mode);
        let shown = |cap: Option<NonZeroU32>| Some(cap.map_or(0, NonZeroU32::get));
        Self {
            requests_per_minute: shown(caps.requests_per_minute),
            turns_per_minute: shown(caps.turns_per_minute),
            decisions_per_minute: shown(caps.decisions_per_minute),
            turns_per_user: shown(caps.turns_per_user),
            turns_per_tenant: shown(caps.turns_per_tenant),
            open_requests_per_user: shown(caps.open_requests_per_user),
            streams_per_user: shown(caps.streams_per_user),
            claims_per_user: shown(caps.claims_per_user),
            connections: shown(caps.connections),
            connections_per_ip: shown(caps.connections_per_ip),
            ..self.clone()
        }
    }

    /// Returns the counted limits of this mode. In mode `none` the one user is the operator, so there is no
    /// limit unless a key is set.
    pub(crate) fn caps(&self, mode: AuthMode) -> Caps {
        let cap = |set: Option<u32>, default: u32| {
            let in_force = set.unwrap_or(match mode {
                AuthMode::None => 0,
                AuthMode::Jwt => default,
            });
            NonZeroU32::new(in_force)
        };
        Caps {
            requests_per_minute: cap(self.requests_per_minute, 600),
            turns_per_minute: cap(self.turns_per_minute, 60),
            decisions_per_minute: cap(self.decisions_per_minute, 600),
            turns_per_user: cap(self.turns_per_user, 10),
            turns_per_tenant: cap(self.turns_per_tenant, 200),
            open_requests_per_user: cap(self.open_requests_per_user, 1_200),
            streams_per_user: cap(self.streams_per_user, 20),
            claims_per_user: cap(self.claims_per_user, 1_000),
            connections: cap(self.connections, 10_000),
            connections_per_ip: cap(self.connections_per_ip, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(caps: Caps) -> [u32; 10] {
        [
            caps.requests_per_minute,
            caps.turns_per_minute,
            caps.decisions_per_minute,
            caps.turns_per_user,
            caps.turns_per_tenant,
            caps.open_requests_per_user,
            caps.streams_per_user,
            caps.claims_per_user,
            caps.connections,
            caps.connections_per_ip,
        ]
        .map(|cap| cap.map_or(0, NonZeroU32::get))
    }

    #[test]
    fn limits_are_on_by_default_with_authentication_and_explicit_limits_always_apply() {
        let limits = Limits::default();
        assert_eq!(numbers(limits.caps(AuthMode::None)), [0; 10]);
        assert_eq!(numbers(limits.caps(AuthMode::Jwt)), [600, 60, 600, 10, 200, 1_200, 20, 1_000, 10_000, 0]);
        for mode in [AuthMode::None, AuthMode::Jwt] {
            let set = Limits {
                requests_per_minute: Some(1),
                turns_per_minute: Some(2),
                decisions_per_minute: Some(3),
                turns_per_user: Some(4),
                turns_per_tenant: Some(5),
                open_requests_per_user: Some(6),
                streams_per_user: Some(7),
                claims_per_user: Some(8),
                connections: Some(9),
                connections_per_ip: Some(0),
                ..Limits::default()
            };
            assert_eq!(numbers(set.caps(mode)), [1, 2, 3, 4, 5, 6, 7, 8, 9, 0], "{mode:?}");
        }
    }
}
