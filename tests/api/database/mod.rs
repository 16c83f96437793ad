//! The database: what it accepts, what it refuses, and what the work of a server costs there.

mod budgets;
mod distributed;
mod durability;
mod indexes;
mod long_history;
mod own_schema;
mod pool;
mod schema;
mod transitions;
mod written;
