//! Real clients of the AI SDK against the server: the messages that a page holds after a stream, and after a
//! reload.

mod attaching;
mod data_part;
mod decided_elsewhere;
mod deciding;
mod edits;
mod failed_turns;
mod handlers;
mod hostile;
mod late_answers;
mod native_approval;
mod node;
mod other_parts;
mod output;
mod package;
mod package_cards;
mod package_client;
mod package_types;
mod page;
mod previews;
mod recorded;
mod reloaded;
mod sub_agents;
