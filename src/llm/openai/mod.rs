//! Any server with `{base_url}/chat/completions`.
//!
//! rig writes the request around the conversation, reads the stream and ends it where it must. Three things
//! go past it or are put right before it sees them:
//!
//! - The messages and tools (`wire`). rig repairs histories: it joins user messages that follow each other,
//!   turns calls and answers into prose when no tool is offered, cuts long call ids, fills empty answers. What
//!   the model reads must be what is stored, so they are written here and handed over as raw parameters.
//! - The bytes (`transport`). rig's own client cannot be given a connect time-out or be kept from following
//!   redirects.
//! - The pieces of calls (`pieces`).
//!
//! What rig then says becomes our events in `answer`, and its errors our two kinds in `failure`. The key goes
//! into the request and nowhere else: no error's text and no `Debug` has it.

mod answer;
mod failure;
#[cfg(test)]
mod fake_server;
mod pieces;
mod transport;
mod wire;

use super::{LanguageModel, ModelError, ModelEvent, ModelRequest};
use answer::Answer;
use failure::failure;
use futures::stream::{self, BoxStream, StreamExt};
use reqwest::header::HeaderValue;
use rig_core::driver::Model;
use rig_core::providers::openai::OpenAIConfig;
use rig_core::providers::openai::wire::{Auth, Chat};
use secrecy::{ExposeSecret, SecretString};
use std::fmt;
use transport::Http;
use wire::question;

/// Which server, and which of its models.
#[derive(Debug, Clone)]
pub struct OpenAiConfig {
    /// The model's name, sent as it is; clients choose it by the same name.
    pub id: String,
    /// Where the server is, with its `/v1`.
    pub base_url: String,
    /// The key, sent as a bearer token; local servers often have none.
    pub api_key: Option<SecretString>,
}

/// A model behind `{base_url}/chat/completions`.
pub struct OpenAi {
    model: Model<Chat, Http>,
    api_key: Option<SecretString>,
}

impl OpenAi {
    /// Prepares the client; nothing is sent. Installs ring as the process's TLS provider if it has none.
    ///
    /// # Errors
    /// The base URL is not a plain one of HTTP, the key cannot stand in a header.
    /// Neither the URL nor the key is in the text.
    pub fn new(config: OpenAiConfig) -> Result<Self, ModelError> {
        let OpenAiConfig { id, base_url, api_key } = config;
        let unfit = |what: &str| ModelError::Upstream(format!("not usable: {what}"));

        let url = reqwest::Url::parse(&base_url).map_err(|_| unfit("the base URL cannot be read"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unfit("the base URL is not one of HTTP"));
        }
        // A path is put behind it, and a secret in it would get around the care taken of the key.
        let bare = url.query().is_none() && url.fragment().is_none();
        if !bare || !url.username().is_empty() || url.password().is_some() {
            return Err(unfit("the base URL has a query, a fragment or a password"));
        }
        let key = api_key.as_ref().map_or("", |key| key.expose_secret());
        HeaderValue::from_str(key).map_err(|_| unfit("the API key has characters no header can carry"))?;

        let http = Http::new().map_err(|what| unfit(&what))?;
        let wire = OpenAIConfig::new(key).with_base_url(base_url).with_auth(Auth::OptionalBearer).chat(id);
        Ok(Self { model: Model::new(wire, http), api_key })
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi").field("id", &self.model.wire.model).finish_non_exhaustive()
    }
}

impl LanguageModel for OpenAi {
    fn id(&self) -> &str {
        &self.model.wire.model
    }

    fn provider(&self) -> &str {
        "openai"
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
        let api_key = self.api_key.clone();
        match self.model.stream(question(request)) {
            Ok(reply) => stream::try_unfold(Answer::new(reply, api_key), Answer::next).boxed(),
            Err(error) => stream::iter([Err(failure(error, api_key.as_ref()))]).boxed(),
        }
    }
}
