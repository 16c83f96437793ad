//! The folders and the programs of the build that the tests belong to.

use std::path::{Path, PathBuf};

/// With `postgres`, tests without a required database run on Postgres. With any other value, on SQLite.
pub(crate) const CHOICE: &str = "TEST_DATABASE";

/// The folder or the file of the repository with this path.
pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap().join(path)
}

/// The folder of the built programs: it has the folder `deps` with the test program that runs.
fn programs() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(2).expect("a test program is in target/<profile>/deps").to_owned()
}

/// The built program of this name, of the profile and the target of the test.
pub fn built(program: &str) -> PathBuf {
    let path = programs().join(program);
    assert!(path.is_file(), "{} is missing: build it first with `cargo build --workspace`", path.display());
    path
}

/// The folder of the files that tests leave for people: `CARGO_TARGET_TMPDIR` of a test.
pub fn temporary() -> PathBuf {
    programs().parent().expect("the programs are in target/<profile>").join("tmp")
}

/// The folder of the files that the tests of this process share. The tests run on both databases at once.
#[expect(clippy::disallowed_methods, reason = "says how to test; no part of the program's configuration")]
pub fn scratch() -> PathBuf {
    temporary().join(std::env::var(CHOICE).unwrap_or_else(|_| "sqlite".to_owned()))
}
