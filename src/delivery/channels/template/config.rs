//! The keys of `[[notify]]` about messages that are the POST of a filled template.

use crate::config::headers::headers;
use crate::config::sources::text_of_file;
use crate::config::{ConfigError, Egress, Notify, wrong};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use std::time::Duration;

/// The longest time of an attempt.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Headers that the server sets.
const RESERVED: [&str; 6] =
    ["connection", "content-length", "content-type", "host", "transfer-encoding", "webhook-id"];

/// How the text of a template is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TemplateFormat {
    /// JSON, with placeholders in its texts.
    Json,
    /// Plain text.
    Text,
}

/// The messages to a recipient as POST requests.
pub(crate) struct NotifyPost {
    /// The address, which may contain a secret.
    pub(crate) url: String,
    /// The headers of each request.
    pub(crate) headers: HeaderMap,
    /// How the template is read.
    pub(crate) format: TemplateFormat,
    pub(crate) template: String,
    /// The key of the template, for errors.
    pub(crate) template_key: String,
    /// The longest time of an attempt.
    pub(crate) timeout: Duration,
}

impl Notify {
    /// Checks the keys of an entry with this `url`.
    pub(super) fn check_post(&self, key: &str, url: &str, egress: &Egress) -> Result<(), ConfigError> {
        let key = |field: &str| format!("{key}.{field}");
        egress.check_url(&key("url"), url)?;
        self.format(&key("content_type"))?;
        match (&self.template, &self.template_file) {
            (Some(_), None) | (None, Some(_)) => Ok(()),
            (Some(_), Some(_)) => wrong(key("template"), "expected either this or template_file, not both"),
            (None, None) => wrong(key("template"), "expected this or template_file"),
        }
    }

    /// Checks the names of the headers.
    pub(super) fn check_headers(&self, key: &str) -> Result<(), ConfigError> {
        let mut names = self.headers.keys().chain(self.header_files.keys());
        match names.find(|name| RESERVED.contains(&name.to_ascii_lowercase().as_str())) {
            Some(name) => wrong(format!("{key}.headers"), format!("{name}: the server sets this header")),
            None => Ok(()),
        }
    }

    /// Refuses headers, which have no meaning without requests to an address of the entry.
    pub(super) fn check_no_headers(&self, key: &str) -> Result<(), ConfigError> {
        Self::check_unused(
            key,
            &[("headers", !self.headers.is_empty()), ("header_files", !self.header_files.is_empty())],
        )
    }

    /// Refuses keys that have no meaning without `url`.
    pub(super) fn check_no_template(&self, key: &str) -> Result<(), ConfigError> {
        let unused = [
            ("content_type", self.content_type.is_some()),
            ("template", self.template.is_some()),
            ("template_file", self.template_file.is_some()),
        ];
        Self::check_unused(key, &unused)
    }

    fn check_unused(key: &str, unused: &[(&str, bool)]) -> Result<(), ConfigError> {
        match unused.iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => wrong(format!("{key}.{field}"), "expected this with url only"),
            None => Ok(()),
        }
    }

    /// Returns the requests to this `url`, with the contents of the files.
    pub(crate) fn post(&self, key: &str, url: &str) -> Result<NotifyPost, ConfigError> {
        let (format, content_type) = self.format(&format!("{key}.content_type"))?;
        let mut headers = self.sent_headers(key)?;
        headers.insert(CONTENT_TYPE, content_type);
        let (template_key, template) = match (&self.template, &self.template_file) {
            (Some(text), _) => (format!("{key}.template"), text.clone()),
            (None, Some(path)) => {
                let key = format!("{key}.template_file");
                let text = text_of_file(&key, path)?;
                (key, text)
            }
            (None, None) => (format!("{key}.template"), String::new()),
        };
        let url = url.to_owned();
        Ok(NotifyPost { url, headers, format, template, template_key, timeout: TIMEOUT })
    }

    /// Returns the headers of each request, with the contents of the files.
    pub(crate) fn sent_headers(&self, key: &str) -> Result<HeaderMap, ConfigError> {
        headers(key, &self.headers, &self.header_files)
    }

    fn format(&self, key: &str) -> Result<(TemplateFormat, HeaderValue), ConfigError> {
        let text = self.content_type.as_deref().unwrap_or("application/json");
        let wanted = text.to_ascii_lowercase();
        let (kind, parameter) = match wanted.split_once(';') {
            Some((kind, parameter)) => (kind.trim(), Some(parameter.trim())),
            None => (wanted.trim(), None),
        };
        let is_json = |kind: &str| {
            kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
        };
        let format = match kind {
            "text/plain" => Some(TemplateFormat::Text),
            kind if is_json(kind) => Some(TemplateFormat::Json),
            _ => None,
        };
        let is_utf8 = parameter.is_none_or(|parameter| parameter == "charset=utf-8");
        format.zip(HeaderValue::from_str(text).ok()).filter(|_| is_utf8).ok_or_else(|| ConfigError::Value {
            key: key.to_owned(),
            why: "expected application/json, a type as application/vnd.example+json, or text/plain, with no parameter but \
                  charset=utf-8"
                .to_owned(),
        })
    }
}
