//! Processes whose clocks differ: on Postgres, leases and deadlines use the database's clock.

use holdpoint_testkit::{Deployment, LEASE, Process, eventually};
use serde_json::json;
use std::path::PathBuf;

/// The clocks differ by ten minutes, which is longer than any lease or deadline in this file.
const AHEAD: &str = "+300s";
const BEHIND: &str = "-300s";
const APART_MS: i64 = 600_000;

/// Starts a server whose clock is shifted by this offset.
fn start(deployment: &Deployment, off: &str) -> Process {
    let mut command = deployment.command("0s");
    command
        .env("LD_PRELOAD", libfaketime())
        .env("FAKETIME", off)
        // Durations within a process use the monotonic clock, which is not shifted.
        .env("DONT_FAKE_MONOTONIC", "1")
        .env("HOLDPOINT_APPROVAL__PENDING_TTL", "1m")
        .env("HOLDPOINT_APPROVAL__START_DEADLINE", "1m");
    Process::spawn(&mut command)
}

fn libfaketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let library = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    library.expect("these tests need libfaketime (Debian: apt install libfaketime)")
}

/// The creation time in an id, in milliseconds of the clock of the process that created it.
fn made_at(id: &str) -> i64 {
    i64::from_str_radix(&id.replace('-', "")[..12], 16).unwrap()
}

#[tokio::test]
async fn on_postgres_clocks_ten_minutes_apart_end_no_lease_and_no_deadline_early() {
    let deployment = Deployment::on_postgres().await;
    let servers = [start(&deployment, AHEAD), start(&deployment, BEHIND)];
    let rows = deployment.rows().await;
    let (mut run, mut pending, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    for (n, server) in servers.iter().enumerate() {
        let thread = server.client.thread().await;
        run.push(deployment.hold(&server.client, &thread, &n.to_string()).await);
        pending.push(deployment.hold(&server.client, &thread, &format!("later {n}")).await);
        threads.push(thread);
    }
    assert!(made_at(&threads[0]) - made_at(&threads[1]) > APART_MS - 30_000, "the clocks do differ");
    rows.forbid_claims().await;
    for (server, id) in servers.iter().zip(&run) {
        assert_eq!(server.client.approve(id).await.body["state"], "executing");
    }
    let yes = "tool_calls WHERE state = 'approved' AND start_deadline = decided_at + 60000000";
    assert_eq!(rows.count(yes).await, 2);
    // Either process may claim either call, some time after the approval.
    rows.allow_claims().await;
    let renewed = format!(
        "tool_calls WHERE state = 'executing' AND lease_until > started_at + {}",
        3 * LEASE.as_micros()
    );
    let renewed = async || (rows.count(&renewed).await == 2).then_some(());
    eventually("both leases are renewed and not reaped", renewed).await;
    for (server, id) in servers.iter().zip(&pending) {
        assert_eq!(server.client.call(id).await["state"], "pending");
    }
    deployment.release();
    for (server, id) in servers.iter().zip(&run) {
        assert_eq!(server.client.becomes(id, "succeeded").await["tool_name"], "transfer");
    }
    let mut ledger = deployment.ledger();
    ledger.sort_unstable();
    assert_eq!(ledger, ["transfer 0", "transfer 0 done", "transfer 1", "transfer 1 done"]);
}

#[tokio::test]
async fn on_postgres_clocks_ten_minutes_apart_end_expired_leases_and_deadlines() {
    for (crashed_clock, reaper_clock) in [(AHEAD, BEHIND), (BEHIND, AHEAD)] {
        let deployment = Deployment::on_postgres().await;
        let (mut crashed, reaper) = (start(&deployment, crashed_clock), start(&deployment, reaper_clock));
        let rows = deployment.rows().await;
        let thread = crashed.client.thread().await;
        let (id, late) = (
            deployment.hold(&crashed.client, &thread, "1").await,
            deployment.hold(&crashed.client, &thread, "2").await,
        );
        let soon = format!(
            "UPDATE tool_calls SET expires_at = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)
                 + 1000000 WHERE tool_call_id = '{late}'"
        );
        assert_eq!(rows.change(&soon).await, Ok(1));
        crashed.client.approve(&id).await.has_status(202);
        deployment.wait_started(&["transfer 1"]).await;
        crashed.kill();
        reaper.client.becomes(&id, "interrupted").await;
        reaper.client.becomes(&late, "expired").await;
        // By the database's clock, neither the lease nor the deadline ended early.
        let early = format!(
            "tool_calls WHERE (state = 'interrupted' AND finished_at < started_at + {})
                 OR (state = 'expired' AND decided_at < expires_at)",
            LEASE.as_micros()
        );
        assert_eq!(rows.count(&early).await, 0);
        let ends = "SELECT state FROM tool_calls ORDER BY state";
        assert_eq!(rows.all(ends).await, [json!({ "state": "expired" }), json!({ "state": "interrupted" })]);
        assert_eq!(deployment.ledger(), ["transfer 1"]);
    }
}
