//! Streams: what a turn says, as bytes, and messages as pages hold them once they have read those bytes.

pub(crate) mod data_v1;
#[cfg(test)]
mod fuzz_data_v1;
mod v4_message;

pub(crate) use v4_message::v4_message;
