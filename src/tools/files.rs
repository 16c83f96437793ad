//! The demo tools. They list, read, write and delete real files in one folder.
//!
//! The folder is held as a directory handle, and every path is resolved beneath it. So no path and no link
//! leads out of the folder, even if another process swaps a link while a tool runs.

use super::{CancellationToken, Permit, RiskLevel, Tool, ToolCallId, ToolError};
use cap_std::fs::{Dir, Metadata, OpenOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The largest file that the tools read, as a limit for the context of a model.
const READ_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of listed files.
const LISTED_MAX: usize = 1000;
/// Number of bytes written between two checks for cancellation.
const CHUNK_BYTES: usize = 64 * 1024;
/// The prefix of temporary files. Callers cannot use such names, and the list leaves them out.
const TEMPORARY: &str = ".holdpoint-";

/// A folder, and the right to use its contents.
#[derive(Debug, Clone)]
pub struct Files {
    root: Arc<Dir>,
}

/// Lists the files of the folder.
#[derive(Debug, Clone)]
pub struct ListFiles(pub Files);

/// Reads a file of the folder.
#[derive(Debug, Clone)]
pub struct ReadFile(pub Files);

/// Writes a file of the folder.
#[derive(Debug, Clone)]
pub struct WriteFile(pub Files);

/// Deletes a file of the folder.
#[derive(Debug, Clone)]
pub struct DeleteFile(pub Files);

// Models read the doc comments of the inputs: they are the descriptions in the schemas.

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {}

/// Which file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileInput {
    /// Path of the file, relative to the folder.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
}

/// Which file to write, and what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteInput {
    /// Path of the file, relative to the folder. Missing folders on the way are made.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// The whole new content. It replaces what the file held before.
    pub content: String,
}

impl Tool for ListFiles {
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str = "Lists the files in the folder and in the folders inside it.";
    const HIL: bool = false;
    const IDEMPOTENT: bool = true;
    const RISK: RiskLevel = RiskLevel::Low;
    type Input = ListInput;
    type Output = Value;

    async fn execute(&self, _: ListInput, permit: Permit<Self>) -> Result<Value, ToolError> {
        let files = self.0.clone();
        blocking(&permit, move |cancellation| files.list(cancellation)).await
    }
}

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str = "Reads a text file of the folder (UTF-8, at most 256 KiB).";
    const HIL: bool = false;
    const IDEMPOTENT: bool = true;
    const RISK: RiskLevel = RiskLevel::Low;
    type Input = FileInput;
    type Output = Value;

    async fn execute(&self, input: FileInput, permit: Permit<Self>) -> Result<Value, ToolError> {
        let files = self.0.clone();
        blocking(&permit, move |_| files.read(&input.path)).await
    }
}

impl Tool for WriteFile {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes a text file in the folder, in place of what it held before.";
    const HIL: bool = true;
    // A repeated write could undo later writes of others.
    const IDEMPOTENT: bool = false;
    const RISK: RiskLevel = RiskLevel::Medium;
    const HEADLINE: Option<&'static str> = Some("Write {path}?");
    type Input = WriteInput;
    type Output = Value;

    async fn execute(&self, input: WriteInput, permit: Permit<Self>) -> Result<Value, ToolError> {
        let files = self.0.clone();
        let temporary = format!("{TEMPORARY}{}", permit.tool_call_id());
        let write = move |cancellation: &CancellationToken| {
            files.write(&input.path, &input.content, &temporary, cancellation)
        };
        blocking(&permit, write).await
    }
}

impl Tool for DeleteFile {
    const NAME: &'static str = "delete_file";
    const DESCRIPTION: &'static str = "Deletes a file of the folder. It cannot be brought back.";
    const HIL: bool = true;
    // A repeated deletion could delete a new file of others.
    const IDEMPOTENT: bool = false;
    const RISK: RiskLevel = RiskLevel::High;
    const HEADLINE: Option<&'static str> = Some("Delete {path}?");
    type Input = FileInput;
    type Output = Value;

    async fn execute(&self, input: FileInput, permit: Permit<Self>) -> Result<Value, ToolError> {
        let files = self.0.clone();
        blocking(&permit, move |_| files.delete(&input.path)).await
    }
}

impl Files {
    /// Opens the folder at this path, and creates it if it does not exist. Removes temporary files that a
    /// killed server left.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created or opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        // The only use of a path outside of the handle.
        let authority = cap_std::ambient_authority();
        Dir::create_ambient_dir_all(path, authority)?;
        let files = Self { root: Arc::new(Dir::open_ambient_dir(path, authority)?) };
        files.remove_leftovers(PathBuf::from("."));
        Ok(files)
    }

    /// Removes temporary files that no process writes; a process locks the file that it writes. Files that
    /// cannot be opened or removed stay.
    fn remove_leftovers(&self, from: PathBuf) {
        let mut ahead = vec![from];
        while let Some(folder) = ahead.pop() {
            for entry in self.root.read_dir(&folder).into_iter().flatten().flatten() {
                let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else { continue };
                let path = folder.join(&name);
                if kind.is_dir() {
                    ahead.push(path);
                    continue;
                }
                let of_call = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY));
                if !kind.is_file() || of_call.is_none_or(|id| id.parse::<ToolCallId>().is_err()) {
                    continue;
                }
                let removed = self.root.open(&path).and_then(|file| match file.into_std().try_lock() {
                    Ok(()) => self.root.remove_file(&path).map(|()| true),
                    Err(_being_written) => Ok(false),
                });
                match removed {
                    Ok(true) => tracing::info!("removed an incomplete temporary file"),
                    Ok(false) => {}
                    Err(error) => tracing::warn!(%error, "could not remove an incomplete temporary file"),
                }
            }
        }
    }

    fn list(&self, cancellation: &CancellationToken) -> Result<Value, ToolError> {
        let mut files = Vec::new();
        // The next path is the last one. A folder's path ends in '/'. With this '/', siblings sort like all
        // paths below them, so the walk visits the files in path order and may stop early.
        let mut ahead = self.entries("")?;
        while let Some(path) = ahead.pop() {
            check_cancelled(cancellation)?;
            if path.ends_with('/') {
                ahead.append(&mut self.entries(&path)?);
            } else if files.len() == LISTED_MAX {
                return Ok(json!({ "files": files, "truncated": true }));
            } else {
                files.push(path);
            }
        }
        Ok(json!({ "files": files }))
    }

    /// Returns the files and folders in a folder, in descending order. `folder` is "" or ends in '/'. Links
    /// and names that no tool accepts are left out.
    fn entries(&self, folder: &str) -> Result<Vec<String>, ToolError> {
        let shown = if folder.is_empty() { "." } else { folder };
        let entries = match self.root.read_dir(shown) {
            Ok(entries) => entries,
            // The folder was removed after its parent was listed.
            Err(error) if error.kind() == ErrorKind::NotFound && !folder.is_empty() => return Ok(Vec::new()),
            Err(error) => return Err(failure(shown, &error)),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failure(shown, &error))?;
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
            let path = format!("{folder}{name}");
            if kind.is_dir() {
                paths.push(path + "/");
            } else if kind.is_file() && locate(&path).is_ok() {
                paths.push(path);
            }
        }
        paths.sort_unstable_by(|one, other| other.cmp(one));
        Ok(paths)
    }

    fn read(&self, path: &str) -> Result<Value, ToolError> {
        let location = locate(path)?.path();
        let failed = |error| failure(path, &error);
        let metadata = self.root.metadata(&location).map_err(failed)?;
        // The check precedes opening, because opening a pipe waits for a writer.
        expect_file(path, &metadata)?;
        let mut bytes = Vec::new();
        let most = u64::try_from(READ_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
        self.root.open(&location).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(failed)?;
        if bytes.len() > READ_BYTES_MAX {
            return Err(wrong(path, "is larger than 256 KiB, the most that can be read"));
        }
        match String::from_utf8(bytes) {
            // Content with NUL is not text, and a database may refuse it.
            Ok(content) if !content.contains('\0') => Ok(json!({ "path": path, "content": content })),
            _ => Err(wrong(path, "does not hold text in UTF-8")),
        }
    }

    /// Writes to the temporary file first, in the same folder, and then renames it. A concurrent reader sees
    /// either the old content or the new content.
    fn write(
        &self,
        path: &str,
        content: &str,
        temporary: &str,
        cancellation: &CancellationToken,
    ) -> Result<Value, ToolError> {
        let location = locate(path)?;
        let failed = |error| failure(path, &error);
        let folder = match self.root.open_dir(&location.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.root.create_dir_all(&location.folder).map_err(failed)?;
                self.root.open_dir(&location.folder)
            }
            opened => opened,
        }
        .map_err(failed)?;
        match folder.symlink_metadata(&location.name) {
            Ok(metadata) => expect_file(path, &metadata)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let file =
            folder.open_with(temporary, OpenOptions::new().write(true).create_new(true)).map_err(failed)?;
        let mut file = file.into_std();
        // The lock shows a starting server that the file is not a leftover. The lock ends with the process.
        let mut written = file.try_lock().map_err(|error| failed(error.into()));
        for chunk in content.as_bytes().chunks(CHUNK_BYTES) {
            written = written
                .and_then(|()| check_cancelled(cancellation))
                .and_then(|()| file.write_all(chunk).map_err(failed));
        }
        let written = written
            // Without the sync, a power failure could leave the new name with an empty file.
            .and_then(|()| file.sync_all().map_err(failed))
            .and_then(|()| check_cancelled(cancellation))
            .and_then(|()| folder.rename(temporary, &folder, &location.name).map_err(failed));
        if let Err(error) = written {
            // If the removal fails too, the next server that starts removes the file. Until then the name is
            // not listed.
            folder.remove_file(temporary).unwrap_or_default();
            return Err(error);
        }
        Ok(json!({ "path": path, "bytes": content.len() }))
    }

    fn delete(&self, path: &str) -> Result<Value, ToolError> {
        let location = locate(path)?.path();
        let failed = |error| failure(path, &error);
        let metadata = self.root.symlink_metadata(&location).map_err(failed)?;
        expect_file(path, &metadata)?;
        self.root.remove_file(&location).map_err(failed)?;
        Ok(json!({ "deleted": path }))
    }
}

/// A valid path: the folder ("." for the root) and the name of the file in it.
struct Location {
    folder: PathBuf,
    name: String,
}

impl Location {
    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

/// Checks a path by its text alone. The handle refuses most such paths too, with less precise errors. Only
/// the handle can judge links.
fn locate(path: &str) -> Result<Location, ToolError> {
    if path.chars().any(char::is_control) {
        return Err(ToolError::new(format!("{path:?} holds a control character, which no name here may")));
    }
    let (mut folder, mut name) = (PathBuf::from("."), None);
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => {
                let part = part.to_string_lossy().into_owned();
                if part.get(..TEMPORARY.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(TEMPORARY)) {
                    return Err(wrong(path, &format!("is a reserved name: \"{TEMPORARY}\" begins it")));
                }
                folder.extend(name.replace(part));
            }
            Component::CurDir => {}
            Component::ParentDir => return Err(wrong(path, "leads out of the folder: it holds \"..\"")),
            Component::RootDir | Component::Prefix(_) => {
                return Err(wrong(path, "leads out of the folder: it is not relative to it"));
            }
        }
    }
    match name {
        Some(name) if !path.ends_with('/') && !path.ends_with("/.") => Ok(Location { folder, name }),
        _ => Err(wrong(path, "does not name a file")),
    }
}

fn expect_file(path: &str, metadata: &Metadata) -> Result<(), ToolError> {
    if metadata.is_dir() {
        return Err(wrong(path, "is a folder, not a file"));
    }
    if metadata.is_file() { Ok(()) } else { Err(wrong(path, "is not an ordinary file")) }
}

fn wrong(path: &str, what: &str) -> ToolError {
    ToolError::new(format!("\"{path}\" {what}"))
}

/// Returns the system's error, without any path of the server.
fn failure(path: &str, error: &io::Error) -> ToolError {
    match error.kind() {
        ErrorKind::NotFound => ToolError::new(format!("there is no file \"{path}\"")),
        // The handle's own refusal has no error number of the operating system; a missing permission has one.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            wrong(path, "leads out of the folder")
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            wrong(path, "leads through something that is not a folder")
        }
        kind => wrong(path, &format!("cannot be used: {kind}")),
    }
}

/// Runs the work on a blocking thread, unless the call is cancelled before.
async fn blocking<T: Send + 'static, U: ?Sized>(
    permit: &Permit<U>,
    work: impl FnOnce(&CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let cancellation = permit.cancellation().clone();
    let work = move || check_cancelled(&cancellation).and_then(|()| work(&cancellation));
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ToolError::new("the work broke off and may be done in part")))
}

/// Returns an error if the call is cancelled. Nothing has been changed at this point.
fn check_cancelled(cancellation: &CancellationToken) -> Result<(), ToolError> {
    if cancellation.is_cancelled() {
        return Err(ToolError::new("the call was cancelled; nothing was changed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// A folder with a sibling file that must stay untouched.
    struct Ground {
        top: TempDir,
        files: Files,
    }

    fn ground() -> Ground {
        let top = TempDir::new().unwrap();
        let files = Files::open(&top.path().join("data/box")).unwrap();
        fs::write(top.path().join("data/secret.txt"), "secret").unwrap();
        Ground { top, files }
    }

    impl Ground {
        fn path(&self, path: &str) -> PathBuf {
            self.top.path().join("data/box").join(path)
        }

        fn write(&self, path: &str, content: &str) -> Result<Value, ToolError> {
            self.files.write(path, content, ".holdpoint-test", &CancellationToken::new())
        }

        fn list(&self) -> Result<Value, ToolError> {
            self.files.list(&CancellationToken::new())
        }

        /// Returns the errors of reading, writing and deleting at this path. Checks that the sibling is
        /// unchanged.
        fn refusals(&self, path: &str) -> [String; 3] {
            let refusals = [self.files.read(path), self.write(path, "overwritten"), self.files.delete(path)]
                .map(|refused| refused.unwrap_err().to_string());
            let data = self.top.path().join("data");
            assert_eq!(fs::read_to_string(data.join("secret.txt")).unwrap(), "secret");
            assert_eq!(fs::read_dir(&data).unwrap().count(), 2, "{path:?}");
            let texts = refusals.concat().replace(path, "");
            assert!(!texts.contains(&*data.to_string_lossy()), "{texts}");
            refusals
        }

        fn refused(&self, path: &str, what: &str) {
            let expected = format!("\"{path}\" {what}");
            for refusal in self.refusals(path) {
                assert_eq!(refusal, expected);
            }
        }
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let ground = ground();
        fs::create_dir(ground.path("sub")).unwrap();
        for path in ["../secret.txt", "sub/../../secret.txt", "./../secret.txt", "..", "sub/.."] {
            ground.refused(path, "leads out of the folder: it holds \"..\"");
        }
        let absolute = ground.top.path().join("data/secret.txt");
        for path in [absolute.to_str().unwrap(), "/", "//"] {
            ground.refused(path, "leads out of the folder: it is not relative to it");
        }
        for path in [".", "./", "sub/", "sub/."] {
            ground.refused(path, "does not name a file");
        }
        assert_eq!(locate("").err().unwrap().to_string(), "\"\" does not name a file");
        for refusal in ground.refusals("a\0/../../secret.txt") {
            assert!(refusal.ends_with("holds a control character, which no name here may"), "{refusal}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_link_leads_out_of_the_folder() {
        use std::os::unix::fs::symlink;
        let ground = ground();
        symlink("../secret.txt", ground.path("near")).unwrap();
        symlink(ground.top.path().join("data"), ground.path("far")).unwrap();
        ground.refused("far/secret.txt", "leads out of the folder");
        ground.refused("far/new/secret.txt", "leads out of the folder");
        let [read, write, delete] = ground.refusals("near");
        assert_eq!(read, "\"near\" leads out of the folder");
        assert_eq!([write, delete], ["\"near\" is not an ordinary file"; 2]);
        assert!(ground.path("near").is_symlink());
        assert_eq!(ground.list().unwrap(), json!({"files": []}));
    }

    #[test]
    fn a_file_is_written_replaced_read_and_deleted() {
        let ground = ground();
        let deep = "sub/deep/naïve 日本.txt";
        for path in ["a.txt", deep, "./b.txt"] {
            assert_eq!(ground.write(path, "one").unwrap(), json!({"path": path, "bytes": 3}));
            assert_eq!(ground.write(path, "zwölf").unwrap(), json!({"path": path, "bytes": 6}));
            let read = ground.files.read(path).unwrap();
            assert_eq!(read, json!({"path": path, "content": "zwölf"}));
        }
        assert_eq!(ground.list().unwrap(), json!({"files": ["a.txt", "b.txt", deep]}));
        assert_eq!(ground.files.delete(deep).unwrap(), json!({"deleted": deep}));
        let left = fs::read_dir(ground.path("sub/deep")).unwrap().count();
        assert_eq!(left, 0, "only the file goes, and nothing temporary stays");
    }

    #[test]
    fn an_impossible_operation_is_refused_with_its_reason() {
        let ground = ground();
        ground.write("sub/a.txt", "kept").unwrap();
        ground.refused("sub", "is a folder, not a file");
        ground.refused("sub/a.txt/b", "leads through something that is not a folder");
        ground.refused("sub/.Holdpoint-1", "is a reserved name: \".holdpoint-\" begins it");
        for refused in [ground.files.read("x"), ground.files.delete("x")] {
            assert_eq!(refused.unwrap_err().to_string(), "there is no file \"x\"");
        }
        let long = ground.write(&"x".repeat(300), "").unwrap_err().to_string();
        assert!(long.contains("cannot be used"), "{long}");
        assert_eq!(ground.files.read("sub/a.txt").unwrap()["content"], "kept");
    }

    #[test]
    fn a_call_that_is_cancelled_leaves_the_files_as_they_were() {
        let ground = ground();
        ground.write("a.txt", "kept").unwrap();
        let cancellation = CancellationToken::new();
        cancellation.cancel();
        let refusals = ["a.txt", "new.txt"].map(|path| {
            ground.files.write(path, "lost", ".holdpoint-test", &cancellation).unwrap_err().to_string()
        });
        assert_eq!(refusals, ["the call was cancelled; nothing was changed"; 2]);
        assert!(ground.files.list(&cancellation).is_err());
        assert_eq!(fs::read_dir(ground.path(".")).unwrap().count(), 1);
        assert_eq!(ground.files.read("a.txt").unwrap()["content"], "kept");
    }

    #[test]
    fn temporary_files_of_a_killed_server_are_removed_at_start_and_those_in_use_are_kept() {
        let ground = ground();
        fs::create_dir_all(ground.path("sub/deep")).unwrap();
        let [left, written] =
            ["01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"]
                .map(|id| ground.path(&format!("sub/deep/{TEMPORARY}{id}")));
        let [own, named] = [ground.path("sub/own.txt"), ground.path(".holdpoint-notes")];
        for path in [&left, &written, &own, &named] {
            fs::write(path, "half").unwrap();
        }
        let writer = fs::File::open(&written).unwrap();
        writer.try_lock().unwrap();
        Files::open(&ground.path(".")).unwrap();
        assert_eq!([&left, &written, &own, &named].map(|path| path.exists()), [false, true, true, true]);
        drop(writer);
        Files::open(&ground.path(".")).unwrap();
        assert!(!written.exists());
    }

    #[test]
    fn only_text_of_a_fitting_size_is_read() {
        let ground = ground();
        let read = || ground.files.read("a").map_err(|error| error.to_string());
        let largest = "x".repeat(READ_BYTES_MAX);
        ground.write("a", &largest).unwrap();
        assert_eq!(read().unwrap()["content"], *largest);
        ground.write("a", &(largest + "x")).unwrap();
        assert_eq!(read().unwrap_err(), "\"a\" is larger than 256 KiB, the most that can be read");
        for bytes in [b"\xff".as_slice(), b"a\0b"] {
            fs::write(ground.path("a"), bytes).unwrap();
            assert_eq!(read().unwrap_err(), "\"a\" does not hold text in UTF-8");
        }
    }

    #[test]
    fn a_list_is_sorted_and_bounded() {
        let ground = ground();
        let mut paths = ["b", "a/b", "a-b", "a.txt", "ab/c", "a/b.d/e", "a/b-c"];
        for path in paths {
            ground.write(path, "").unwrap();
        }
        fs::write(ground.path(".holdpoint-left"), "behind by a crash").unwrap();
        paths.sort_unstable();
        assert_eq!(ground.list().unwrap(), json!({ "files": paths }));
        for n in paths.len()..LISTED_MAX {
            fs::write(ground.path(&format!("c{n:04}")), "").unwrap();
        }
        assert_eq!(ground.list().unwrap().get("truncated"), None);
        fs::write(ground.path("aa"), "").unwrap();
        let listed = ground.list().unwrap();
        assert_eq!(listed["truncated"], true);
        let files = listed["files"].as_array().unwrap();
        assert_eq!((files.len(), &files[LISTED_MAX - 1]), (LISTED_MAX, &json!("c0998")));
    }

    #[test]
    fn the_schemas_describe_the_accepted_inputs() {
        let schema = schemars::schema_for!(FileInput).to_value();
        let path = json!({
            "type": "string",
            "description": "Path of the file, relative to the folder.",
            "minLength": 1,
            "maxLength": 1024,
        });
        assert_eq!(schema["properties"], json!({ "path": path }));
        assert_eq!(schema["additionalProperties"], false);
        assert!(serde_json::from_value::<ListInput>(json!({"path": "x"})).is_err());
    }
}
