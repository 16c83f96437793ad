//! A hint for the authors of pages that cannot read their stream.

use holdpoint_core::turn::TurnEvent;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Warns, once in a process, when a held call goes to a page whose dialect is a guess. Nothing distinguishes the
/// requests of AI SDK 5 from those of 6, and a page of 5 fails at its first held call.
#[derive(Debug, Clone, Default)]
pub(crate) struct DialectHint {
    given: Arc<AtomicBool>,
}

impl DialectHint {
    /// Warns if the event is a hold.
    pub(in crate::http) fn see(&self, event: &TurnEvent<'_>) {
        if matches!(event, TurnEvent::Held(_)) && !self.given.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a page that names no dialect gets a held call as ui-v6, and AI SDK 5 fails at it: send the header \
                 x-stream-protocol, or set stream.default_ui_dialect"
            );
        }
    }
}
