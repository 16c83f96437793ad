//! The database schema of holdpoint, embedded in the server and applied at its start.
//!
//! SQLite and Postgres share the tables; only the triggers exist in two versions. The schema repeats the
//! rules that the types of the program enforce, so that a bug, a second program or a manual statement cannot
//! write an invalid row: see `m0001_initial/`.

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
