//! The row of a call keeps the places of its secrets.

use super::{held, server};
use serde_json::{Value, json};

#[tokio::test]
async fn the_places_of_the_secrets_are_stored_with_the_call_and_never_change() {
    let app = server(|_| {}).await;
    let id = held(&app, "login").await;
    let (_, plain) = app.held("pay", "1").await;
    let stored = async |id: &str| {
        let sql = format!("SELECT secret_paths FROM tool_calls WHERE tool_call_id = '{id}'");
        app.rows.all(&sql).await.remove(0)["secret_paths"].clone()
    };
    let paths: Value = serde_json::from_str(stored(&id).await.as_str().unwrap()).unwrap();
    assert_eq!(paths, json!([["card", "pin"], ["keys", null, "token"], ["password"]]));
    assert_eq!(stored(&plain).await, Value::Null);
    for (call, paths) in [(&id, "NULL"), (&id, "'[]'"), (&plain, "'[[null]]'")] {
        let change = format!("UPDATE tool_calls SET secret_paths = {paths} WHERE tool_call_id = '{call}'");
        let refused = app.rows.change(&change).await.unwrap_err();
        assert!(refused.contains("the content of a call does not change"), "{refused}");
    }
}
