//! A mask in an edit leaves the secret as it was proposed, on every route.

use super::{MASK, SECRETS, assert_hidden, held, input, masked, server};
use holdpoint_testkit::{Answer, Embedded, Socket};
use serde_json::{Value, json};

/// The routes that take other inputs.
#[derive(Debug, Clone, Copy)]
enum Route {
    Validate,
    Batch,
    Run,
    Socket,
}

impl Route {
    /// Approves the call with these inputs, and returns the status and the body.
    async fn approve(self, app: &Embedded, id: &str, inputs: &Value) -> (u64, Value) {
        let posted = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": inputs });
        let of = |answer: Answer| (u64::from(answer.status), answer.body);
        match self {
            Self::Validate => of(app.client.validate(&posted).await),
            Self::Batch => {
                let body = json!({ "decisions": [posted] });
                let result = app.client.post("/qa/validate_tools", &body).await.body["results"][0].clone();
                (result["status"].as_u64().unwrap(), result)
            }
            Self::Run => {
                app.scene.answers("Done.");
                let run = app.client.run_of(id).await;
                let body = json!({ "tool_call_id": id, "validated_inputs": inputs });
                of(app.client.post(&format!("/runs/{run}/approve"), &body).await)
            }
            Self::Socket => {
                let mut socket = Socket::open(&app.client, "/ws", &[]).await.unwrap();
                let decide = json!({ "tool_call_id": id, "decision": "approve", "validated_inputs": inputs });
                socket.ask(&json!(1), &decide).await
            }
        }
    }
}

#[tokio::test]
async fn a_mask_at_the_place_of_a_secret_leaves_it_and_elsewhere_it_is_a_text() {
    for route in [Route::Validate, Route::Batch, Route::Run, Route::Socket] {
        let app = server(|_| {}).await;
        let id = held(&app, "login").await;
        let mut edit = masked();
        edit["user"] = json!(MASK);
        edit["keys"][1] = json!({ "name": "three", "token": "new" });
        let (status, body) = route.approve(&app, &id, &edit).await;
        assert!(matches!(status, 200 | 202), "{route:?}: {body}");
        assert_hidden(&body.to_string());
        app.client.becomes(&id, "succeeded").await;
        let mut ran = input();
        ran["user"] = json!(MASK);
        ran["keys"][1] = json!({ "name": "three", "token": "new" });
        assert_eq!(app.ledger.lines(), [ran.to_string()], "{route:?}");
    }
}

#[tokio::test]
async fn the_masked_inputs_as_they_were_shown_are_no_edit() {
    let app = server(|_| {}).await;
    let id = held(&app, "login").await;
    let (status, body) = Route::Validate.approve(&app, &id, &masked()).await;
    assert_eq!((status, body.get("validatedInputs")), (200, None), "{body}");
    assert_eq!(app.client.call(&id).await["decision"]["edited"], false);
    assert_eq!(app.ledger.lines(), [input().to_string()]);
    // A repeat of the same decision, in both forms.
    for same in [masked(), input()] {
        assert_eq!(Route::Validate.approve(&app, &id, &same).await.0, 200);
    }
}

#[tokio::test]
async fn a_mask_without_a_proposed_value_is_refused_with_its_place_and_the_call_stays_pending() {
    let app = server(|_| {}).await;
    let proposed =
        json!({ "user": "ada", "keys": [{ "name": "one", "token": SECRETS[2] }, { "name": "two" }] });
    app.scene.calls(&[holdpoint_testkit::call("p", "login", &proposed)]);
    let id = app.client.send_message(&app.client.thread().await, "log in").await.pending().remove(0);
    for (edit, place) in [
        (json!({ "user": "ada", "password": MASK }), "/password"),
        (json!({ "user": "ada", "card": { "pin": MASK } }), "/card/pin"),
        (json!({ "user": "ada", "keys": [{ "token": SECRETS[3] }, { "token": MASK }] }), "/keys/1/token"),
        (json!({ "user": "ada", "keys": [{ "token": MASK }] }), "/keys/0/token"),
    ] {
        let posted = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": edit });
        let preview = json!({ "validated_inputs": edit });
        let refused = [
            app.client.validate(&posted).await,
            app.client.post(&format!("/tool_calls/{id}/preview"), &preview).await,
        ];
        for refused in refused {
            refused.failed_with(422, "invalid_inputs");
            let details = refused.body["error"]["details"].to_string();
            assert!(details.contains(place) && details.contains(MASK), "{details}");
            assert_hidden(&refused.body.to_string());
        }
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert!(app.ledger.lines().is_empty());
}

#[tokio::test]
async fn the_preview_of_an_edit_has_the_hash_of_the_inputs_without_masks() {
    let app = server(|_| {}).await;
    let id = held(&app, "login").await;
    let hash = async |inputs: &Value| {
        let body = json!({ "validated_inputs": inputs });
        let answer = app.client.post(&format!("/tool_calls/{id}/preview"), &body).await;
        answer.has_status(200);
        answer.body["preview_hash"].clone()
    };
    let shown = app.client.call(&id).await["input_hash"].clone();
    assert_eq!(hash(&masked()).await, shown);
    let (mut by_mask, mut by_value) = (masked(), input());
    by_mask["user"] = json!("eve");
    by_value["user"] = json!("eve");
    assert_eq!(hash(&by_mask).await, hash(&by_value).await);
}
