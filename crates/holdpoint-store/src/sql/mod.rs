//! The connections, the transactions and the building blocks of statements.

pub(crate) mod batch;
pub(crate) mod cells;
pub(crate) mod commit_hook;
pub(crate) mod connect;
pub(crate) mod newest;
pub(crate) mod notify;
pub(crate) mod paging;
pub(crate) mod parts;
pub(crate) mod pool;
pub(crate) mod process_lock;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod transaction;
pub(crate) mod tx;
pub(crate) mod union;
pub(crate) mod views;
pub(crate) mod with;
pub(crate) mod words;
