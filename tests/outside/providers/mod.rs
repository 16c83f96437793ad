//! Model servers of others, and the state of their providers.

mod provider_state;
mod third_party;
