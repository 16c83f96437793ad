//! The server that the commands of an approver address, and the form of their output.

use holdpoint_settings::{ConfigError, environment, is_safe, text_of_file, wrong};
use secrecy::{ExposeSecret, SecretString};
use std::path::PathBuf;
use url::Url;

/// The value of a flag or a variable, with the name of its source for errors.
#[derive(Debug, Clone)]
struct NamedValue<T> {
    name: &'static str,
    value: T,
}

/// The source of the access token.
#[derive(Debug, Clone)]
enum TokenSource {
    None,
    Value(SecretString),
    /// Read again for each request, because a program may replace the token before it ends.
    File(NamedValue<PathBuf>),
}

/// The flags of the commands.
#[derive(Debug, Clone, Default)]
pub struct ClientFlags {
    /// The address of the server.
    pub url: Option<String>,
    /// The file with the access token.
    pub token_file: Option<PathBuf>,
}

/// The server that the commands of an approver address: flags, then the environment.
#[derive(Debug, Clone)]
pub struct Client {
    url: Option<NamedValue<Url>>,
    token: TokenSource,
    colours: bool,
}

/// The variables of the commands. An empty one counts as not set.
struct ClientVariables {
    url: Option<String>,
    token: Option<String>,
    token_file: Option<String>,
    /// Whether a terminal may show colours (<https://no-color.org>).
    colours: bool,
}

impl ClientVariables {
    fn read() -> Result<Self, ConfigError> {
        let is_plain = environment::text("TERM").is_ok_and(|term| term.as_deref() == Some("dumb"));
        let may_colour = environment::text("NO_COLOR").is_ok_and(|value| value.is_none());
        Ok(Self {
            url: environment::text("HOLDPOINT_URL")?,
            token: environment::text("HOLDPOINT_TOKEN")?,
            token_file: environment::text("HOLDPOINT_TOKEN_FILE")?,
            colours: may_colour && !is_plain,
        })
    }
}

impl Client {
    /// Reads the flags and the environment. Reads no token yet.
    ///
    /// # Errors
    /// The first invalid value, with its name.
    pub fn load(flags: ClientFlags) -> Result<Self, ConfigError> {
        let found = ClientVariables::read()?;
        let url = match (flags.url, found.url) {
            (Some(value), _) => Some(NamedValue { name: "--url", value }),
            (None, value) => value.map(|value| NamedValue { name: "HOLDPOINT_URL", value }),
        };
        let token = match (flags.token_file, found.token, found.token_file) {
            (Some(value), ..) => TokenSource::File(NamedValue { name: "--token-file", value }),
            (None, Some(_), Some(_)) => {
                wrong("HOLDPOINT_TOKEN_FILE", "expected either this or HOLDPOINT_TOKEN, not both")?;
                TokenSource::None
            }
            (None, Some(value), None) => TokenSource::Value(value.into()),
            (None, None, Some(value)) => {
                TokenSource::File(NamedValue { name: "HOLDPOINT_TOKEN_FILE", value: value.into() })
            }
            (None, None, None) => TokenSource::None,
        };
        let url = match url {
            Some(NamedValue { name, value }) => Some(NamedValue { name, value: parsed(name, &value)? }),
            None => None,
        };
        let client = Self { url, token, colours: found.colours };
        client.check()?;
        Ok(client)
    }

    /// Refuses to send a token over a network that can read it.
    fn check(&self) -> Result<(), ConfigError> {
        let (Some(NamedValue { name, value }), true) = (&self.url, self.has_token()) else { return Ok(()) };
        if is_safe(value.as_str()) {
            return Ok(());
        }
        wrong(*name, "expected https:// for a request with a token, or a loopback address")
    }

    fn has_token(&self) -> bool {
        !matches!(self.token, TokenSource::None)
    }

    /// Returns the address of the server and the name of its source, if there is one.
    pub(crate) fn url(&self) -> Option<(&Url, &'static str)> {
        self.url.as_ref().map(|NamedValue { name, value }| (value, *name))
    }

    /// Returns whether an address of a server is set.
    pub fn has_url(&self) -> bool {
        self.url.is_some()
    }

    /// Returns whether a terminal may show colours.
    pub(crate) fn colours(&self) -> bool {
        self.colours
    }

    /// Returns the access token, if there is one.
    ///
    /// # Errors
    /// The file of the token cannot be read, or the token cannot be sent.
    pub(crate) fn token(&self) -> Result<Option<SecretString>, ConfigError> {
        let (name, token) = match &self.token {
            TokenSource::None => return Ok(None),
            TokenSource::Value(token) => ("HOLDPOINT_TOKEN", token.clone()),
            TokenSource::File(NamedValue { name, value: path }) => (*name, text_of_file(name, path)?.into()),
        };
        let text = token.expose_secret();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            wrong(name, "expected a token: visible ASCII characters without spaces")?;
        }
        Ok(Some(token))
    }
}

/// Returns the address of a server. An error does not repeat the text: it may contain a password.
fn parsed(name: &str, text: &str) -> Result<Url, ConfigError> {
    let expected = "expected http:// or https://, a host, and at most a port and a path";
    let invalid = || ConfigError::Value { key: name.to_owned(), why: expected.to_owned() };
    let url = Url::parse(text).map_err(|_| invalid())?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if plain { Ok(url) } else { Err(invalid()) }
}
