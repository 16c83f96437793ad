//! The database schema of holdpoint, embedded in the server and applied at its start.
//!
//! SQLite and Postgres share the tables; only the triggers exist in two versions. The schema repeats the
//! rules that the types of the program enforce, so that a bug, a second program or a manual statement cannot
//! write an invalid row: see `m0001_initial/`.
//!
//! Triggers count the messages and bytes of a thread in the statement that writes them (`counts_*.sql`), and set the
//! status of an answer when its run moves. The ordinals of the messages of a thread have no gaps. Triggers and CHECKs
//! refuse illegal transitions, changed evidence and deletions (`guards_*.sql`). On Postgres the CHECKs of `tool_calls`
//! are one trigger (`checks`): Postgres parses each CHECK again for every statement that writes to its table.
//!
//! Tables that belong to no thread: `event_sequence` has one row, the last `seq`. `ticket_keys` has one row, the key of
//! the tickets and of the cookies of sign-ins. `sign_ins` has the sessions at the console that the server keeps,
//! `endpoints` the cursor and the state of each endpoint. `listed_definitions` has what each MCP server says about its
//! tools now, `accepted_definitions` what was accepted of that; of the rows of a tool the last one is in force.

#![warn(missing_docs)]

pub use sea_orm_migration::{MigrationTrait, MigratorTrait};

mod m0001_initial;

/// Returns all migrations, oldest first.
#[derive(Debug)]
pub struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(m0001_initial::Initial)]
    }
}
