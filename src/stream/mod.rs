//! Streams: what a turn says, as bytes.

pub(crate) mod data_v1;
