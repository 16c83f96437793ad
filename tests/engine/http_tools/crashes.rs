//! The end of the process in the middle of a request.

use super::{Office, hold};
use holdpoint_testkit::{Process, ServiceAction, UNKNOWN};
use serde_json::json;

/// A server that is killed while the service has the request of an approved call. Returns the id of the call.
async fn killed_in_mid_call(office: &Office) -> String {
    let mut server = office.start(&[("HOLDPOINT_APPROVAL__WAIT", "0s")]);
    let id = hold(&server.client, "a").await;
    server.client.approve(&id).await.has_status(202);
    office.remote.wait_received(1).await;
    server.kill();
    office.remote.wait_left().await;
    id
}

async fn settled(server: &Process, id: &str, state: &str) -> serde_json::Value {
    server.client.becomes(id, state).await
}

#[tokio::test]
async fn a_killed_process_leaves_the_outcome_unknown_and_sends_nothing_again() {
    let office = Office::with_delete(ServiceAction::Hangs, "").await;
    let id = killed_in_mid_call(&office).await;
    office.remote.now(ServiceAction::answers(200, "{}"));
    let server = office.start(&[]);
    assert_eq!(settled(&server, &id, "interrupted").await["result"], UNKNOWN);
    let again = server.client.approve(&id).await;
    assert_eq!(again.body["state"], "interrupted");
    assert_eq!(office.remote.received().len(), 1);
}

#[tokio::test]
async fn after_a_kill_the_service_reports_the_outcome() {
    let office = Office::with_delete(ServiceAction::Hangs, "verify_url = \"{url}/verify\"").await;
    let id = killed_in_mid_call(&office).await;
    office.remote.now(ServiceAction::answers(200, r#"{"outcome":"succeeded","result":"gone"}"#));
    let server = office.start(&[]);
    assert_eq!(settled(&server, &id, "succeeded").await["output"], "gone");
    assert_eq!(office.remote.received_at("/delete").len(), 1);
}

#[tokio::test]
async fn after_a_kill_an_idempotent_tool_gets_the_same_request_again() {
    let office = Office::with_delete(ServiceAction::Hangs, "idempotent = true").await;
    let id = killed_in_mid_call(&office).await;
    office.remote.now(ServiceAction::answers(200, "\"done\""));
    let server = office.start(&[]);
    assert_eq!(settled(&server, &id, "succeeded").await["output"], "done");
    let [first, second] = &office.remote.received()[..] else { panic!("{:?}", office.remote.received()) };
    assert_eq!((first.header("webhook-id"), second.header("webhook-id")), (&*id, &*id));
    assert_eq!((&first.json()["attempt"], &second.json()["attempt"]), (&json!(1), &json!(2)));
    assert_eq!(first.json()["approved_by"], second.json()["approved_by"]);
}
