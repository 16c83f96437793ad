//! The rights to claim, renew and settle: of workers of the tenant, with the permit of the execution.

use super::{Job, add_worker_tools, approved, ask, claim, code, nothing, start};
use holdpoint_core::json::hex::hex;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, probes};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// A server with tokens, whose client is ann of acme. Workers have the role `worker`.
async fn with_roles(roles: &[&str]) -> Embedded {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    add_worker_tools(&mut tools, super::TIMEOUT);
    let roles: Vec<String> = roles.iter().map(|role| (*role).to_owned()).collect();
    let mut app = app
        .redeploy_with(tools, |config| {
            with_tokens(config);
            config.approval.wait = Duration::ZERO;
            config.auth.worker_roles = roles;
        })
        .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    app
}

fn forged(permit: &str) -> Vec<String> {
    let mut changed = permit.to_owned();
    let last = if changed.pop() == Some('0') { '1' } else { '0' };
    changed.push(last);
    let hash = hex(&Sha256::digest(permit));
    vec![changed, hash, permit.to_uppercase(), format!("{permit} "), String::new(), "0".repeat(64)]
}

#[tokio::test]
async fn a_forged_permit_or_that_of_another_call_renews_and_settles_nothing() {
    let app = start().await;
    approved(&app, "ship", "1").await;
    approved(&app, "ship", "2").await;
    let (job, other) = (claim(&app.client, "ship").await, claim(&app.client, "ship").await);
    let mut permits = forged(&job.permit);
    permits.push(other.permit.clone());
    permits.retain(|permit| *permit != job.permit);
    for permit in permits {
        let thief = Job { permit: permit.clone(), ..job.clone() };
        assert_eq!(code(&thief.renew(&app.client).await), (404, "not_found"), "{permit}");
        assert_eq!(code(&thief.succeed(&app.client, &json!(1)).await), (404, "not_found"), "{permit}");
    }
    assert_eq!(app.client.call(&job.id).await["state"], "executing");
    for id in ["nothing", "00000000-0000-7000-8000-000000000000"] {
        let nowhere = Job { id: id.to_owned(), ..job.clone() };
        assert_eq!(code(&nowhere.renew(&app.client).await), (404, "not_found"));
        assert_eq!(code(&nowhere.succeed(&app.client, &json!(1)).await), (404, "not_found"));
    }
    job.succeed(&app.client, &json!(1)).await.has_status(200);
}

#[tokio::test]
async fn the_database_has_only_the_hash_of_a_permit() {
    let app = start().await;
    let (_, id) = approved(&app, "ship", "1").await;
    let job = claim(&app.client, "ship").await;
    let hash = hex(&Sha256::digest(&job.permit));
    let row = app.rows.all(&format!("SELECT * FROM tool_calls WHERE tool_call_id = '{id}'")).await;
    assert_eq!(row[0]["permit_hash"], hash);
    for table in ["tool_calls", "events", "decisions", "runs"] {
        let rows = app.rows.all(&format!("SELECT * FROM {table}")).await;
        assert!(!Value::from(rows).to_string().contains(&job.permit), "{table}");
    }
    let call = app.client.call(&id).await.to_string();
    assert!(!call.contains(&hash) && !call.contains(&job.permit), "{call}");
}

#[tokio::test]
async fn a_claim_sees_only_the_tenant_of_its_token() {
    let app = with_roles(&["worker"]).await;
    let (_, id) = approved(&app, "ship", "1").await;
    let (ours, theirs) =
        (app.client.as_user("acme", "robot", &["worker"]), app.client.as_user("evil", "robot", &["worker"]));
    assert!(nothing(&theirs, "ship").await);
    let job = claim(&ours, "ship").await;
    assert_eq!((&job.id, &job.call["requester"]), (&id, &json!({ "tenant_id": "acme", "user_id": "ann" })));
    assert_eq!(code(&job.renew(&theirs).await), (404, "not_found"));
    assert_eq!(code(&job.succeed(&theirs, &json!(1)).await), (404, "not_found"));
    // The permit counts, not the worker that claimed the call.
    job.renew(&app.client.as_user("acme", "robot2", &["worker"])).await.has_status(200);
    job.succeed(&ours, &json!(1)).await.has_status(200);
    let owner = app.rows.all("SELECT exec_owner FROM tool_calls").await;
    assert_eq!(owner[0]["exec_owner"], "user:robot");
}

#[tokio::test]
async fn only_a_role_of_workers_claims_renews_and_settles() {
    let app = with_roles(&["worker", "robots"]).await;
    approved(&app, "ship", "1").await;
    let no_workers: [&Client; 2] = [&app.client, &app.client.as_user("acme", "ann", &["approver", "Worker"])];
    for client in no_workers {
        assert_eq!(code(&ask(client, &["ship"], 0).await), (403, "forbidden"));
        // The role comes first: another user does not learn which tools have workers.
        assert_eq!(code(&ask(client, &["nothing"], 0).await), (403, "forbidden"));
    }
    let worker = app.client.as_user("acme", "robot", &["robots"]);
    let job = claim(&worker, "ship").await;
    for client in no_workers {
        assert_eq!(code(&job.renew(client).await), (403, "forbidden"));
        assert_eq!(code(&job.succeed(client, &json!(1)).await), (403, "forbidden"));
    }
    job.succeed(&worker, &json!(1)).await.has_status(200);
}

#[tokio::test]
async fn without_worker_roles_no_token_claims() {
    let app = with_roles(&[]).await;
    let somebody = app.client.as_user("acme", "robot", &["worker", "operator", ""]);
    assert_eq!(code(&ask(&somebody, &["ship"], 0).await), (403, "forbidden"));
}

#[tokio::test]
async fn the_role_of_a_worker_gives_no_other_right() {
    let app = with_roles(&["worker"]).await;
    let (thread, id) = app.held("ship", "1").await;
    let worker = app.client.as_user("acme", "robot", &["worker"]);
    worker.get(&format!("/tool_calls/{id}")).await.has_status(404);
    worker.get(&format!("/threads/{thread}")).await.has_status(404);
    worker.approve(&id).await.has_status(404);
    worker.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await.has_status(404);
    assert_eq!(worker.get("/approvals").await.body["results"], json!([]));
    app.client.approve(&id).await;
    claim(&worker, "ship").await;
    worker.get(&format!("/tool_calls/{id}")).await.has_status(404);
}
