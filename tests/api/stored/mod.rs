//! Stored values can be read back, and an unreadable row affects no other row.

mod outputs;
mod rows;
