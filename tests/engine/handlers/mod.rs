//! Approval handlers: the process asks its own handler about a held call before the turn ends.

mod answers;
mod concurrent;
mod construction;
mod ending;
mod processes;
mod streams;
mod terminal;

use holdpoint_testkit::handlers::{answered, decided, desk, named, office, pays, words};
