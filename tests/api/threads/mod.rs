//! Threads and sessions: their routes, their names, and threads of any length.

mod counted;
mod full;
mod long;
mod many;
mod names;
mod resource;
mod session_list;
mod statuses;
