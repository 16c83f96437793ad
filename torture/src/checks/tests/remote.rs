//! The checks of remote tools.

use super::*;

/// The lines of an execution whose tool does not know its call.
fn unnamed(nth: u64, at: i64) -> LedgerLine {
    let unknown = LedgerLine { call: String::new(), key: String::new(), nth: Some(nth), ..line("start", at) };
    LedgerLine { tenant: None, user: None, schema_hash: String::new(), ..unknown }
}

fn named(mut ledger: Vec<LedgerLine>, calls: &[(&str, i64)]) -> Vec<String> {
    let mut rows = Rows::default();
    for (id, claimed) in calls {
        rows.calls.push(call(id));
        let claimed = event("tool.started", *claimed);
        rows.events.push(EventRow { tool_call_id: Some((*id).to_owned()), ..claimed });
    }
    crate::checks::unnamed::name_calls(&mut ledger, &rows);
    ledger.into_iter().map(|line| line.call).collect()
}

#[test]
fn an_execution_without_a_call_belongs_to_the_call_with_its_inputs_that_was_claimed_last() {
    assert_eq!(named(vec![unnamed(1, 3)], &[("a", 2)]), ["a"]);
    let twins = [("a", 2), ("b", 5)];
    assert_eq!(named(vec![unnamed(1, 6), unnamed(2, 3)], &twins), ["b", "a"]);
    assert_eq!(named(vec![unnamed(1, 3)], &twins), ["a"]);
    let end = LedgerLine { what: "end".to_owned(), ..unnamed(1, 4) };
    assert_eq!(named(vec![unnamed(1, 3), end], &twins), ["a", "a"]);
}

#[test]
fn a_second_execution_of_one_call_and_an_execution_of_no_call_are_found() {
    assert_eq!(named(vec![unnamed(1, 3), unnamed(2, 4)], &[("a", 2)]), ["a", "a"]);
    let of_no_call = named(vec![unnamed(1, 3)], &[]);
    assert!(of_no_call[0].starts_with("pay with "), "{of_no_call:?}");
    let mut records = valid_records();
    records.ledger.push(LedgerLine { call: of_no_call[0].clone(), ..unnamed(1, 3) });
    assert!(all(&records).iter().any(|violation| violation.id == "S6"));
}

#[test]
fn a_report_that_was_acknowledged_and_is_not_in_force_is_found() {
    let report = |outcome: &str| {
        let mut records = valid_records();
        records.ledger.push(LedgerLine { outcome: Some(outcome.to_owned()), ..line("reported", 6) });
        all(&records).iter().map(|violation| violation.id).collect::<Vec<_>>()
    };
    assert_eq!(report("ok"), [""; 0]);
    assert_eq!(report("fail"), ["D9"]);
    assert_eq!(report("refused"), ["D9"]);
}

#[test]
fn only_a_service_may_begin_with_a_call_whose_server_is_dead() {
    let started = |tool: &str, seen: &str, at: i64| {
        let mut records = valid_records();
        for line in &mut records.ledger {
            line.tool = tool.to_owned();
        }
        let start = &mut records.ledger[0];
        (start.seen_state, start.at) = (Some(seen.to_owned()), at);
        all(&records).iter().filter(|violation| violation.id == "S1").count()
    };
    let at = valid_records().ledger[0].at;
    assert_eq!(started("pay_http", "interrupted", at), 0);
    assert_eq!(started("bank__pay", "interrupted", at), 1);
    assert_eq!(started("pay_http", "approved", at), 1);
    // Before its claim there was no request.
    assert!(started("pay_http", "interrupted", SECOND) > 0);
}

#[test]
fn a_crash_is_a_cause_for_the_other_executions_of_its_process() {
    let interrupted = |crashed: Option<u32>| {
        let mut records = valid_records();
        records.rows.calls[0].state = "interrupted".to_owned();
        records.rows.events[4].kind = "tool.interrupted".to_owned();
        records.ledger.truncate(1);
        records.ledger[0].tool = "bank__pay".to_owned();
        if let Some(pid) = crashed {
            records.rows.calls.push(call("other"));
            records.rows.calls[1].arguments = r#"{"n":2,"then":"crash"}"#.to_owned();
            let at = records.ledger[0].at;
            records.ledger.push(LedgerLine { call: "other".to_owned(), at, pid, ..line("effect", 0) });
        }
        all(&records).iter().filter(|violation| violation.id == "I1").count()
    };
    assert_eq!([None, Some(8), Some(7)].map(interrupted), [1, 1, 0]);
}

#[test]
fn a_call_that_waits_for_a_worker_is_truly_reported_as_under_way() {
    let untrue = |tool: &str| {
        let mut records = valid_records();
        let row = &mut records.rows.calls[0];
        (row.name, row.state, row.held, row.exec_id) = (tool.to_owned(), "failed".to_owned(), false, None);
        let text = "Under way, or cut off: the outcome is not known yet.";
        records.rows.sent[0].text = text.to_owned();
        records.model_requests[1].messages[2]["content"] = text.into();
        all(&records).iter().filter(|violation| violation.id == "H2").count()
    };
    assert_eq!(["note_worker", "note"].map(untrue), [0, 1]);
}
