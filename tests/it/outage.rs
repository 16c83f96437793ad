//! A database that goes away under a running server, and comes back.

use crate::support::{Cluster, Embedded, eventually};
use serde_json::json;

#[tokio::test]
async fn on_postgres_a_hold_outlives_a_crash_of_the_database_and_the_server_goes_on() {
    let cluster = Cluster::start();
    let url = cluster.database().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let (thread, id) = app.held("pay", "10").await;

    cluster.stop_now();
    let refused = app.client.approve(&id).await;
    assert_eq!((refused.status, refused.code()), (503, "unavailable"), "{:?}", refused.body);
    assert_eq!(app.ledger.lines(), Vec::<String>::new(), "a yes that is not saved runs nothing");

    cluster.start_again();
    let ready = async || (app.client.get("/readyz").await.status == 200).then_some(());
    eventually("the server has its database again", ready).await;
    assert_eq!(app.client.call(&id).await["state"], "pending");
    let approved = app.client.approve(&id).await;
    assert_eq!((approved.status, &approved.body["state"]), (200, &json!("succeeded")), "{:?}", approved.body);
    app.scene.says("Paid.");
    assert_eq!(app.client.go_on(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}
