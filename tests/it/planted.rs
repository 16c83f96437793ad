//! The failpoints and planted bugs of the torture run exist in no regular build of the server.

#[test]
fn the_server_is_built_without_failpoints_and_planted_bugs() {
    let server = std::fs::read(env!("CARGO_BIN_EXE_holdpoint")).unwrap();
    let server = String::from_utf8_lossy(&server);
    assert!(server.contains("9holdpoint5store"), "its modules have their names in it");
    assert!(!server.contains("9holdpoint6faults"));
    assert!(!server.contains("decide-any-state"));
}
