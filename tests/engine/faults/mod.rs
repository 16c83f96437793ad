//! Faults: process crashes, decisions that meet a fault, faults of the environment, and changes while a call
//! is pending.

mod clocks;
mod failover;
mod many_pending;
mod migrations;
mod pooler;
mod postgres;
mod restarts;
mod sqlite;
mod unknown_commit;

use holdpoint_testkit::{Answer, in_repository};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Each fault by its number, and the tests that cause it. K: a turn whose process is killed. V: a decision
/// and its tool. E: the environment of the server. X: changes while a call is pending. X7, a move from SQLite
/// to Postgres, has no test yet.
const FAULTS: &[(&str, &str, &[&str])] = &[
    (
        "K1",
        "killed before a question is committed",
        &[
            "a_question_lost_to_a_kill_before_its_commit_is_accepted_when_it_is_posted_again",
            "on_postgres_a_question_whose_commit_is_lost_is_accepted_when_posted_again",
        ],
    ),
    (
        "K2",
        "killed before the model says a word",
        &["a_question_survives_a_kill_before_the_first_delta_and_is_answered_on_request"],
    ),
    (
        "K3",
        "killed in mid-words",
        &["after_a_kill_while_the_model_streams_the_run_is_closed_and_resuming_extends_the_message"],
    ),
    (
        "K4",
        "an answer breaks off in a call's arguments",
        &[
            "k4_a_kill_while_arguments_are_streamed_leaves_no_call_and_the_answer_is_regenerated",
            "a_truncated_call_is_not_held",
        ],
    ),
    (
        "K5",
        "all calls are there and not committed",
        &[
            "k5_a_kill_between_the_end_of_the_model_and_the_commit_shows_and_leaves_no_call",
            "on_postgres_a_hold_beside_a_call_that_runs_whose_commit_is_lost_is_requested_again",
            "on_sqlite_with_a_full_disk_a_step_holds_nothing_and_its_thread_resumes_with_room",
        ],
    ),
    (
        "K6",
        "a hold is committed and not told",
        &[
            "k6_after_a_kill_between_commit_and_annotation_the_card_exists_and_the_run_call_is_unknown",
            "on_postgres_a_hold_whose_commit_is_in_doubt_is_stored_once_and_shown",
        ],
    ),
    (
        "K7",
        "a hold is told and its stream not ended",
        &["k7_after_a_kill_between_annotation_and_end_of_stream_the_card_exists"],
    ),
    (
        "K8",
        "killed while one call of a step runs by itself",
        &[
            "k6_after_a_kill_between_commit_and_annotation_the_card_exists_and_the_run_call_is_unknown",
            "after_a_kill_while_an_ungated_tool_runs_its_outcome_is_unknown_and_the_thread_continues",
        ],
    ),
    (
        "K9",
        "killed after the last decision, before the model is asked",
        &[
            "a_pending_call_survives_a_kill_and_an_approval_runs_it_once",
            "on_postgres_the_last_hold_decided_at_two_processes_has_one_effect_and_one_continuation",
        ],
    ),
    (
        "K10",
        "asked to stop",
        &[
            "shutdown_waits_for_a_running_tool_and_the_decider_gets_its_outcome",
            "a_tool_that_outlasts_the_grace_period_is_written_as_interrupted_at_shutdown",
            "a_turn_that_outlasts_the_grace_period_keeps_its_text_and_is_resumed_by_the_next_server",
        ],
    ),
    (
        "V1",
        "killed before a decision is committed",
        &["a_call_whose_decision_a_kill_prevented_is_pending_and_the_next_approval_decides_it"],
    ),
    (
        "V2",
        "a decision is committed and its answer lost",
        &[
            "on_postgres_a_decision_with_a_lost_commit_response_is_replayed_and_runs_once",
            "a_decider_that_disconnects_at_any_moment_has_decided_wholly_or_not_at_all",
        ],
    ),
    (
        "V3",
        "approved, and not started",
        &[
            "after_a_kill_before_the_claim_the_next_server_runs_the_call_once",
            "an_approved_call_not_started_in_time_fails_without_running",
        ],
    ),
    (
        "V4",
        "a COMMIT that nobody heard of",
        &[
            "on_postgres_a_decision_with_a_silent_commit_is_replayed_and_runs_once",
            "on_postgres_a_claim_with_a_lost_commit_response_is_found_by_its_process_and_runs_once",
            "on_postgres_a_claim_with_a_silent_commit_is_found_by_its_process_and_runs_once",
            "on_postgres_a_claim_whose_commit_is_lost_runs_nothing_until_the_next_claim",
            "on_postgres_an_outcome_whose_commit_is_in_doubt_is_written_once_and_reported",
            "on_postgres_an_ungated_call_with_a_lost_commit_response_never_runs",
            "on_postgres_a_question_with_a_lost_commit_response_is_stored_once_when_posted_again",
            "on_postgres_the_end_of_a_turn_whose_commit_is_in_doubt_is_written_once_and_streamed",
        ],
    ),
    (
        "V5",
        "killed after the claim, before the tool begins",
        &["after_a_kill_between_claim_and_effect_the_call_never_runs_again"],
    ),
    (
        "V6",
        "killed in mid-tool",
        &[
            "after_a_kill_while_an_approved_tool_runs_its_outcome_is_unknown_and_it_never_reruns",
            "an_idempotent_call_is_retried_with_the_same_key_after_a_kill_and_the_model_reads_it",
            "an_idempotent_call_is_interrupted_and_not_retried_after_three_kills",
        ],
    ),
    (
        "V7",
        "killed after the tool, before its result is saved",
        &[
            "after_a_kill_between_effect_and_saved_result_the_call_never_runs_again",
            "after_a_kill_between_effect_and_saved_result_the_tool_verifies_the_outcome",
        ],
    ),
    (
        "V8",
        "the result is saved and not told",
        &["an_outcome_is_kept_when_its_decider_disconnects_before_reading_it"],
    ),
    (
        "V9",
        "stands still for longer than a lease, and goes on",
        &[
            "on_postgres_the_late_outcome_of_a_reaped_call_is_sent_as_a_note",
            "an_execution_with_an_expired_lease_is_interrupted_and_its_late_outcome_is_sent",
            "on_postgres_the_late_end_of_a_paused_attempt_changes_nothing_after_a_retry_elsewhere",
        ],
    ),
    ("V10", "a tool panics", &["a_panicking_tool_is_contained_and_leaks_no_internal_detail"]),
    ("V11", "a tool hangs", &["a_tool_that_takes_too_long_has_an_unknown_outcome"]),
    (
        "V12",
        "yes, no and an edit at once at several processes",
        &[
            "on_postgres_fifty_decisions_over_two_processes_have_one_effect_and_get_one_outcome",
            "b1_b2_on_postgres_concurrent_decisions_at_three_processes_have_one_winner",
        ],
    ),
    (
        "V13",
        "a yes, a cancel and the end of time at once",
        &[
            "of_a_concurrent_approval_and_cancel_one_wins_for_each_call",
            "b13_one_of_approval_rejection_and_expiry_wins_each_call_on_sqlite",
            "b13_one_of_approval_rejection_and_expiry_wins_each_call_on_postgres",
        ],
    ),
    (
        "V14",
        "the same decision again and again",
        &["b1_a_hundred_concurrent_identical_decisions_are_one_decision"],
    ),
    (
        "V15",
        "a decision about a call of a deleted thread",
        &[
            "deleting_a_thread_cancels_approved_calls_that_have_not_started",
            "a_call_of_a_deleted_thread_is_not_retried",
        ],
    ),
    (
        "V16",
        "the user writes on while calls wait",
        &[
            "several_late_outcomes_are_each_sent_once_in_the_order_of_the_calls",
            "in_reject_mode_a_new_message_passes_once_the_last_call_is_decided",
            "in_cancel_mode_decided_calls_keep_their_outcome_and_no_outcome_is_sent_twice",
        ],
    ),
    (
        "V17",
        "of two calls that wait one is decided",
        &[
            "of_two_calls_the_decided_one_is_answered_and_the_other_follows_as_a_note",
            "the_last_holds_of_a_run_decided_concurrently_have_one_continuation",
        ],
    ),
    (
        "E1",
        "Postgres crashes, is away, is not there at the start",
        &[
            "on_postgres_a_hold_and_the_server_survive_a_crash_of_the_database",
            "on_postgres_every_acknowledged_decision_survives_database_crashes",
            "on_postgres_a_tool_that_ends_during_a_database_outage_is_settled_after_it",
            "on_postgres_a_server_without_a_database_at_startup_reports_it_and_exits",
            "on_postgres_a_decision_whose_session_is_ended_by_an_operator_is_refused_and_not_made",
        ],
    ),
    (
        "E2",
        "the wire to Postgres breaks, or swallows everything",
        &[
            "on_postgres_a_decision_whose_connection_breaks_is_refused_and_not_made",
            "on_postgres_a_silent_database_connection_blocks_no_request_for_long",
            "on_postgres_a_decision_that_waits_too_long_for_a_lock_is_refused_and_not_made",
        ],
    ),
    (
        "E3",
        "a database that lost commits",
        &[
            "i4_a_call_that_ran_in_the_lost_period_does_not_run_again",
            "fence_closes_every_open_call_and_turn_and_reports_the_truth",
        ],
    ),
    (
        "E4",
        "a transaction was left open in the pool",
        &[
            "on_postgres_an_open_transaction_in_the_pool_loses_no_acknowledged_decision",
            "on_postgres_an_open_read_only_transaction_in_the_pool_blocks_no_decision",
            "a_decider_that_disconnects_at_any_moment_has_decided_wholly_or_not_at_all",
        ],
    ),
    (
        "E5",
        "no connection is left",
        &[
            "on_postgres_without_a_free_connection_chats_get_503_and_decisions_succeed",
            "decisions_and_reads_are_answered_with_two_connections_and_fifty_stuck_tools",
            "on_postgres_a_server_without_its_database_is_live_and_not_ready",
        ],
    ),
    (
        "E6",
        "a pooler gives each transaction another session",
        &[
            "on_postgres_everything_works_through_a_pooler_that_shares_few_sessions",
            "on_postgres_a_session_sharing_pooler_is_refused_with_cached_statements",
        ],
    ),
    (
        "E7",
        "SQLite: no room, or a file that may only be read",
        &[
            "on_sqlite_with_a_full_disk_a_decision_is_refused_and_reads_are_answered",
            "on_sqlite_with_a_full_disk_an_approved_call_starts_only_when_there_is_room",
            "on_sqlite_with_a_full_disk_an_outcome_waits_for_room",
            "on_sqlite_with_a_disk_that_stays_full_the_outcome_becomes_unknown",
            "on_sqlite_a_read_only_file_serves_reads_and_refuses_decisions",
        ],
    ),
    (
        "E8",
        "SQLite: another process writes",
        &["on_sqlite_a_decision_waits_for_another_writer_and_is_refused_if_it_takes_too_long"],
    ),
    (
        "E9",
        "SQLite: a second process",
        &[
            "on_sqlite_one_process_serves_from_a_file_and_the_next_one_after_it",
            "i3_on_sqlite_the_database_files_are_private_and_serve_one_process",
        ],
    ),
    (
        "E10",
        "clocks that differ",
        &[
            "on_postgres_clocks_ten_minutes_apart_end_no_lease_and_no_deadline_early",
            "on_postgres_clocks_ten_minutes_apart_end_expired_leases_and_deadlines",
            "b13_on_postgres_the_database_clock_decides_whether_a_call_has_expired",
        ],
    ),
    (
        "E11",
        "a client leaves, by FIN, RST and HTTP/2",
        &[
            "a_turn_continues_when_its_client_disconnects_mid_text",
            "a_tool_keeps_running_when_its_decider_disconnects",
            "a_question_posted_again_after_a_disconnect_reaches_the_model_once",
        ],
    ),
    (
        "E12",
        "a client that does not read",
        &["e5_a_client_that_reads_nothing_is_cut_off_and_the_turn_continues"],
    ),
    (
        "E13",
        "nobody is told that there is news",
        &[
            "on_postgres_a_decider_that_waits_at_one_process_gets_the_outcome_of_another",
            "on_postgres_a_turn_of_a_killed_process_is_resumed_by_another_after_its_lease_expires",
        ],
    ),
    (
        "E14",
        "killed for want of memory",
        &["after_a_kill_while_an_approved_tool_runs_its_outcome_is_unknown_and_it_never_reruns"],
    ),
    (
        "E15",
        "ten thousand calls that wait",
        &[
            "expired_calls_among_ten_thousand_pending_ones_expire_without_delaying_decisions",
            "more_unstartable_calls_than_one_batch_do_not_starve_the_calls_after_them",
        ],
    ),
    (
        "E16",
        "Postgres fails over to a standby",
        &[
            "on_postgres_no_acknowledged_decision_is_lost_and_nothing_runs_twice_when_a_standby_takes_over",
            "on_postgres_a_decision_is_acknowledged_only_after_a_synchronous_standby_has_it",
        ],
    ),
    ("X1", "a tool is gone", &["a_call_of_a_removed_tool_can_be_rejected_and_not_approved"]),
    (
        "X2",
        "a tool takes something else",
        &[
            "b9_a_shown_hash_is_stale_once_the_schema_of_the_tool_changes",
            "on_postgres_edited_inputs_must_fit_the_tool_of_the_process_that_decides",
        ],
    ),
    (
        "X3",
        "a tool asks nobody any more",
        &["a_pending_call_stays_pending_when_its_tool_no_longer_requires_approval"],
    ),
    ("X4", "a tool asks from now on", &["a_tool_that_newly_requires_approval_holds_only_new_calls"]),
    (
        "X5",
        "processes of two versions",
        &[
            "on_postgres_an_approved_call_runs_only_at_a_process_with_the_approved_tool",
            "on_postgres_an_approval_of_the_old_tool_waits_for_a_process_that_has_it",
            "an_approval_of_a_tool_whose_schema_has_changed_runs_nothing",
        ],
    ),
    (
        "X6",
        "a migration fails, or two make it at once",
        &[
            "a_failed_migration_is_rolled_back_and_the_next_start_completes_it",
            "on_postgres_servers_that_start_together_create_the_schema_once",
        ],
    ),
];

/// Asserts a 503 with `retry-after`: the outcome is unknown, and a retry is safe.
fn assert_unavailable(answer: &Answer) {
    answer.failed_with(503, "unavailable");
    assert!(answer.header("retry-after").is_some(), "the answer has retry-after");
}

/// The first message of a page, with its own client ids.
fn question() -> Value {
    json!({ "id": "page-1", "message": { "id": "m1", "role": "user", "content": "hi" } })
}

/// Collects the names of all tests below this folder.
fn tests(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            let attributed = source.split("#[tokio::test").skip(1);
            let named = attributed.filter_map(|test| test.split_once("fn ")?.1.split_once('('));
            names.extend(named.map(|(name, _)| name.to_owned()));
        }
    }
}

#[test]
fn each_fault_names_existing_tests() {
    let mut there = BTreeSet::new();
    for folder in ["tests/api", "tests/engine", "tests/outside"] {
        tests(&in_repository(folder), &mut there);
    }
    let named = FAULTS.iter().flat_map(|(fault, _, tests)| tests.iter().map(move |test| (fault, *test)));
    let missing: Vec<_> = named.filter(|(_, test)| !there.contains(*test)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let rows: Vec<&str> =
        FAULTS.iter().filter(|(_, _, tests)| !tests.is_empty()).map(|(row, ..)| *row).collect();
    let numbered = |letter: char, count: u32| (1..=count).map(move |n| format!("{letter}{n}"));
    let all = numbered('K', 10).chain(numbered('V', 17)).chain(numbered('E', 16)).chain(numbered('X', 6));
    assert_eq!(rows, all.collect::<Vec<_>>());
}
