//! The `Allow` header: the methods of a resource, in responses that refuse a method (RFC 9110, 15.5.6).

use super::{document, error};
use poem::Response;
use poem::http::header::ALLOW;
use poem::http::{HeaderValue, Method};
use serde_json::Value;

/// The methods of every path.
#[derive(Debug)]
pub(super) struct Allowed(Vec<(Vec<Segment>, HeaderValue)>);

#[derive(Debug)]
enum Segment {
    Word(String),
    Any,
}

impl Allowed {
    /// The methods in the document, and GET for the paths in `beside`.
    pub(super) fn of(document: &Value, beside: &[&str]) -> Self {
        let beside = beside.iter().map(|path| (*path, vec![Method::GET]));
        let all = document::methods(document).chain(beside);
        Self(all.filter_map(|(path, methods)| Some((segments(path), value(path, &methods)?))).collect())
    }

    /// Adds `Allow` with the methods of this path to a response that refuses the method.
    pub(super) fn tell(&self, path: &str, response: &mut Response) {
        if let Some(methods) = self.at(path).filter(|_| error::refuses_method(response)) {
            response.headers_mut().insert(ALLOW, methods);
        }
    }

    fn at(&self, path: &str) -> Option<HeaderValue> {
        let path = path.strip_prefix("/api").filter(|rest| rest.starts_with('/')).unwrap_or(path);
        let path: Vec<&str> = path.split('/').collect();
        let fits = |pattern: &[Segment]| {
            pattern.len() == path.len()
                && pattern.iter().zip(&path).all(|(segment, name)| match segment {
                    Segment::Word(word) => word == name,
                    Segment::Any => true,
                })
        };
        // A literal segment takes precedence over a parameter.
        let words = |pattern: &[Segment]| pattern.iter().filter(|it| matches!(it, Segment::Word(_))).count();
        let found = self.0.iter().filter(|(pattern, _)| fits(pattern));
        found.max_by_key(|(pattern, _)| words(pattern)).map(|(_, methods)| methods.clone())
    }
}

fn segments(path: &str) -> Vec<Segment> {
    let segment =
        |name: &str| if name.starts_with('{') { Segment::Any } else { Segment::Word(name.to_owned()) };
    path.split('/').map(segment).collect()
}

fn value(path: &str, methods: &[Method]) -> Option<HeaderValue> {
    let mut names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    // A GET of a chat can start a turn, so HEAD is not allowed there.
    if names.contains(&"GET") && !path.starts_with("/qa/chat_streamed") {
        names.push("HEAD");
    }
    HeaderValue::from_str(&names.join(", ")).ok()
}
