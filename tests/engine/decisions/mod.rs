//! Decisions about held calls: who may decide, what counts, and what the model reads then.

mod batch;
mod decide;
mod duplicates;
mod expiry_resumes;
mod hashes;
mod linearizability;
mod may_approve;
mod notes;
mod one_continuation;
mod quorum;
mod races;
mod rejected_before;
mod surfaces;
mod tool_changes;
mod while_pending;
