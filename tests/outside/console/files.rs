//! The files of the console, and the tool with long inputs for its views.

use holdpoint::tools::{Permit, Tool, ToolError};
use holdpoint_testkit::{Embedded, token};
use std::path::Path;

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
pub(super) struct Text {
    /// The text of the letter.
    #[expect(dead_code, reason = "the letter is never sent")]
    text: String,
}

/// A tool that requires an approval, and takes a text of any length.
pub(super) struct Letter;

impl Tool for Letter {
    const NAME: &'static str = "letter";
    const DESCRIPTION: &'static str = "Sends a letter.";
    const HIL: bool = true;
    type Input = Text;
    type Output = ();

    async fn execute(&self, _input: Text, _permit: Permit<Self>) -> Result<(), ToolError> {
        Ok(())
    }
}

/// The files of the console, with their paths and media types.
fn files() -> Vec<(String, &'static str, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console");
    let in_folder = |folder: &Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, mut paths): (Vec<_>, Vec<_>) = in_folder(&root).partition(|path| path.is_dir());
    paths.extend(folders.iter().flat_map(|folder| in_folder(folder)));
    let files = paths.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let media_type = match path.extension().unwrap().to_str().unwrap() {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            other => panic!("{other}"),
        };
        let at = if name == "index.html" { "/".to_owned() } else { format!("/console/{name}") };
        (at, media_type, std::fs::read(path).unwrap())
    });
    files.collect()
}

#[tokio::test]
async fn e15_each_file_is_served_as_it_is_and_revalidated() {
    let app = Embedded::with(token::with_tokens).await;
    for (path, media_type, bytes) in files() {
        let get = || app.client.http.get(app.client.url(&path));
        let answer = get().send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), media_type, "{path}");
        assert_eq!(header("cache-control"), "no-cache", "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("cross-origin-opener-policy"), "same-origin", "{path}");
        let policy = header("content-security-policy");
        for rule in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"]
        {
            assert!(policy.split("; ").any(|part| part == rule), "{path}: {policy}");
        }
        let tag = header("etag");
        assert!(answer.bytes().await.unwrap() == bytes, "{path}: other bytes than the file");
        for (requested, status) in [(tag.as_str(), 304), (&format!("\"x\", W/{tag}"), 304), ("\"x\"", 200)] {
            let again = get().header("if-none-match", requested).send().await.unwrap();
            assert_eq!(again.status(), status, "{path} {requested}");
            assert_eq!(again.headers()["etag"], tag, "{path}");
            assert_eq!(again.bytes().await.unwrap().is_empty(), status == 304, "{path} {requested}");
        }
    }
}

#[tokio::test]
async fn e14_only_the_exact_paths_of_the_files_need_no_token() {
    let app = Embedded::with(token::with_tokens).await;
    for path in
        ["/console", "/console/", "/console/index.html", "/console/app.js/", "/console/nothing.js", "/api/"]
    {
        assert_eq!(app.client.get(path).await.status, 401, "{path}");
    }
    for (path, ..) in files() {
        let refused = app.client.http.post(app.client.url(&path)).send().await.unwrap();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["allow"]),
            (405, &"GET, HEAD".parse().unwrap()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn without_the_console_the_root_leads_to_the_documentation() {
    let app = Embedded::with(|config| config.server.console = Some(false)).await;
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let root = app.client.send(client.get(app.client.url("/"))).await;
    assert_eq!((root.status, root.header("location")), (307, Some("/docs")));
    for (path, ..) in files().into_iter().filter(|(path, ..)| path != "/") {
        assert_eq!(app.client.get(&path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_server_that_lets_other_machines_in_without_tokens_has_no_console_unless_it_is_asked_for() {
    for (console, status) in [(None, 404), (Some(true), 200)] {
        let app = Embedded::with(|config| {
            config.auth.allow_insecure = true;
            config.server.docs = Some(false);
            config.server.console = console;
        })
        .await;
        assert_eq!(app.client.http.get(app.client.url("/")).send().await.unwrap().status(), status);
    }
}

/// A page of another site may link to the console. It can neither embed it nor read it.
#[tokio::test]
async fn e15_a_page_of_another_site_may_link_to_the_console_alone() {
    let app = Embedded::start().await;
    for (path, mode, status) in [
        ("/", "navigate", 200),
        ("/", "no-cors", 403),
        ("/console/app.js", "no-cors", 403),
        ("/console/app.js", "navigate", 403),
    ] {
        let request = app.client.http.get(app.client.url(path));
        let request = request.header("sec-fetch-site", "cross-site").header("sec-fetch-mode", mode);
        assert_eq!(request.send().await.unwrap().status(), status, "{path} {mode}");
    }
}

#[test]
fn the_files_are_small() {
    let sizes: Vec<usize> = files().into_iter().map(|(.., bytes)| bytes.len()).collect();
    assert!(sizes.iter().sum::<usize>() <= 180_000, "{sizes:?}");
}
