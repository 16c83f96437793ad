//! The check of interrupted executions.

use super::*;

#[test]
fn an_interruption_without_a_cause_is_found() {
    let cut_off = |it: &mut Records| {
        let row = &mut it.rows.calls[0];
        row.state = "interrupted".to_owned();
        row.output = None;
        row.result = Some("The outcome is unknown".to_owned());
        it.rows.events[4].kind = "tool.interrupted".to_owned();
        it.rows.sent[0].text = "The outcome is unknown".to_owned();
        it.model_requests[1].messages[2]["content"] = "The outcome is unknown".into();
        it.ledger.truncate(1);
        it.decision_requests.remove(0);
        it.observations[2].state = "interrupted".to_owned();
        it.observations[2].result = Some("The outcome is unknown".to_owned());
        it.turns[0].content.facts.pop();
    };
    assert_eq!(broken(cut_off), ["I1"]);
    let lines = valid_records().ledger;
    let after_the_effect = |it: &mut Records, left: usize| {
        cut_off(it);
        it.ledger = lines[..left].to_vec();
    };
    assert_eq!(broken(|it| after_the_effect(it, 3)), ["I1"]);
    assert_eq!(broken(|it| after_the_effect(it, 2)), Vec::<&str>::new());
    let kill = |pid: u32| Deed { at: 4 * SECOND, until: 4 * SECOND, kind: DeedKind::Kill, ..start(pid, "") };
    let killed = |it: &mut Records, pid: u32| {
        cut_off(it);
        it.deeds.push(kill(pid));
    };
    assert_eq!(broken(|it| killed(it, 7)), Vec::<&str>::new());
    assert_eq!(broken(|it| killed(it, 8)), ["I1"]);
    let another_was_killed = |it: &mut Records| {
        after_the_effect(it, 3);
        it.deeds.push(kill(8));
    };
    assert_eq!(broken(another_was_killed), Vec::<&str>::new());
    let another_was_paused = |it: &mut Records, until: i64| {
        cut_off(it);
        let kind = DeedKind::Pause;
        it.deeds.push(Deed { at: 0, until, kind, ..start(8, "") });
    };
    assert_eq!(broken(|it| another_was_paused(it, 9 * SECOND)), Vec::<&str>::new());
    let claimed = valid_records().rows.events.iter().find(|event| event.kind == "tool.started").unwrap().at;
    assert_eq!(broken(|it| another_was_paused(it, claimed + SECOND / 2)), ["I1"]);
}
