//! The console: the page at `/` on which people decide held calls.
//!
//! The page is the files of `src/console`, served as they are. It uses the public routes alone, and it has no rights of
//! its own.
//!
//! The files are ES modules of a browser, without a build step, a framework, or a rule about who may decide. `app`
//! chooses the view: the `list`, the `card` of a call, or one of `views`. `card` also has what is on a card and its dialogs, of
//! which `inert` guards the buttons that decide. `text` is the one way from a text to the page.

use holdpoint_core::json::hex::hex;
use poem::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use poem::http::{HeaderName, HeaderValue, StatusCode};
use poem::{IntoResponse, Request, Response};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The content security policy of the console: its own files, requests to this server alone, and no text that a browser
/// could read as markup or code.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; \
     trusted-types 'none'",
);
/// A page that opens the console gets no handle of its window.
const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// A browser asks each time whether its copy is current, so a new version of the server is a new console.
const REVALIDATED: HeaderValue = HeaderValue::from_static("no-cache");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the console.
struct File {
    path: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

#[cfg(feature = "console")]
macro_rules! file {
    ($path:expr, $media_type:expr, $name:literal) => {
        File { path: $path, media_type: $media_type, bytes: include_bytes!(concat!("../../console/", $name)) }
    };
    ($media_type:expr, $name:literal) => {
        file!(concat!("/console/", $name), $media_type, $name)
    };
}

/// Without the feature `console`, the server has no files of it.
#[cfg(not(feature = "console"))]
const FILES: &[File] = &[];

#[cfg(feature = "console")]
const FILES: &[File] = &[
    file!("/", HTML, "index.html"),
    file!(CSS, "style.css"),
    file!(SCRIPT, "api.js"),
    file!(SCRIPT, "app.js"),
    file!(SCRIPT, "background.js"),
    file!(SCRIPT, "batch.js"),
    file!(SCRIPT, "list.js"),
    file!(SCRIPT, "live.js"),
    file!(SCRIPT, "view.js"),
    file!(SCRIPT, "card/approve.js"),
    file!(SCRIPT, "card/bar.js"),
    file!(SCRIPT, "card/card.js"),
    file!(SCRIPT, "card/complete.js"),
    file!(SCRIPT, "card/delegate.js"),
    file!(SCRIPT, "card/edit.js"),
    file!(SCRIPT, "card/extend.js"),
    file!(SCRIPT, "card/headline.js"),
    file!(SCRIPT, "card/inert.js"),
    file!(SCRIPT, "card/outcome.js"),
    file!(SCRIPT, "card/parts.js"),
    file!(SCRIPT, "card/preview.js"),
    file!(SCRIPT, "card/remember.js"),
    file!(SCRIPT, "card/resolve.js"),
    file!(SCRIPT, "card/secrets.js"),
    file!(SCRIPT, "card/trail.js"),
    file!(SCRIPT, "card/waits.js"),
    file!(SCRIPT, "text/characters.js"),
    file!(SCRIPT, "text/json.js"),
    file!(SCRIPT, "text/marks.js"),
    file!(SCRIPT, "text/text.js"),
    file!(SCRIPT, "text/time.js"),
    file!(SCRIPT, "text/typed.js"),
    file!(SCRIPT, "text/values.js"),
    file!(SCRIPT, "views/definitions.js"),
    file!(SCRIPT, "views/grants.js"),
    file!(SCRIPT, "views/link.js"),
    file!(SCRIPT, "views/search.js"),
    file!(SCRIPT, "views/session.js"),
    file!(SCRIPT, "views/sessions.js"),
    file!(SCRIPT, "views/sign-in.js"),
    file!(SCRIPT, "views/sign-ins.js"),
    file!(SCRIPT, "views/tool-requests.js"),
    file!(SCRIPT, "views/webhooks.js"),
];

/// The paths of all files.
pub(in crate::http) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.path)
}

/// The entity tag of each file: a hash of its bytes.
static TAGS: LazyLock<Vec<Option<HeaderValue>>> = LazyLock::new(|| {
    let tag = |file: &File| HeaderValue::from_str(&format!("\"{}\"", hex(&Sha256::digest(file.bytes)))).ok();
    FILES.iter().map(tag).collect()
});

/// Returns the file at the path of a GET, or `None` if there is no file.
pub(in crate::http) fn answer(request: &Request) -> Option<Response> {
    let path = request.uri().path();
    let (file, tag) = FILES.iter().zip(&*TAGS).find(|(file, _)| file.path == path)?;
    let is_current = tag.as_ref().is_some_and(|tag| has(request, tag));
    let mut answer =
        if is_current { StatusCode::NOT_MODIFIED.into_response() } else { file.bytes.into_response() };
    let headers = answer.headers_mut();
    if !is_current {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.media_type));
    }
    headers.extend(tag.iter().map(|tag| (ETAG, tag.clone())));
    headers.insert(CACHE_CONTROL, REVALIDATED);
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(CROSS_ORIGIN_OPENER_POLICY, HeaderValue::from_static("same-origin"));
    Some(answer)
}

/// Whether the client has the file with this tag (RFC 9110, 13.1.2).
fn has(request: &Request, tag: &HeaderValue) -> bool {
    let if_none_match = request.headers().get_all(IF_NONE_MATCH).iter();
    let mut named = if_none_match.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    named.any(|named| named.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes())
}
