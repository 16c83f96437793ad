//! Real clients of the AI SDK against the server: the messages that a page holds after a stream, and after a
//! reload.

mod attaching;
mod beside;
mod breaking;
mod changing;
mod data_part;
mod deciding;
mod handled;
mod hostile;
mod native;
mod node;
mod page;
mod racing;
mod recorded;
mod reloaded;
mod saying;
mod sub_agents;
