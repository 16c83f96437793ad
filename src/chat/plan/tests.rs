//! The table of plans: a view, a request, a client, and what follows.

use super::*;
use RunStatus::{Cancelled, Completed, Failed, Running, Waiting};
use holdpoint_core::call::{Approval, CallEnd, ExecutedBy, Execution, RiskLevel};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::{ExecId, MessageId, RunId, ThreadId, ToolCallId};
use holdpoint_core::message::Window;
use holdpoint_core::run::RunOptions;
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::SecretPaths;
use uuid::Uuid;

/// A page that reads each continuation as a message of its own.
const READS_ANEW: ClientTraits =
    ClientTraits { reposts_until_settled: false, needs_earlier_steps: false, resumes_by_get: true };
/// A page that reads a continuation as more of the same message.
const READS_ON: ClientTraits =
    ClientTraits { reposts_until_settled: true, needs_earlier_steps: true, resumes_by_get: false };

const AT: Timestamp = Timestamp::from_micros(0);
const EXECUTION: Execution = Execution { id: ExecId::new(Uuid::nil()), attempt: 1, started_at: AT };

const POST: Request = Request::Post { decided: None, open: None, has_nothing: false };
const POST_OF_ALL: Request = Request::Post { decided: None, open: None, has_nothing: true };
const WAITED: Request = Request::Waited { step: 1 };

const fn decides(step: i32) -> Request {
    Request::Post { decided: Some(step), open: None, has_nothing: false }
}

/// A client that shows a held call of this step without an end.
const fn shows(step: i32) -> Request {
    Request::Post { decided: None, open: Some(step), has_nothing: false }
}

const fn decides_without_message(step: i32) -> Request {
    Request::Post { decided: Some(step), open: None, has_nothing: true }
}

fn call(step: i32, state: State) -> ToolCall {
    ToolCall {
        id: ToolCallId::new(Uuid::nil()),
        thread_id: ThreadId::new(Uuid::nil()),
        message_id: MessageId::new(Uuid::nil()),
        run_id: RunId::new(Uuid::nil()),
        step,
        wire_call_id: String::new(),
        name: String::new(),
        input: Input::new(),
        secrets: SecretPaths::default(),
        schema_hash: String::new(),
        held: true,
        risk: RiskLevel::Low,
        reason: None,
        preview: None,
        state,
        decision: None,
        created_at: AT,
        expires_at: None,
        remind_at: None,
        escalation: None,
        executed_by: ExecutedBy::Process,
        progress: None,
        model_input: None,
        unreadable: false,
    }
}

fn pending(step: i32) -> ToolCall {
    call(step, State::Pending)
}

fn approved(step: i32) -> ToolCall {
    call(step, State::Approved(Approval { inputs: None, preview: None }))
}

fn rejected(step: i32) -> ToolCall {
    call(step, State::Rejected(CallEnd { result: String::new(), at: AT }))
}

/// A call that was not held and that a child run executes.
fn delegated(step: i32) -> ToolCall {
    let executing = State::Executing(Approval { inputs: None, preview: None }, EXECUTION);
    ToolCall { held: false, executed_by: ExecutedBy::Child(RunId::new(Uuid::nil())), ..call(step, executing) }
}

fn step(n: i32, calls: Vec<ToolCall>) -> Step {
    Step {
        n,
        status: StepStatus::Complete,
        parts: Vec::new(),
        calls,
        usage: None,
        origin: None,
        provider_state: None,
        window: Window::default(),
        created_at: AT,
    }
}

fn interrupted(n: i32) -> Step {
    Step { status: StepStatus::Interrupted, ..step(n, Vec::new()) }
}

/// The last run of its thread, without calls.
fn last(status: RunStatus) -> StoredView {
    let run = Run {
        id: RunId::new(Uuid::nil()),
        thread_id: ThreadId::new(Uuid::nil()),
        assistant_message_id: MessageId::new(Uuid::nil()),
        status,
        resumed_alone: false,
        error: None,
        options: RunOptions::default(),
        created_at: AT,
        finished_at: None,
    };
    StoredView::of(run, true)
}

/// A run before a later message of the user.
fn earlier(status: RunStatus) -> StoredView {
    StoredView { is_last: false, ..last(status) }
}

/// The last run, which pauses for these calls.
fn pauses(status: RunStatus, pausing: Vec<ToolCall>) -> StoredView {
    StoredView { pausing, ..last(status) }
}

/// The last run, which pauses for these calls, and whose outcomes the model has read.
fn was_sent(status: RunStatus, pausing: Vec<ToolCall>) -> StoredView {
    StoredView { outcomes_were_sent: true, ..pauses(status, pausing) }
}

/// The last run, whose running turn follows these steps.
fn running_after(steps_before_turn: Vec<Step>) -> StoredView {
    StoredView { steps_before_turn, ..last(Running) }
}

fn with(steps: Vec<Step>, view: StoredView) -> StoredView {
    StoredView { steps: Some(steps), ..view }
}

fn stopping(view: StoredView) -> StoredView {
    StoredView { is_stopping: true, ..view }
}

fn awaits(step: i32, backfill: Backfill) -> Result<Plan, &'static str> {
    Ok(Plan::Await { step, in_turn: false, backfill })
}

fn awaits_turn(step: i32, backfill: Backfill) -> Result<Plan, &'static str> {
    Ok(Plan::Await { step, in_turn: true, backfill })
}

const fn attaches(backfill: Backfill) -> Result<Plan, &'static str> {
    Ok(Plan::Attach(backfill))
}

const fn resumes(backfill: Backfill) -> Result<Plan, &'static str> {
    Ok(Plan::Resume(backfill))
}

const fn reports(report: Report) -> Result<Plan, &'static str> {
    Ok(Plan::Report(report))
}

const NOTHING_TO_CONTINUE: Result<Plan, &str> = Err("there is nothing to continue");
const TURN_IN_PROGRESS: Result<Plan, &str> = Err("a turn of this thread is under way");
const STOPPING: Result<Plan, &str> = Err("the server is stopping");
const STORED_STATE: Result<Plan, &str> = Ok(Plan::End(None));

fn ends_with(error: TurnError) -> Result<Plan, &'static str> {
    Ok(Plan::End(Some(error)))
}

/// The rows, what follows, and the sentence.
type Row = (StoredView, Result<Plan, &'static str>, &'static str);

fn check(request: Request, client: ClientTraits, rows: Vec<Row>) {
    for (view, expected, sentence) in rows {
        let planned = plan(&view, request, client).map_err(|error| error.to_string());
        assert_eq!(planned, expected.map_err(str::to_owned), "{sentence}");
    }
}

#[test]
fn a_post_resumes_waits_attaches_or_is_refused_by_the_state_of_its_run() {
    use Backfill::{After, Nothing};
    check(
        POST,
        READS_ANEW,
        vec![
            (pauses(Waiting, vec![rejected(1)]), resumes(Nothing), "a paused run without open calls resumes"),
            (
                pauses(Waiting, vec![rejected(1), pending(1)]),
                awaits(1, Nothing),
                "a pending call is waited for",
            ),
            (last(Cancelled), NOTHING_TO_CONTINUE, "a cancelled run has nothing to continue"),
        ],
    );
    check(
        POST,
        READS_ON,
        vec![
            (last(Failed), resumes(Nothing), "a failed run resumes"),
            (pauses(Waiting, vec![approved(1)]), awaits(1, Nothing), "an approved call is waited for"),
            (pauses(Waiting, vec![delegated(1)]), awaits(1, Nothing), "a delegated call is waited for"),
            (
                pauses(Failed, vec![approved(1)]),
                awaits(1, Nothing),
                "a turn may fail between its hold and its end",
            ),
            (last(Completed), NOTHING_TO_CONTINUE, "a completed run has nothing to continue"),
            (earlier(Waiting), NOTHING_TO_CONTINUE, "a run before a later message does not resume"),
            (stopping(last(Failed)), resumes(Nothing), "a stopping process still serves an admitted POST"),
        ],
    );
    check(
        decides(1),
        READS_ON,
        vec![
            (
                pauses(Waiting, vec![rejected(1)]),
                resumes(After(1)),
                "a decided call precedes the turn that resumes",
            ),
            (
                pauses(Waiting, vec![pending(3)]),
                awaits(3, After(1)),
                "a decision on an earlier hold meets the later hold",
            ),
            (last(Completed), awaits(1, Nothing), "a completed run reports a decided call"),
            (earlier(Waiting), awaits(1, Nothing), "a run before a later message reports a decided call"),
        ],
    );
    check(
        decides(1),
        READS_ANEW,
        vec![(last(Cancelled), awaits(1, Nothing), "a cancelled run reports a decided call")],
    );
    check(
        shows(1),
        READS_ON,
        vec![
            (
                pauses(Waiting, vec![pending(3)]),
                awaits(3, After(1)),
                "a client that shows an earlier hold gets the steps up to the later hold",
            ),
            (last(Completed), awaits(1, Nothing), "a completed run reports a call that the client shows"),
            (earlier(Waiting), awaits(1, Nothing), "so does a run before a later message"),
        ],
    );
}

#[test]
fn a_post_after_the_end_of_its_run_reports_the_decided_calls() {
    let held = || vec![step(0, vec![rejected(0)]), step(1, vec![rejected(1)]), step(2, Vec::new())];
    let holds_elsewhere = |view| StoredView { holds_elsewhere: true, ..view };
    for client in [READS_ON, READS_ANEW] {
        check(
            POST,
            client,
            vec![
                (with(held(), last(Completed)), reports(Report::States(1)), "the last step with a hold"),
                (with(held(), last(Cancelled)), reports(Report::States(1)), "also of a cancelled run"),
                (with(held(), earlier(Waiting)), reports(Report::States(1)), "also before a later message"),
                (
                    holds_elsewhere(with(held(), last(Completed))),
                    reports(Report::States(1)),
                    "before the calls of other messages",
                ),
                (
                    holds_elsewhere(with(vec![step(0, Vec::new())], last(Completed))),
                    reports(Report::Elsewhere),
                    "another message of the thread has a held call",
                ),
                (
                    with(vec![step(0, vec![delegated(0)])], last(Completed)),
                    NOTHING_TO_CONTINUE,
                    "a call that is not held needs no answer",
                ),
            ],
        );
        check(
            POST_OF_ALL,
            client,
            vec![
                (last(Completed), reports(Report::Whole), "a client that has nothing gets the whole answer"),
                (with(held(), last(Cancelled)), reports(Report::Whole), "with its calls"),
            ],
        );
    }
}

#[test]
fn a_post_reads_the_running_turn_unless_its_client_has_read_that_turn() {
    use Backfill::{After, Nothing};
    let after_hold = || running_after(vec![step(0, Vec::new()), step(1, vec![rejected(1)])]);
    check(
        POST,
        READS_ANEW,
        vec![(last(Running), attaches(Nothing), "a client without decisions reads the running turn")],
    );
    check(
        decides(1),
        READS_ON,
        vec![(after_hold(), attaches(After(1)), "a decided call precedes the running turn")],
    );
    check(
        decides(0),
        READS_ON,
        vec![(
            after_hold(),
            attaches(After(0)),
            "a step between the decided call and the turn is backfilled",
        )],
    );
    check(
        decides(2),
        READS_ON,
        vec![(after_hold(), awaits_turn(2, Nothing), "the turn itself holds the decided call")],
    );
    check(
        shows(0),
        READS_ON,
        vec![(after_hold(), attaches(After(0)), "a call that the client shows is reported before the turn")],
    );
    check(
        shows(2),
        READS_ON,
        vec![(after_hold(), attaches(Nothing), "the turn itself reports the call that the client shows")],
    );
    check(
        decides(0),
        READS_ANEW,
        vec![(
            running_after(Vec::new()),
            awaits_turn(0, Nothing),
            "the first turn of the run holds the decided call",
        )],
    );
}

#[test]
fn a_client_that_has_nothing_gets_the_whole_message() {
    use Backfill::Whole;
    let after_hold = || running_after(vec![step(1, vec![rejected(1)])]);
    check(
        POST_OF_ALL,
        READS_ON,
        vec![
            (last(Running), attaches(Whole), "before the running turn"),
            (last(Failed), resumes(Whole), "before the turn that resumes"),
            (pauses(Waiting, vec![pending(1)]), awaits(1, Whole), "before a wait for calls"),
        ],
    );
    check(
        decides_without_message(1),
        READS_ON,
        vec![
            (last(Completed), awaits(1, Whole), "before a report of a decided call"),
            (after_hold(), attaches(Whole), "in place of the steps after a decided call"),
        ],
    );
    check(
        decides_without_message(2),
        READS_ON,
        vec![(after_hold(), awaits_turn(2, Whole), "before a wait for the running turn")],
    );
    check(
        POST_OF_ALL,
        READS_ANEW,
        vec![
            (last(Failed), resumes(Whole), "a client that reads each turn anew lost the answer too"),
            (last(Running), attaches(Whole), "also before the running turn"),
        ],
    );
    check(
        decides_without_message(1),
        READS_ANEW,
        vec![(after_hold(), attaches(Whole), "in place of the steps after a decided call")],
    );
}

#[test]
fn a_get_attaches_and_resumes_only_for_a_client_that_resumes_by_get() {
    use Backfill::{Nothing, Whole};
    let decided = || vec![rejected(1)];
    check(
        Request::Get,
        READS_ANEW,
        vec![
            (last(Running), attaches(Nothing), "a running turn"),
            (pauses(Waiting, decided()), resumes(Nothing), "unread outcomes resume the run"),
            (pauses(Failed, decided()), resumes(Nothing), "unread outcomes of a failed turn too"),
            (pauses(Waiting, vec![approved(1)]), awaits(1, Nothing), "an approved call is waited for"),
            (pauses(Waiting, vec![rejected(1), pending(1)]), STORED_STATE, "a pending call has no outcome"),
            (was_sent(Failed, decided()), STORED_STATE, "after the model read them, the user has to retry"),
            (last(Failed), STORED_STATE, "a failed run without a hold does not resume by itself"),
            (pauses(Waiting, vec![delegated(1)]), STORED_STATE, "a delegated call was no hold"),
            (last(Completed), STORED_STATE, "a completed run"),
            (last(Cancelled), STORED_STATE, "a cancelled run"),
            (stopping(pauses(Waiting, decided())), STOPPING, "a stopping process resumes nothing"),
            (stopping(last(Completed)), STORED_STATE, "a stopping process has nothing to refuse"),
        ],
    );
    check(
        Request::Get,
        READS_ON,
        vec![
            (last(Running), attaches(Whole), "a running turn after the earlier steps"),
            (pauses(Waiting, decided()), STORED_STATE, "other clients resume with a POST"),
        ],
    );
}

#[test]
fn the_server_resumes_only_a_paused_run_without_open_calls() {
    let none = ClientTraits::NO_CLIENT;
    check(
        Request::Server,
        none,
        vec![
            (pauses(Waiting, vec![rejected(1)]), resumes(Backfill::Nothing), "all calls have ended"),
            (last(Failed), resumes(Backfill::Nothing), "a failed run"),
            (pauses(Waiting, vec![delegated(1)]), awaits(1, Backfill::Nothing), "a call is open"),
            (last(Running), TURN_IN_PROGRESS, "a turn is running"),
            (last(Completed), NOTHING_TO_CONTINUE, "the run is completed"),
            (last(Cancelled), NOTHING_TO_CONTINUE, "the run is cancelled"),
        ],
    );
}

#[test]
fn after_a_wait_the_run_resumes_only_after_the_last_step_of_the_client() {
    use Backfill::{After, Nothing};
    let unknown = || ends_with(TurnError::outcome_not_known_yet());
    let held = |calls| vec![step(0, Vec::new()), step(1, calls)];
    let ended = || held(vec![rejected(1)]);
    let later_hold = || [ended(), vec![step(2, vec![rejected(2)])]].concat();
    let broken_off = || [ended(), vec![interrupted(2)]].concat();
    check(
        WAITED,
        READS_ON,
        vec![
            (with(ended(), last(Waiting)), resumes(Nothing), "all calls have ended"),
            (with(broken_off(), last(Failed)), resumes(Nothing), "a step that broke off is written again"),
            (with(held(vec![rejected(1), approved(1)]), last(Waiting)), unknown(), "a call is under way"),
            (
                with(held(vec![approved(1)]), last(Cancelled)),
                unknown(),
                "a call is under way in a cancelled run",
            ),
            (
                with(held(vec![rejected(1), pending(1)]), last(Waiting)),
                STORED_STATE,
                "another call of the step is pending",
            ),
            (
                with(held(vec![rejected(1), delegated(1)]), last(Waiting)),
                STORED_STATE,
                "another call of the step is delegated",
            ),
            (with(later_hold(), last(Waiting)), STORED_STATE, "the run has reached another hold"),
            (with(ended(), last(Completed)), STORED_STATE, "the run is completed"),
            (with(ended(), earlier(Waiting)), STORED_STATE, "the user sent a later message"),
            (
                stopping(with(ended(), last(Waiting))),
                ends_with(TurnError::interrupted()),
                "a process that stops resumes nothing",
            ),
            (
                stopping(with(ended(), last(Completed))),
                STORED_STATE,
                "a process that stops reports a completed run",
            ),
            (with(ended(), running_after(ended())), attaches(After(1)), "another turn runs after the step"),
            (
                with(ended(), running_after(vec![step(0, Vec::new())])),
                unknown(),
                "the turn of the step still runs",
            ),
            (with(ended(), running_after(Vec::new())), unknown(), "the first turn of the run still runs"),
            (
                with(ended(), running_after(vec![step(2, Vec::new())])),
                unknown(),
                "the clock was set back after the step",
            ),
        ],
    );
    check(
        WAITED,
        READS_ANEW,
        vec![
            (with(ended(), last(Failed)), resumes(Nothing), "all calls have ended and the turn failed"),
            (with(ended(), last(Cancelled)), STORED_STATE, "the run is cancelled"),
        ],
    );
}
