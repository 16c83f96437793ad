//! The end of the process in the middle of a call.

use super::SteeredServer;
use holdpoint_testkit::{JsonFields, UNKNOWN, eventually};

#[tokio::test]
async fn a_killed_process_leaves_the_outcome_unknown_and_the_call_is_not_made_again() {
    let steered = SteeredServer::with("delete_file");
    let place = steered.deployment().await;
    let mut server = place.start();
    super::tool(&server.client, "s__delete_file").await;
    let turn = server.client.send_message(&server.client.thread().await, "delete a").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    // The approver has the tool hang.
    let hang =
        serde_json::json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "do": "hang" } });
    let decided = server.client.validate(&hang).await;
    decided.has_status(202);
    steered.wait_called(1).await;
    server.kill();
    let server = place.start();
    let ended = server.client.becomes(id, "interrupted").await;
    assert!(ended.text("result").ends_with(UNKNOWN), "{ended}");
    super::tool(&server.client, "s__delete_file").await;
    let decided = async || {
        let again = server.client.validate(&hang).await;
        (again.body["state"] == "interrupted").then_some(())
    };
    eventually("the decision stands", decided).await;
    assert_eq!(steered.called(), ["delete_file"]);
}
