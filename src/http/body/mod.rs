//! What requests and responses carry: strict bodies, chat bodies, pages of lists.

pub(in crate::http) mod chat_body;
pub(in crate::http) mod described;
pub(in crate::http) mod dialect_name;
pub(in crate::http) mod formats;
pub(in crate::http) mod known_query;
pub(in crate::http) mod nullable;
pub(in crate::http) mod page;
pub(in crate::http) mod page_message;
pub(in crate::http) mod partial_json;
pub(in crate::http) mod payload;
pub(in crate::http) mod posted;
pub(in crate::http) mod posted_part;
pub(in crate::http) mod posted_text;
pub(in crate::http) mod shown_messages;
pub(in crate::http) mod strict;
pub(in crate::http) mod templates;
pub(in crate::http) mod thread_ref;
pub(in crate::http) mod ui_body;
pub(in crate::http) mod unread_part;
pub(in crate::http) mod word;
