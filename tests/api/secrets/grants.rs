//! Remembered approvals of calls with secret inputs: no condition is about a secret, because people read the conditions.

use super::{SECRETS, assert_hidden, held, input, server};
use holdpoint_testkit::{JsonFields, call};
use serde_json::{Value, json};

#[tokio::test]
async fn a_grant_has_no_condition_on_a_secret_and_may_leave_it_free() {
    let app = server(|_| {}).await;
    let id = held(&app, "login_low").await;
    let remember = async |when: Value| {
        let scope = json!({ "when": when, "free": ["/password", "/card", "/keys"] });
        app.client.validate(&json!({ "toolCallId": id, "isValidated": true, "remember": scope })).await
    };
    let user = json!({ "argument": "/user", "equal": "ada" });
    for (argument, value) in
        [("/password", json!(SECRETS[0])), ("/card", input()["card"].clone()), ("/keys/0/token", json!("x"))]
    {
        let refused = remember(json!([user, { "argument": argument, "equal": value }])).await;
        assert_eq!(refused.failure(), (422, "not_remembered"), "{argument}");
        assert_eq!(
            refused.message(),
            format!("remember.when[1]: expected {argument}, which is secret, in free")
        );
    }
    let answer = remember(json!([user])).await;
    answer.has(200, "state", "succeeded");

    let thread = app.client.call(&id).await.text("thread_id").to_owned();
    let grants = app.client.get(&format!("/sessions/{thread}/grants")).await.body;
    assert_eq!(grants["results"][0]["when"], json!([user]));
    assert_hidden(&grants.to_string());
    let login = async |note: &str, input: Value| {
        app.scene.calls(&[call(note, "login_low", &input)]).answers("I see.");
        let turn = app.client.send_message(&thread, &format!("log in {note}")).await;
        app.scene.forget();
        app.client.call(turn.all('9')[0].text("toolCallId")).await["state"].clone()
    };
    assert_eq!(login("a", json!({ "user": "ada", "password": "other" })).await, "succeeded");
    assert_eq!(login("b", json!({ "user": "bob", "password": "other" })).await, "pending");
}
