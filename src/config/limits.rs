//! `[limits]`: how long and how many things may be.

use super::{AuthMode, ConfigError, wrong};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// `agent_depth`, unless it is set.
const AGENT_DEPTH: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);
/// `agents_per_run`, unless it is set.
const AGENTS_PER_RUN: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);

/// `[limits]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// `body_bytes`: longest body.
    pub body_bytes: usize,
    /// `chat_body_bytes`: longest body of a chat, in which pages post their whole conversation.
    pub chat_body_bytes: usize,
    /// `bodies_in_flight_bytes`: all bodies that one process reads or has yet to parse.
    pub bodies_in_flight_bytes: usize,
    /// `message_bytes`: longest message of a user.
    pub message_bytes: usize,
    /// `thread_bytes`: how much a thread holds: words, arguments and results. A thread that holds as much takes no new
    /// message, and a run in it opens no step.
    pub thread_bytes: u64,
    /// `thread_messages`: most messages of a thread, those that were cut off too.
    pub thread_messages: u64,
    /// `page_bytes`: how long a page of a list gets; one item is on it whatever its length.
    pub page_bytes: usize,
    /// `args_bytes`: longest arguments of one call.
    pub args_bytes: usize,
    /// `result_bytes`: longest answer of a call for the model; a longer one is cut and marked.
    pub result_bytes: usize,
    /// `json_depth`: deepest nesting of arguments.
    pub json_depth: usize,
    /// `calls_per_step`: most calls of one model answer.
    pub calls_per_step: usize,
    /// `pending_per_thread`: most calls of a thread that wait for a person.
    pub pending_per_thread: u64,
    /// `agent_depth`: how deep sub-agents may be nested: 1 has none of them begin another.
    pub agent_depth: NonZeroU32,
    /// `agents_per_run`: most sub-agents of one run, those that its sub-agents begin included.
    pub agents_per_run: NonZeroU32,
    /// `batch`: most new decisions of one request.
    pub batch: usize,
    /// `stream_buffer_bytes`: how much of a stream is written ahead for one client, about.
    pub stream_buffer_bytes: usize,
    /// `requests_per_minute`: of one user, at one process. This and the following: 0 is no limit, and so is their
    /// absence in mode `none`.
    pub requests_per_minute: Option<u32>,
    /// `turns_per_minute`: how often one user may have the model asked, at one process.
    pub turns_per_minute: Option<u32>,
    /// `decisions_per_minute`: of one user, at one process.
    pub decisions_per_minute: Option<u32>,
    /// `turns_per_user`: turns of one user that are under way at once, over all processes.
    pub turns_per_user: Option<u32>,
    /// `turns_per_tenant`: the same, of a tenant.
    pub turns_per_tenant: Option<u32>,
    /// `streams_per_user`: streams that one user reads at once, at one process.
    pub streams_per_user: Option<u32>,
    /// `connections`: open ones of one process. The next wait until one ends.
    pub connections: Option<u32>,
    /// `connections_per_ip`: of one address, at one process; a network of IPv6 (/64) is one. The next are closed at
    /// once. No limit unless it is set, in any mode: behind a proxy, which TLS takes, all come from its address,
    /// whatever its headers say.
    pub connections_per_ip: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        const KIB: usize = 1024;
        Self {
            body_bytes: 256 * KIB,
            chat_body_bytes: 16 * KIB * KIB,
            bodies_in_flight_bytes: 128 * KIB * KIB,
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
            streams_per_user: None,
            connections: None,
            connections_per_ip: None,
        }
    }
}

/// The limits that count, in force. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) requests_per_minute: Option<NonZeroU32>,
    pub(crate) turns_per_minute: Option<NonZeroU32>,
    pub(crate) decisions_per_minute: Option<NonZeroU32>,
    pub(crate) turns_per_user: Option<NonZeroU32>,
    pub(crate) turns_per_tenant: Option<NonZeroU32>,
    pub(crate) streams_per_user: Option<NonZeroU32>,
    pub(crate) connections: Option<NonZeroU32>,
    pub(crate) connections_per_ip: Option<NonZeroU32>,
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let longest = self.body_bytes.max(self.chat_body_bytes);
        if self.bodies_in_flight_bytes < longest {
            let why = format!("expected at least {longest}, the longest body: it could never be read");
            return wrong("limits.bodies_in_flight_bytes", why);
        }
        // A question and its answer.
        if self.thread_messages < 2 {
            return wrong("limits.thread_messages", "expected at least 2");
        }
        let bytes = u64::try_from(self.message_bytes).unwrap_or(u64::MAX);
        if bytes == 0 {
            return wrong("limits.message_bytes", "expected at least 1");
        }
        if self.thread_bytes <= bytes {
            let why = format!("expected more than limits.message_bytes, {bytes}: no such message would fit");
            return wrong("limits.thread_bytes", why);
        }
        Ok(())
    }

    /// The same, with what is in force where a key is absent.
    pub(super) fn in_force(&self, mode: AuthMode) -> Self {
        let caps = self.caps(mode);
        let shown = |cap: Option<NonZeroU32>| Some(cap.map_or(0, NonZeroU32::get));
        Self {
            requests_per_minute: shown(caps.requests_per_minute),
            turns_per_minute: shown(caps.turns_per_minute),
            decisions_per_minute: shown(caps.decisions_per_minute),
            turns_per_user: shown(caps.turns_per_user),
            turns_per_tenant: shown(caps.turns_per_tenant),
            streams_per_user: shown(caps.streams_per_user),
            connections: shown(caps.connections),
            connections_per_ip: shown(caps.connections_per_ip),
            ..self.clone()
        }
    }

    /// What counts in this mode: where there is one user, who is the operator, nothing does unless it is set.
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
            streams_per_user: cap(self.streams_per_user, 20),
            connections: cap(self.connections, 10_000),
            connections_per_ip: cap(self.connections_per_ip, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(caps: Caps) -> [u32; 8] {
        [
            caps.requests_per_minute,
            caps.turns_per_minute,
            caps.decisions_per_minute,
            caps.turns_per_user,
            caps.turns_per_tenant,
            caps.streams_per_user,
            caps.connections,
            caps.connections_per_ip,
        ]
        .map(|cap| cap.map_or(0, NonZeroU32::get))
    }

    #[test]
    fn what_counts_is_limited_where_there_are_strangers_or_where_it_is_said() {
        let limits = Limits::default();
        assert_eq!(numbers(limits.caps(AuthMode::None)), [0; 8]);
        assert_eq!(numbers(limits.caps(AuthMode::Jwt)), [600, 60, 600, 10, 200, 20, 10_000, 0]);
        for mode in [AuthMode::None, AuthMode::Jwt] {
            let set = Limits {
                requests_per_minute: Some(1),
                turns_per_minute: Some(2),
                decisions_per_minute: Some(3),
                turns_per_user: Some(4),
                turns_per_tenant: Some(5),
                streams_per_user: Some(6),
                connections: Some(7),
                connections_per_ip: Some(0),
                ..Limits::default()
            };
            assert_eq!(numbers(set.caps(mode)), [1, 2, 3, 4, 5, 6, 7, 0], "{mode:?}");
        }
    }
}
