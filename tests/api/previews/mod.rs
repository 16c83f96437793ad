//! Previews: what a tool says, before the decision, that a call would do.

mod edits;
mod holds;
mod kept;

use holdpoint_testkit::previews::{Preview, World, edit, hash, is_stale, preview, preview_hash, server};
