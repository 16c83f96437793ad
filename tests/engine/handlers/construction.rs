//! An app in mode `manual` requires a handler.

use super::named;
use holdpoint::app::App;
use holdpoint::config::{ApprovalMode, Config};
use holdpoint::handlers::{ApprovalHandler, Deferred};
use holdpoint_testkit::{Ledger, Scene, empty_sqlite, probes};
use std::sync::Arc;

/// The error that building an app with this handler returns, if any.
async fn refused(mode: ApprovalMode, handler: Option<impl ApprovalHandler>) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.database.url = empty_sqlite(&dir).into();
    config.approval.mode = mode;
    let parts = App::builder(config).tools(probes(&Ledger::new())).model(Arc::new(Scene::new()));
    let parts = match handler {
        Some(handler) => parts.handler(handler),
        None => parts,
    };
    let built = Box::pin(parts.build()).await;
    let refused = built.err().map(|error| error.to_string());
    assert_eq!(
        refused.is_some(),
        !dir.path().join("holdpoint.db").exists(),
        "a refused app creates no database"
    );
    refused
}

#[tokio::test]
async fn in_mode_manual_an_app_without_a_handler_is_refused_and_the_error_names_the_alternatives() {
    let why = refused(ApprovalMode::Manual, None::<Deferred>).await.unwrap();
    for named in ["approval.mode: ", "`handlers::Deferred`", "\"auto-approve\"", "\"auto-deny\""] {
        assert!(why.contains(named), "{named} in {why}");
    }
    assert_eq!(refused(ApprovalMode::Manual, Some(Deferred)).await, None);
    for mode in [ApprovalMode::AutoApprove, ApprovalMode::AutoDeny] {
        assert_eq!(refused(mode, None::<Deferred>).await, None);
    }
}

#[tokio::test]
async fn a_handlers_name_is_valid_in_an_actor() {
    for name in ["desk", "Front_Desk-2", &"d".repeat(64)] {
        assert_eq!(refused(ApprovalMode::Manual, Some(named(name).0)).await, None, "{name}");
    }
    for name in ["", "front desk", "desk:2", "d\u{e9}sk", "desk\n", &"d".repeat(65)] {
        let why = refused(ApprovalMode::AutoApprove, Some(named(name).0)).await.unwrap();
        assert!(why.contains("expected 1 to 64 of a-z, A-Z, 0-9, _ and -"), "{name:?}: {why}");
    }
}
