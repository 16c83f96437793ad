//! Requests to the service of a tool.

use super::answer::{ACCEPTED, ServiceResponse};
use holdpoint_egress::signed_post::{Message, SignedPost};
use holdpoint_egress::standard_webhooks::Signer;
use holdpoint_egress::{Reach, RequestFailure, chain};
use reqwest::Response;
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// An address of a service. It may contain a secret.
pub(super) struct Service {
    post: SignedPost,
    /// How long the service has to answer, to the end of the body.
    timeout: Duration,
    /// The part of an answer that is read.
    answer_bytes: usize,
}

impl Service {
    /// Prepares the client and sends nothing. The error is the reason why the URL cannot be used.
    pub(super) fn new(
        url: &str,
        reach: &Reach,
        signer: &Signer,
        timeout: Duration,
        answer_bytes: usize,
    ) -> Result<Self, String> {
        Ok(Self { post: SignedPost::new(url, reach, signer)?, timeout, answer_bytes })
    }

    /// Sends one request, once, and reads the answer. The log has the reason if there is none, without the URL,
    /// which may contain a secret.
    pub(super) async fn post(&self, message: &Message<'_>, body: &impl Serialize) -> ServiceResponse {
        let answered = self.exchange(message, body).await;
        match &answered {
            ServiceResponse::NotSent(why) => tracing::warn!(%why, "a request of an HTTP tool was not sent"),
            ServiceResponse::Unknown(why) => tracing::warn!(%why, "the outcome of an HTTP tool is unknown"),
            ServiceResponse::Status { .. } => {}
        }
        answered
    }

    async fn exchange(&self, message: &Message<'_>, body: &impl Serialize) -> ServiceResponse {
        let Ok(body) = serde_json::to_vec(body) else {
            return ServiceResponse::NotSent("the request cannot be written as JSON".to_owned());
        };
        let until = Instant::now() + self.timeout;
        match self.post.send(message, body, until).await {
            Ok(response) => self.read(response, until).await,
            Err(unanswered) => unanswered.into(),
        }
    }

    /// Reads the body up to the limit. The rest of a longer body stays unread, and the connection closes.
    async fn read(&self, mut response: Response, until: Instant) -> ServiceResponse {
        let (status, mut body) = (response.status().as_u16(), Vec::new());
        if status == ACCEPTED {
            // The status alone counts. The call is accepted, also if the body breaks off.
            return ServiceResponse::Status { status, body: String::new(), is_complete: false };
        }
        while body.len() <= self.answer_bytes {
            match timeout_at(until, response.chunk()).await {
                Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
                Ok(Ok(None)) => {
                    return ServiceResponse::Status {
                        status,
                        body: String::from_utf8_lossy(&body).into_owned(),
                        is_complete: true,
                    };
                }
                Ok(Err(error)) => return ServiceResponse::Unknown(chain(error)),
                Err(_elapsed) => return RequestFailure::late().into(),
            }
        }
        ServiceResponse::Status {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
            is_complete: false,
        }
    }
}

impl From<RequestFailure> for ServiceResponse {
    fn from(unanswered: RequestFailure) -> Self {
        match unanswered {
            RequestFailure::NotSent(why) => Self::NotSent(why),
            RequestFailure::Unknown(why) => Self::Unknown(why),
        }
    }
}
