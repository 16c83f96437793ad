//! The `Allow` header: the methods of a resource, in responses that refuse a method (RFC 9110, 15.5.6).

use crate::http::auth::STEPS;
use crate::http::body::templates::Templates;
use crate::http::{document, failure::error};
use poem::Response;
use poem::http::header::ALLOW;
use poem::http::{HeaderValue, Method};
use serde_json::Value;

/// The methods of every path.
#[derive(Debug)]
pub(in crate::http) struct AllowedMethods(Templates<HeaderValue>);

impl AllowedMethods {
    /// The methods in the document, and those of the paths that it does not have.
    pub(in crate::http) fn of(
        document: &Value,
        undocumented: impl Iterator<Item = (&'static str, Method)>,
    ) -> Self {
        let undocumented = undocumented.map(|(path, method)| (path, vec![method]));
        let of_document = document::operations(document).map(|(path, operations)| {
            (path, operations.into_iter().map(|(method, _)| method).collect::<Vec<_>>())
        });
        let all = of_document.chain(undocumented);
        Self(Templates::of(all.filter_map(|(path, methods)| Some((path, value(path, &methods)?)))))
    }

    /// Adds `Allow` with the methods of this path to a response that refuses the method.
    pub(in crate::http) fn add_header(&self, path: &str, response: &mut Response) {
        if let Some(methods) = self.0.at(path).filter(|_| error::refuses_method(response)) {
            response.headers_mut().insert(ALLOW, methods.clone());
        }
    }
}

fn value(path: &str, methods: &[Method]) -> Option<HeaderValue> {
    let mut names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    // A GET of a chat can start a turn, and one of a sign-in uses up its code, so HEAD is not allowed there.
    let changes_something = path.starts_with("/qa/chat_streamed") || STEPS.contains(&path);
    if names.contains(&"GET") && !changes_something {
        names.push("HEAD");
    }
    HeaderValue::from_str(&names.join(", ")).ok()
}
