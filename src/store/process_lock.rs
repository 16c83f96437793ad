//! One process serves from a SQLite file.

use super::StoreError;
use super::connect::{make_private_file, private, sqlite_file};
use sea_orm::sqlx;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqliteLockingMode};
use sea_orm::{DbErr, RuntimeErr};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any mark.
const MARK_BYTES_MAX: u64 = 128;
/// SQLite's code where another connection has a lock (the low byte of its extended codes).
const BUSY: u32 = 5;

/// Keeps other processes from serving from a SQLite file for as long as it is there: two would each take what the other
/// runs for what a dead one left behind.
///
/// It is a lock on a file beside the database: closing the database's own file would let go of SQLite's locks on it. A
/// lock file that was deleted or replaced keeps out no process. So the holder of the lock writes into the file which file
/// it is, and a process that finds no such mark begins only if no other process has the database open.
#[derive(Debug, Clone)]
pub(crate) struct ProcessLock {
    _locked: Arc<File>,
}

impl ProcessLock {
    /// Takes the place of the one that serves from this database; `None` where there may be many, or no other can be.
    ///
    /// # Errors
    /// [`StoreError::InUse`] or [`StoreError::MaybeInUse`] if another process has it.
    pub(crate) async fn take(url: &str) -> Result<Option<Self>, StoreError> {
        make_private_file(url);
        // One that has several names has one lock.
        let Some(database) = sqlite_file(url).and_then(|path| path.canonicalize().ok()) else {
            return Ok(None);
        };
        let mut path = database.clone().into_os_string();
        path.push(".lock");
        let path = Path::new(&path);
        let shown = || path.display().to_string();
        let failed = |why| StoreError::LockFile { path: shown(), why };
        let mut file = private().read(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse),
            Err(TryLockError::Error(why)) => return Err(failed(why)),
        }
        if !is_marked(&mut file).map_err(failed)? {
            if is_open(&database).await? {
                return Err(StoreError::MaybeInUse { path: shown() });
            }
            mark(&mut file).map_err(failed)?;
        }
        Ok(Some(Self { _locked: Arc::new(file) }))
    }
}

/// Which file it is. As long as a process has it open no other file is given the same number.
fn own_mark(file: &File) -> io::Result<String> {
    let data = file.metadata()?;
    Ok(format!("{}:{}\n", data.dev(), data.ino()))
}

fn is_marked(file: &mut File) -> io::Result<bool> {
    let mut found = Vec::new();
    file.take(MARK_BYTES_MAX).read_to_end(&mut found)?;
    Ok(found == own_mark(file)?.as_bytes())
}

fn mark(file: &mut File) -> io::Result<()> {
    let mark = own_mark(file)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(mark.as_bytes())
}

/// Whether a process has a connection to the database, by SQLite's own locks: alone it may be locked as a whole.
async fn is_open(database: &Path) -> Result<bool, StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .locking_mode(SqliteLockingMode::Exclusive)
        .busy_timeout(Duration::ZERO);
    let alone = async {
        let mut connection = sqlx::ConnectOptions::connect(&options).await?;
        sqlx::Executor::execute(&mut connection, "SELECT count(*) FROM sqlite_master").await?;
        sqlx::Connection::close(connection).await
    };
    match alone.await {
        Ok(()) => Ok(false),
        Err(sqlx::Error::Database(error)) if is_busy(error.as_ref()) => Ok(true),
        Err(error) => Err(DbErr::Conn(RuntimeErr::SqlxError(Arc::new(error))).into()),
    }
}

fn is_busy(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == BUSY)
}
