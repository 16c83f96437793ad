//! Turns: their streams, the pages that join them, and what the model reads.

mod attach;
mod attach_ui;
mod history;
mod json;
mod streamed;
mod tail;
