//! The query parameters of the routes. An unknown one is refused, because a misspelt filter would silently show
//! everything.

use crate::http::body::templates::{Templates, without_api};
use crate::http::document;
use crate::http::failure::error::ApiError;
use poem::Request;
use poem::http::Method;
use serde_json::Value;

/// The query parameters of every operation of the document, and of the WebSocket.
#[derive(Debug)]
pub(in crate::http) struct KnownQuery(Templates<Vec<(Method, Vec<String>)>>);

/// The WebSocket, which an OpenAPI document cannot describe, and its parameters.
const UNDOCUMENTED: (&str, &[&str]) = ("/ws", &["ticket"]);
/// The routes that take further parameters: the AI SDK builds the addresses of its requests.
const LENIENT: &str = "/qa/";

impl KnownQuery {
    /// The parameters in the document.
    pub(in crate::http) fn of(document: &Value) -> Self {
        let of_document = document::operations(document).map(|(path, operations)| {
            let names = |operation| document::query_names(operation).map(str::to_owned).collect();
            let operations = operations.into_iter().map(|(method, operation)| (method, names(operation)));
            (path, operations.collect())
        });
        let (path, names) = UNDOCUMENTED;
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self(Templates::of(of_document.chain([(path, vec![(Method::GET, names)])])))
    }

    /// Refuses a request with a parameter that its route does not have.
    pub(in crate::http) fn check(&self, request: &Request) -> Result<(), ApiError> {
        let path = request.uri().path();
        let Some(query) = request.uri().query().filter(|_| !without_api(path).starts_with(LENIENT)) else {
            return Ok(());
        };
        // A HEAD is handled as a GET.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let operations = self.0.at(path).into_iter().flatten();
        let Some((_, known)) = operations.into_iter().find(|(of, _)| of == method) else { return Ok(()) };
        let mut parameters = url::form_urlencoded::parse(query.as_bytes());
        let Some((unknown, _)) = parameters.find(|(name, _)| !known.iter().any(|it| it == name)) else {
            return Ok(());
        };
        let expected = match known.as_slice() {
            [] => "expected none".to_owned(),
            known => format!("expected one of {}", known.join(", ")),
        };
        Err(ApiError::bad_request(format!("query: unknown parameter {:?}: {expected}", cut(&unknown))))
    }
}

/// Returns the beginning of a text, for a message.
fn cut(text: &str) -> &str {
    const SHOWN: usize = 64;
    text.get(..text.floor_char_boundary(SHOWN)).unwrap_or(text)
}
