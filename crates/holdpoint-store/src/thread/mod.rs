//! Threads, their sessions and transcripts.

pub(crate) mod extents;
pub(crate) mod fence;
pub(crate) mod locked_thread;
pub(crate) mod purge;
pub(crate) mod sessions;
pub(crate) mod threads;
pub(crate) mod transcript;
