//! The database schema of holdpoint, embedded in the server and run at its start.
//!
//! The same tables stand on SQLite and on Postgres; only the guard triggers are written twice. What the
//! program's types forbid is forbidden here once more, so that a bug, a second program or a hand at a
//! prompt cannot write what must not be: see `m0001_initial/`.

pub use sea_orm_migration::{MigrationTrait, MigratorTrait};

mod m0001_initial;

/// All migrations, oldest first.
#[derive(Debug)]
pub struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(m0001_initial::Initial)]
    }
}
