//! Forms that a server asks people to fill in while its tool runs.

use crate::mcp::client::definitions::input_schema;
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::message::readable;
use futures::future::join_all;
use holdpoint_core::owner::{InputForm, InputRound};
use holdpoint_core::tool::tool_request::{Answer, Question, RequestKind};
use holdpoint_store::request_sender::RequestSender;
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, InputRequest, InputRequiredResult, InputResponses,
};
use serde_json::Value;

/// Maximum length of the key of a question, in bytes. The row has the number of the round besides.
const KEY_BYTES_MAX: usize = 1000;

/// Returns the result of a form. A form without a call, and a page that a person should visit, are cancelled: only a
/// person that was asked can decline.
pub(in crate::mcp) async fn result_of(
    asked: ElicitRequestParams,
    sender: Option<RequestSender>,
    log: &LogRate,
) -> ElicitResult {
    let (Some(question), Some(sender)) = (question(asked), sender) else {
        log.asks_in_vain();
        return ElicitResult::new(ElicitationAction::Cancel);
    };
    result(sender.send(question).await)
}

/// Returns an answer as its server reads it.
fn result(answer: Answer) -> ElicitResult {
    match answer {
        Answer::Accept(content) => {
            ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content))
        }
        Answer::Decline => ElicitResult::new(ElicitationAction::Decline),
        Answer::Cancel => ElicitResult::new(ElicitationAction::Cancel),
    }
}

/// Asks for each input that a result requires, and returns the answers. `None` if the server asks for something else than
/// forms.
pub(in crate::mcp) async fn answer_all(
    asked: InputRequiredResult,
    sender: &RequestSender,
    log: &LogRate,
) -> Option<InputResponses> {
    let forms = asked.input_requests?.into_iter().map(|(id, request)| match request {
        InputRequest::Elicitation(form) => Some((id, form.params)),
        _ => None,
    });
    let forms: Vec<_> = forms.collect::<Option<_>>()?;
    let answers = forms.into_iter().map(async |(id, form)| {
        let result = result_of(form, Some(sender.clone()), log).await;
        Some((id, serde_json::to_value(result).ok()?))
    });
    let answers: InputResponses = join_all(answers).await.into_iter().collect::<Option<_>>()?;
    (!answers.is_empty()).then_some(answers)
}

/// Returns the round of answers that a result requires, after this number of rounds. `None` if the server asks for
/// something else than forms, or is beyond the limits of a round.
pub(in crate::mcp) fn round(asked: InputRequiredResult, rounds: u32, tool: &str) -> Option<InputRound> {
    let forms = asked.input_requests?.into_iter().map(|(key, request)| match request {
        InputRequest::Elicitation(form) => {
            let question = question(form.params).filter(|_| is_storable(&key));
            Some((key, question.map(|Question { message, schema, .. }| InputForm { message, schema })))
        }
        _ => None,
    });
    InputRound::after(rounds, tool.to_owned(), forms.collect::<Option<_>>()?, asked.request_state)
}

/// Whether a question can be stored by its key at the server.
pub(in crate::mcp) fn is_storable(key: &str) -> bool {
    key.len() <= KEY_BYTES_MAX && !key.contains('\0')
}

/// Returns answers as their server reads them, by their keys.
pub(in crate::mcp) fn responses(answers: impl IntoIterator<Item = (String, Answer)>) -> InputResponses {
    let responses = answers.into_iter();
    responses.filter_map(|(key, answer)| Some((key, serde_json::to_value(result(answer)).ok()?))).collect()
}

/// Returns the question of a form. `None` for a page that a person should visit, and for a schema whose cost has no bound.
pub(in crate::mcp) fn question(asked: ElicitRequestParams) -> Option<Question> {
    let ElicitRequestParams::FormElicitationParams { meta, message, requested_schema } = asked else {
        return None;
    };
    let (schema, _patterns) = input_schema::checked(&readable::schema(meta, requested_schema)?).ok()?;
    Some(Question::new(RequestKind::Elicitation, &message, schema))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::client::transport::silent::SilentPeople;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[tokio::test]
    async fn a_page_to_visit_is_cancelled_and_nothing_is_asked() {
        let page = ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message: "Go there.".to_owned(),
            url: "https://evil.example/".to_owned(),
            elicitation_id: "1".to_owned(),
        };
        let asked = Arc::new(SilentPeople::default());
        let result = result_of(page, Some(asked.sender()), &LogRate::new("s", "")).await;
        assert_eq!(result, ElicitResult::new(ElicitationAction::Cancel));
        assert_eq!(asked.0.load(Ordering::Relaxed), 0);
    }
}
