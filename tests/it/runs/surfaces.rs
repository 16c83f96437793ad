//! A10: a decision passes the same checks, wherever it comes in.

use super::run_of;
use crate::support::token::with_tokens;
use crate::support::{Answer, Client, Embedded, probes};
use holdpoint::config::{Config, ToolRules};
use serde_json::{Value, json};

/// Where a decision comes in.
#[derive(Debug, Clone, Copy)]
enum Surface {
    Validate,
    Batch,
    Run,
    Session,
}

const ALL: [Surface; 4] = [Surface::Validate, Surface::Batch, Surface::Run, Surface::Session];

/// A call, and what it is a part of.
struct Held {
    thread: String,
    run: String,
    call: String,
}

impl Surface {
    /// The status and the code of what is answered to this person, who says this.
    async fn says(self, client: &Client, held: &Held, yes: bool) -> (u64, String) {
        let Held { thread, run, call } = held;
        let decision = json!({ "toolCallId": call, "isValidated": yes });
        let of = |answer: Answer| (u64::from(answer.status), answer.code().to_owned());
        match self {
            Self::Validate => of(client.validate(&decision).await),
            Self::Batch => {
                let answer = client.post("/qa/validate_tools", &json!({ "decisions": [decision] })).await;
                if answer.status != 200 {
                    return of(answer);
                }
                let item = &answer.body["results"][0];
                let code = item["error"]["code"].as_str().unwrap_or_default();
                (item["status"].as_u64().unwrap(), code.to_owned())
            }
            Self::Run => {
                let path = format!("/runs/{run}/{}", if yes { "approve" } else { "reject" });
                of(client.post(&path, &json!({ "tool_call_id": call })).await)
            }
            Self::Session => {
                let decision = if yes { "allow_once" } else { "deny" };
                let path = format!("/sessions/{thread}/approvals/{call}");
                of(client.post(&path, &json!({ "decision": decision })).await)
            }
        }
    }
}

fn office(config: &mut Config) {
    with_tokens(config);
    let roles = ["chief".to_owned()].into();
    let rules =
        ToolRules { run_roles: [].into(), approve_roles: roles, other_person: true, ..ToolRules::default() };
    config.tools.rules.insert("pay".to_owned(), rules);
}

/// A call that waits, and beside it another, so that its run waits whatever becomes of it.
async fn held(app: &Embedded, alice: &Client) -> Held {
    let thread = alice.thread().await;
    let call = |id: &str| crate::support::call(id, "pay", &json!({ "note": id }));
    app.scene.calls(&[call("one"), call("two")]);
    let call = alice.say(&thread, "pay twice").await.pending()[0].clone();
    Held { run: run_of(alice, &call).await, thread, call }
}

#[tokio::test]
async fn a10_wherever_a_decision_comes_in_the_same_is_asked_of_who_decides_and_what() {
    let app = Embedded::with(office).await;
    let nobody = app.client.clone();
    let alice = nobody.as_user("acme", "alice", &[]);
    let carol = nobody.as_user("acme", "carol", &["chief"]);
    let absent = (404, "not_found".to_owned());
    let forbidden = (403, "forbidden".to_owned());
    for surface in ALL {
        let waits = held(&app, &alice).await;
        for stranger in [
            nobody.as_user("acme", "bob", &[]),
            nobody.as_user("acme", "bob", &["boss"]),
            nobody.as_user("other", "alice", &[]),
            nobody.as_user("other", "carol", &["chief"]),
        ] {
            for yes in [true, false] {
                assert_eq!(surface.says(&stranger, &waits, yes).await, absent, "{surface:?}");
            }
        }
        let unknown = (401, "unauthenticated".to_owned());
        assert_eq!(surface.says(&nobody, &waits, true).await, unknown, "{surface:?}");
        // The tool wants another person.
        assert_eq!(surface.says(&alice, &waits, true).await, forbidden, "{surface:?}");

        // The session forbids it by now, whoever approves.
        let path = alice.url(&format!("/sessions/{}/policy", waits.thread));
        let tighter = alice.http.put(path).json(&json!({ "tools": { "pay": "deny" } }));
        assert_eq!(alice.send(tighter).await.status, 200);
        assert_eq!(surface.says(&carol, &waits, true).await, forbidden, "{surface:?}");
        assert_eq!(alice.call(&waits.call).await["state"], "pending", "{surface:?}");
        assert_eq!(
            surface.says(&carol, &waits, false).await.0,
            200,
            "{surface:?}: a no is taken all the same"
        );
        let decided = (409, "already_decided".to_owned());
        assert_eq!(surface.says(&carol, &waits, true).await, decided, "{surface:?}");

        let overdue = held(&app, &alice).await;
        let end =
            format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{}'", overdue.call);
        assert_eq!(app.rows.change(&end).await, Ok(1));
        assert_eq!(surface.says(&carol, &overdue, true).await, (409, "expired".to_owned()), "{surface:?}");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let mut waiting = Vec::new();
    for _ in ALL {
        waiting.push(held(&app, &alice).await);
    }
    let ledger = app.ledger.clone();
    let app = app.redeploy_with(holdpoint::tools::ToolRegistry::new(), with_tokens).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    for (surface, held) in ALL.into_iter().zip(&waiting) {
        let gone = (409, "tool_unavailable".to_owned());
        assert_eq!(surface.says(&alice, held, true).await, gone, "{surface:?}");
    }
    let app = app.redeploy_with(probes(&ledger), office).await;
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    for (surface, held) in ALL.into_iter().zip(&waiting) {
        assert_eq!(surface.says(&carol, held, true).await.0, 200, "{surface:?}");
        let by: Value = carol.becomes(&held.call, "succeeded").await["decision"]["by"].clone();
        assert_eq!(by, "user:carol");
    }
    assert_eq!(ledger.lines(), ["pay one"; 4]);
}
