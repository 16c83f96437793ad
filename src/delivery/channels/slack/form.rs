//! The form that asks for the reason of a rejection. Slack opens it after a press, and reports what was entered.

use super::application::plain;
use super::button::Button;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The `callback_id` of the form.
const FORM: &str = "holdpoint_reject";
/// The ids of its one field.
const FIELD: &str = "reason";
/// Maximum length of a title and of a button of a form, in characters.
const TITLE_MAX: usize = 24;
/// Maximum length of another text of a form, in characters.
const TEXT_MAX: usize = 2000;
/// Maximum length of a kept `response_url`, in bytes. Slack limits what a form keeps to 3000 characters.
const URL_BYTES_MAX: usize = 800;

/// What a form keeps: the pressed button, and where notices to its user go.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RejectionForm {
    pub(super) button: Button,
    pub(super) response_url: Option<String>,
}

/// A form as Slack reports it.
#[derive(Debug, Deserialize)]
pub(super) struct FormReport {
    callback_id: Option<String>,
    #[serde(default)]
    private_metadata: String,
    #[serde(default)]
    state: EnteredTexts,
}

#[derive(Debug, Default, Deserialize)]
struct EnteredTexts {
    #[serde(default)]
    values: HashMap<String, HashMap<String, EnteredText>>,
}

#[derive(Debug, Deserialize)]
struct EnteredText {
    value: Option<String>,
}

impl RejectionForm {
    /// Returns the form. `reason_max` is the maximum length of a reason, in characters.
    pub(super) fn form(&self, reason_max: usize) -> Value {
        let response_url = self.response_url.clone().filter(|url| url.len() <= URL_BYTES_MAX);
        let kept = Self { button: self.button.clone(), response_url };
        json!({
            "type": "modal",
            "callback_id": FORM,
            "private_metadata": json!(kept).to_string(),
            "title": plain("Reject the call", TITLE_MAX),
            "submit": plain("Reject", TITLE_MAX),
            "close": plain("Cancel", TITLE_MAX),
            "blocks": [{
                "type": "input",
                "block_id": FIELD,
                "optional": true,
                "label": plain("Reason", TEXT_MAX),
                "hint": plain("The model reads it, and it is kept on record.", TEXT_MAX),
                "element": {
                    "type": "plain_text_input",
                    "action_id": FIELD,
                    "multiline": true,
                    "max_length": reason_max,
                },
            }],
        })
    }

    /// Returns the answer that shows a fault in the form.
    pub(super) fn fault(why: &str) -> Value {
        json!({ "response_action": "errors", "errors": { FIELD: why } })
    }
}

impl FormReport {
    /// Whether it is the form of this module.
    pub(super) fn rejects(&self) -> bool {
        self.callback_id.as_deref() == Some(FORM)
    }

    /// Returns what the form kept. `None` if this server did not write it.
    pub(super) fn kept(&self) -> Option<RejectionForm> {
        serde_json::from_str(&self.private_metadata).ok()
    }

    /// Returns the reason, if one was entered.
    pub(super) fn reason(&self) -> Option<&str> {
        let reason = self.state.values.get(FIELD)?.get(FIELD)?.value.as_deref()?.trim();
        Some(reason).filter(|reason| !reason.is_empty())
    }
}
