//! Faults: where a process can die, what a decision can run into, what can be wrong around the server, and what can
//! change while a call waits.

mod clocks;
mod many;
mod migrations;
mod pooler;
mod postgres;
mod restarts;
mod sqlite;
mod unknown_commit;

use crate::support::Answer;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Each fault by its number in the list of them, and the tests that make it happen: K a turn whose process is killed,
/// V a decision and its tool, E what is around the server, X what changes while a call waits. X7, a move from
/// SQLite to Postgres, is not there yet.
const FAULTS: &[(&str, &str, &[&str])] = &[
    (
        "K1",
        "killed before a question is committed",
        &[
            "killed_before_a_question_is_committed_it_was_never_asked_and_is_taken_when_it_is_posted_again",
            "on_postgres_a_question_that_was_lost_on_its_way_is_taken_when_it_is_posted_again",
        ],
    ),
    (
        "K2",
        "killed before the model says a word",
        &["killed_before_the_model_says_a_word_the_question_stands_and_is_answered_when_somebody_asks"],
    ),
    (
        "K3",
        "killed in mid-words",
        &["killed_while_the_model_speaks_the_run_is_closed_and_continuing_writes_the_same_message"],
    ),
    (
        "K4",
        "an answer breaks off in a call's arguments",
        &[
            "k4_killed_while_the_arguments_are_written_no_call_is_there_and_the_answer_is_written_anew",
            "a_call_that_breaks_off_is_not_asked_about",
        ],
    ),
    (
        "K5",
        "all calls are there and not committed",
        &[
            "k5_killed_between_the_end_of_the_model_and_the_commit_nothing_was_shown_and_nothing_is_there",
            "on_postgres_a_hold_that_was_lost_on_its_way_is_shown_nowhere_and_asked_for_anew",
            "on_sqlite_with_a_full_disk_a_step_asks_for_nothing_and_its_thread_goes_on_once_there_is_room",
        ],
    ),
    (
        "K6",
        "a hold is committed and not told",
        &[
            "k6_killed_between_the_commit_and_the_annotation_the_card_is_there_and_what_ran_is_unknown",
            "on_postgres_a_hold_whose_commit_nobody_heard_of_is_there_when_the_page_is_loaded_anew",
        ],
    ),
    (
        "K7",
        "a hold is told and its stream not ended",
        &["k7_killed_between_the_annotation_and_the_end_of_the_stream_the_card_is_there"],
    ),
    (
        "K8",
        "killed while one call of a step runs by itself",
        &[
            "k6_killed_between_the_commit_and_the_annotation_the_card_is_there_and_what_ran_is_unknown",
            "killed_while_an_ungated_tool_runs_its_outcome_is_unknown_and_the_thread_goes_on",
        ],
    ),
    (
        "K9",
        "killed after the last decision, before the model is asked",
        &[
            "killed_while_a_call_is_pending_it_still_is_and_a_yes_runs_it_once",
            "on_postgres_the_last_hold_decided_at_two_processes_has_one_effect_and_one_continuation",
        ],
    ),
    (
        "K10",
        "asked to stop",
        &[
            "asked_to_stop_while_a_tool_runs_the_server_waits_and_the_decider_gets_the_outcome",
            "a_tool_that_outlasts_the_grace_time_is_written_as_unknown_by_the_server_that_leaves",
            "a_turn_that_outlasts_the_grace_time_keeps_its_words_and_is_gone_on_with_by_the_next_server",
        ],
    ),
    (
        "V1",
        "killed before a decision is committed",
        &["killed_before_a_decision_is_committed_the_call_is_pending_and_the_next_yes_decides_it"],
    ),
    (
        "V2",
        "a decision is committed and its answer lost",
        &[
            "on_postgres_a_decision_that_was_made_unheard_is_replayed_and_runs_once",
            "a_decider_that_leaves_at_any_moment_has_decided_wholly_or_not_at_all",
        ],
    ),
    (
        "V3",
        "approved, and nobody has begun",
        &[
            "killed_before_the_claim_the_next_server_runs_it_once",
            "a_yes_that_nobody_acted_on_in_time_is_failed_and_did_not_run",
        ],
    ),
    (
        "V4",
        "a COMMIT that nobody heard of",
        &[
            "on_postgres_a_decision_that_was_made_in_silence_is_replayed_and_runs_once",
            "on_postgres_a_claim_that_was_made_unheard_is_found_by_who_made_it_and_runs_once",
            "on_postgres_a_claim_that_was_made_in_silence_is_found_by_who_made_it_and_runs_once",
            "on_postgres_a_claim_that_was_lost_on_its_way_runs_nothing_until_the_next",
            "on_postgres_an_outcome_whose_commit_nobody_heard_of_is_written_once_and_told_as_it_was",
            "on_postgres_an_ungated_call_whose_commit_nobody_heard_of_is_run_by_nobody",
            "on_postgres_a_question_that_was_taken_unheard_is_the_same_when_it_is_posted_again",
            "on_postgres_the_end_of_a_turn_whose_commit_nobody_heard_of_is_told_as_it_was",
        ],
    ),
    (
        "V5",
        "killed after the claim, before the tool begins",
        &["killed_after_the_claim_and_before_the_effect_nobody_runs_it_again"],
    ),
    (
        "V6",
        "killed in mid-tool",
        &[
            "killed_while_an_approved_tool_runs_its_outcome_is_unknown_and_it_never_runs_again",
            "killed_while_it_runs_it_is_begun_again_with_the_same_key_and_the_model_reads_its_outcome",
            "killed_three_times_its_outcome_is_unknown_and_it_is_begun_no_more",
        ],
    ),
    (
        "V7",
        "killed after the tool, before its result is saved",
        &[
            "killed_after_the_tool_and_before_its_result_is_saved_nobody_runs_it_again",
            "killed_after_the_effect_and_before_its_result_is_saved_the_tool_tells_it_later",
        ],
    ),
    (
        "V8",
        "the result is saved and not told",
        &["an_outcome_stays_when_its_decider_leaves_before_reading_it"],
    ),
    (
        "V9",
        "stands still for longer than a lease, and goes on",
        &[
            "on_postgres_what_was_taken_for_dead_and_ends_late_is_told_as_a_note",
            "an_execution_whose_lease_is_over_is_interrupted_and_its_late_outcome_is_told",
            "on_postgres_one_that_was_paused_and_is_begun_again_elsewhere_changes_nothing_when_it_ends",
        ],
    ),
    ("V10", "a tool panics", &["a_tool_that_breaks_takes_nothing_with_it_and_tells_nothing_internal"]),
    ("V11", "a tool hangs", &["a_tool_that_takes_too_long_has_an_unknown_outcome"]),
    (
        "V12",
        "yes, no and an edit at once at several processes",
        &[
            "on_postgres_fifty_deciders_over_two_processes_have_one_effect_and_are_told_one_outcome",
            "b1_b2_on_postgres_over_three_processes_as_well",
        ],
    ),
    (
        "V13",
        "a yes, a cancel and the end of time at once",
        &[
            "of_a_yes_and_a_cancel_at_once_one_wins_each_call",
            "b13_of_a_yes_a_no_and_the_end_of_time_one_wins_each_call_on_sqlite",
            "b13_of_a_yes_a_no_and_the_end_of_time_one_wins_each_call_on_postgres",
        ],
    ),
    ("V14", "the same decision again and again", &["b1_the_same_decision_a_hundred_times_at_once_is_one"]),
    (
        "V15",
        "a decision about a call of a deleted thread",
        &[
            "deleting_a_thread_takes_back_what_was_approved_and_not_begun",
            "one_of_a_deleted_thread_is_not_begun_again",
        ],
    ),
    (
        "V16",
        "the user writes on while calls wait",
        &[
            "several_late_outcomes_are_each_told_once_in_the_order_of_the_calls",
            "where_a_new_message_may_not_pass_it_may_once_the_last_of_two_is_decided",
            "where_a_new_message_cancels_what_was_decided_stands_and_nothing_is_told_twice",
        ],
    ),
    (
        "V17",
        "of two calls that wait one is decided",
        &[
            "of_two_calls_the_decided_one_is_answered_and_the_other_told_later",
            "the_last_holds_of_a_run_decided_by_hand_and_in_parts_have_one_continuation",
        ],
    ),
    (
        "E1",
        "Postgres crashes, is away, is not there at the start",
        &[
            "on_postgres_a_hold_outlives_a_crash_of_the_database_and_the_server_goes_on",
            "on_postgres_every_acknowledged_decision_outlives_crashes_of_the_database_in_mid_decision",
            "on_postgres_a_tool_that_ends_while_the_database_is_away_is_settled_when_it_is_back",
            "on_postgres_a_server_that_finds_no_database_at_its_start_says_so_and_ends",
            "on_postgres_a_decision_whose_session_is_ended_by_an_operator_is_refused_and_not_made",
        ],
    ),
    (
        "E2",
        "the wire to Postgres breaks, or swallows everything",
        &[
            "on_postgres_a_decision_whose_wire_breaks_is_refused_and_not_made",
            "on_postgres_a_wire_that_swallows_everything_takes_nobody_with_it",
            "on_postgres_a_decision_that_waits_too_long_for_a_lock_is_refused_and_not_made",
        ],
    ),
    (
        "E3",
        "a database that lost commits",
        &[
            "i4_what_ran_in_the_time_that_was_lost_does_not_run_again",
            "whatever_is_open_is_closed_and_told_truthfully",
        ],
    ),
    (
        "E4",
        "a transaction was left open in the pool",
        &[
            "on_postgres_a_transaction_that_was_left_open_in_the_pool_loses_no_acknowledged_decision",
            "on_postgres_a_view_that_was_left_open_in_the_pool_stops_no_decision",
            "a_decider_that_leaves_at_any_moment_has_decided_wholly_or_not_at_all",
        ],
    ),
    (
        "E5",
        "no connection is left",
        &[
            "on_postgres_without_a_connection_left_chats_are_told_to_come_again_and_decisions_are_made",
            "with_two_connections_and_fifty_stuck_tools_decisions_and_reads_still_answer",
            "on_postgres_a_server_without_its_database_lives_but_is_not_ready",
        ],
    ),
    (
        "E6",
        "a pooler gives each transaction another session",
        &[
            "on_postgres_everything_works_behind_a_pooler_that_shares_few_sessions",
            "on_postgres_a_pooler_that_shares_sessions_is_refused_by_who_keeps_statements_in_them",
        ],
    ),
    (
        "E7",
        "SQLite: no room, or a file that may only be read",
        &[
            "on_sqlite_with_a_full_disk_a_decision_is_refused_and_reads_are_answered",
            "on_sqlite_with_a_full_disk_an_approved_call_is_not_begun_and_is_once_there_is_room",
            "on_sqlite_with_a_full_disk_an_outcome_waits_for_room",
            "on_sqlite_with_a_disk_that_stays_full_an_outcome_is_unknown_in_the_end",
            "on_sqlite_a_file_that_may_only_be_read_is_read_and_decides_nothing",
        ],
    ),
    (
        "E8",
        "SQLite: another process writes",
        &["on_sqlite_while_another_process_writes_a_decision_waits_and_then_is_refused_and_not_made"],
    ),
    (
        "E9",
        "SQLite: a second process",
        &[
            "on_sqlite_one_process_serves_from_a_file_and_the_next_one_after_it",
            "i3_on_sqlite_nobody_else_reads_the_files_and_no_second_process_serves_them",
        ],
    ),
    (
        "E10",
        "clocks that differ",
        &[
            "on_postgres_clocks_ten_minutes_apart_end_no_lease_and_no_deadline_early",
            "on_postgres_clocks_ten_minutes_apart_end_leases_and_deadlines_when_they_are_over",
            "b13_on_postgres_the_databases_clock_says_whether_time_is_over",
        ],
    ),
    (
        "E11",
        "a client leaves, by FIN, RST and HTTP/2",
        &[
            "a_turn_goes_on_when_its_client_leaves_in_mid_words",
            "a_tool_goes_on_when_its_decider_leaves_while_it_runs",
            "a_question_from_who_leaves_at_any_moment_is_asked_once_when_the_page_posts_it_again",
        ],
    ),
    (
        "E12",
        "a client that does not read",
        &["e5_a_client_that_reads_nothing_is_cut_off_and_the_turn_goes_on"],
    ),
    (
        "E13",
        "nobody is told that there is news",
        &[
            "on_postgres_a_decider_who_waits_at_one_process_gets_the_outcome_of_another",
            "on_postgres_a_turn_of_a_killed_process_is_gone_on_with_by_another_once_its_lease_is_over",
        ],
    ),
    (
        "E14",
        "killed for want of memory",
        &["killed_while_an_approved_tool_runs_its_outcome_is_unknown_and_it_never_runs_again"],
    ),
    (
        "E15",
        "ten thousand calls that wait",
        &[
            "of_ten_thousand_that_wait_those_whose_time_is_over_expire_and_nobody_is_held_up",
            "more_calls_than_one_look_finds_and_nobody_here_can_begin_hide_none_behind_them",
        ],
    ),
    ("X1", "a tool is gone", &["a_tool_that_is_gone_cannot_be_approved_but_rejected"]),
    (
        "X2",
        "a tool takes something else",
        &[
            "b9_what_was_shown_is_stale_once_the_tool_takes_something_else",
            "on_postgres_edited_inputs_have_to_fit_the_tool_of_the_process_that_takes_them",
        ],
    ),
    (
        "X3",
        "a tool asks nobody any more",
        &["a_call_that_waits_still_does_when_its_tool_asks_nobody_any_more"],
    ),
    ("X4", "a tool asks from now on", &["a_tool_that_asks_from_now_on_asks_about_new_calls_alone"]),
    (
        "X5",
        "processes of two versions",
        &[
            "on_postgres_what_was_decided_on_runs_only_where_it_is_that",
            "on_postgres_a_yes_to_the_old_tool_waits_for_a_process_that_has_it",
            "a_yes_to_a_tool_that_takes_something_else_now_runs_nothing",
        ],
    ),
    (
        "X6",
        "a migration fails, or two make it at once",
        &[
            "a_migration_that_fails_leaves_nothing_behind_and_the_next_start_makes_it_whole",
            "on_postgres_servers_that_start_together_make_the_schema_once",
        ],
    ),
];

/// Nobody knows what became of it, and asking again is safe.
fn assert_unavailable(answer: &Answer) {
    assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{:?}", answer.body);
    assert!(answer.header("retry-after").is_some(), "it says when to ask again");
}

/// A page's first message, under its own name.
fn question() -> Value {
    json!({ "id": "page-1", "message": { "id": "m1", "role": "user", "content": "hi" } })
}

/// The names of all tests below this folder.
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
fn each_fault_has_tests_that_are_there() {
    let mut there = BTreeSet::new();
    tests(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it")), &mut there);
    let named = FAULTS.iter().flat_map(|(fault, _, tests)| tests.iter().map(move |test| (fault, *test)));
    let missing: Vec<_> = named.filter(|(_, test)| !there.contains(*test)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let rows: Vec<&str> =
        FAULTS.iter().filter(|(_, _, tests)| !tests.is_empty()).map(|(row, ..)| *row).collect();
    let numbered = |letter: char, count: u32| (1..=count).map(move |n| format!("{letter}{n}"));
    let all = numbered('K', 10).chain(numbered('V', 17)).chain(numbered('E', 15)).chain(numbered('X', 6));
    assert_eq!(rows, all.collect::<Vec<_>>());
}
