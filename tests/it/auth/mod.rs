//! Who calls, and what a stranger gets.

mod secret;
