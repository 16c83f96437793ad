//! The tables: the columns that the program reads or writes.
//!
//! Each entity names the schema of its table (see `schema`). A query that is not built by its entity takes
//! `Entity.table_ref()`, because the entity itself gives such a query only the bare name of the table.

pub(super) mod accepted_definition;
pub(super) mod decision;
pub(super) mod delegation;
pub(super) mod endpoint;
pub(super) mod escalation;
pub(super) mod event;
pub(super) mod grant;
pub(super) mod link;
pub(super) mod listed_definition;
pub(super) mod message;
pub(super) mod run;
pub(super) mod sent_answer;
pub(super) mod sent_message;
pub(super) mod sign_in;
pub(super) mod step;
pub(super) mod thread;
pub(super) mod ticket_key;
pub(super) mod tool_call;
pub(super) mod tool_request;
pub(super) mod tool_request_vote;
pub(super) mod used_ticket;
