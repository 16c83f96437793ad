//! The lock by which a single process serves from a SQLite file.

use crate::StoreError;
use crate::sql::connect::{make_private_file, private, sqlite_file};
use sea_orm::sqlx;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqliteLockingMode};
use sea_orm::{DbErr, RuntimeErr};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// More than the length of any mark.
const MARK_BYTES_MAX: u64 = 128;
/// SQLite's code for a lock of another connection (the low byte of its extended codes).
const BUSY: u32 = 5;

/// Keeps other processes from serving from a SQLite file. Two servers would each reap the executions of the
/// other as those of a dead process.
///
/// The lock is on a file beside the database, because closing the database file itself would release SQLite's
/// locks on it. A deleted or replaced lock file excludes no process. Therefore the holder of the lock writes
/// the identity of the lock file into it. A process that finds no such mark starts only if no other process
/// has the database open.
#[derive(Debug, Clone)]
pub struct ProcessLock {
    _locked: Arc<LockedFile>,
}

/// A locked file. A child process that is being started has a copy of each open file until it becomes another
/// program. The lock of a closed file would last as long, so the file is unlocked and not only closed.
#[derive(Debug)]
struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Without this, the lock ends when the last copy of the file is closed.
        let _: io::Result<()> = self.0.unlock();
    }
}

impl ProcessLock {
    /// Locks the database of this URL. Returns `None` if several processes may serve, or if no other process
    /// can.
    ///
    /// # Errors
    /// [`StoreError::InUse`] or [`StoreError::MaybeInUse`] if another process holds the lock.
    pub async fn take(url: &str) -> Result<Option<Self>, StoreError> {
        make_private_file(url);
        // A file with several names has one lock.
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
        Ok(Some(Self { _locked: Arc::new(LockedFile(file)) }))
    }
}

/// Returns the identity of a file. While a process has the file open, no other file gets the same number.
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

/// Whether a process has a connection to the database, by SQLite's own locks: an exclusive lock needs all
/// others gone.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_released_lock_can_be_taken_while_a_child_process_has_a_copy_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", dir.path().join("rows.db").display());
        let lock = ProcessLock::take(&url).await.unwrap().unwrap();
        // A fork copies the descriptor, as this does.
        let copy = lock._locked.0.try_clone().unwrap();
        assert!(matches!(ProcessLock::take(&url).await, Err(StoreError::InUse)));
        drop(lock);
        assert!(ProcessLock::take(&url).await.unwrap().is_some());
        drop(copy);
    }
}
