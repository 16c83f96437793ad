//! Real clients of the AI SDK against the server: what a page holds when a stream has ended, and what it gets when
//! it is loaded anew.

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
