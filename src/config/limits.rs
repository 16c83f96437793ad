//! `[limits]`: limits of sizes and counts.

use super::{AuthMode, ConfigError, wrong};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The default of `agent_depth`.
const AGENT_DEPTH: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);
/// The default of `agents_per_run`.
const AGENTS_PER_RUN: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);

/// `[limits]`: sizes and counts, and from `requests_per_minute` on the counted limits. Of those `0` means no limit, and in
/// mode `none` an absent key means no limit as well.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Longest request body, and longest WebSocket message. 413 `body_too_large`.
    ///
    /// Value: bytes. Default: `262144`.
    pub body_bytes: usize,
    /// Longest body of the chat routes, where pages post their whole conversation. 413 `body_too_large`.
    ///
    /// Value: bytes. Default: `16777216`.
    pub chat_body_bytes: usize,
    /// All bodies that a process reads or has yet to parse. 503 `unavailable`; 429 `rate_limited` for one user beyond
    /// a quarter of it. At least four times the longest body. See [http.md](http.md#bytes-in-flight).
    ///
    /// Value: bytes. Default: `134217728`.
    pub bodies_in_flight_bytes: usize,
    /// All answers of a process that their clients have not read. 503 `unavailable`; 429 `rate_limited` for one user
    /// beyond a quarter of it. At least four times `page_bytes`.
    ///
    /// Value: bytes. Default: `134217728`.
    pub answers_in_flight_bytes: usize,
    /// Longest message of a user. 413 `body_too_large`.
    ///
    /// Value: bytes, at least 1. Default: `262144`.
    pub message_bytes: usize,
    /// Texts, inputs and results of a thread. 409 `thread_full`.
    ///
    /// Value: bytes, more than `message_bytes`. Default: `67108864`.
    pub thread_bytes: u64,
    /// Messages of a thread, superseded ones included. 409 `thread_full`.
    ///
    /// Value: messages, at least 2. Default: `10000`.
    pub thread_messages: u64,
    /// Length of a page of a list. The page ends early, with `has_more`; it has at least one item. A message that is
    /// longer by itself has its outputs and results cut.
    ///
    /// Value: bytes. Default: `4194304`.
    pub page_bytes: usize,
    /// Longest inputs of a call. The call is `invalid`; an edit gets 422.
    ///
    /// Value: bytes. Default: `262144`.
    pub args_bytes: usize,
    /// Longest output of a call, and longest text about it for the model. Longer ones are cut and end with ` […cut]`.
    ///
    /// Value: bytes. Default: `1048576`.
    pub result_bytes: usize,
    /// Deepest nesting of inputs. The call is `invalid`; an edit gets 422.
    ///
    /// Value: levels. Default: `32`.
    pub json_depth: usize,
    /// Calls in one answer of the model. Further calls are `invalid`.
    ///
    /// Value: calls. Default: `16`.
    pub calls_per_step: usize,
    /// Pending calls of a thread. Further calls that ask are `invalid`.
    ///
    /// Value: calls. Default: `50`.
    pub pending_per_thread: u64,
    /// Nesting of sub-agents. With `1` no sub-agent begins another. Deeper calls fail.
    ///
    /// Value: levels, at least 1. Default: `3`.
    pub agent_depth: NonZeroU32,
    /// Sub-agents of one run, nested ones included. Further calls fail.
    ///
    /// Value: sub-agents, at least 1. Default: `16`.
    pub agents_per_run: NonZeroU32,
    /// Decisions in one `validate_tools` request, beyond which it gets 400. Of the approvals in one post of a page,
    /// those beyond stay pending.
    ///
    /// Value: decisions. Default: `50`.
    pub batch: usize,
    /// How much of a stream the server writes ahead for one client, approximately.
    ///
    /// Value: bytes. Default: `1048576`.
    pub stream_buffer_bytes: usize,
    /// Requests of one user at one process.
    ///
    /// Value: integer. Default: `600`.
    pub requests_per_minute: Option<u32>,
    /// Turns of one user at one process.
    ///
    /// Value: integer. Default: `60`.
    pub turns_per_minute: Option<u32>,
    /// Decisions of one user at one process. Each decision of a batch counts.
    ///
    /// Value: integer. Default: `600`.
    pub decisions_per_minute: Option<u32>,
    /// Turns of one user at once, over all processes.
    ///
    /// Value: integer. Default: `10`.
    pub turns_per_user: Option<u32>,
    /// Turns of one tenant at once, over all processes.
    ///
    /// Value: integer. Default: `200`.
    pub turns_per_tenant: Option<u32>,
    /// Requests of one user that one process handles at once, waiting claims of workers and streams that begin included.
    ///
    /// Value: integer. Default: `1200`.
    pub open_requests_per_user: Option<u32>,
    /// Streams of one user at once at one process: turns, events, WebSockets.
    ///
    /// Value: integer. Default: `20`.
    pub streams_per_user: Option<u32>,
    /// Claims of workers of one user that wait at once at one process.
    ///
    /// Value: integer. Default: `1000`.
    pub claims_per_user: Option<u32>,
    /// Open connections of one process. Beyond it new connections wait.
    ///
    /// Value: integer. Default: `10000`.
    pub connections: Option<u32>,
    /// Open connections of one client address at one process. Beyond it the server closes new connections at once. An
    /// IPv6 network (/64) counts as one address.
    ///
    /// Value: integer. Default: none in both modes.
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
