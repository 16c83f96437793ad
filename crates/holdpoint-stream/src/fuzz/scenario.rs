//! Random scenarios of messages, with everything that a model, tools and people can contribute.

use holdpoint_core::message::{File, Source};
use holdpoint_core::run::TurnErrorCode;
use holdpoint_core::tool::input::Input;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// What happens while a message is written.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) steps: Vec<ScenarioStep>,
    /// Whether calls that are still pending are emitted again, in a turn of their own.
    pub(super) repeated: bool,
    /// The lengths of the chunks in which the bytes arrive. The lengths repeat.
    pub(super) pieces: Vec<usize>,
    /// The number of events between two keep-alives.
    pub(super) alive: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct ScenarioStep {
    pub(super) pieces: Vec<Piece>,
    pub(super) end: End,
    pub(super) usage: Option<(u32, u32)>,
    /// Whether a reloaded page reads the turn that starts with this step, if one does.
    pub(super) loaded_anew: bool,
    /// Whether the held calls of this step are decided during the turn, if another step follows.
    pub(super) answered: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text(String),
    Thought(String),
    /// The current text or reasoning ends.
    End,
    Source(Source),
    File(File),
    Call(Box<ScenarioCall>),
}

#[derive(Debug, Clone)]
pub(super) struct ScenarioCall {
    pub(super) tool: String,
    pub(super) input: Input,
    /// The arguments in chunks. For a call that can run, the chunks add up to the JSON of the input.
    pub(super) written: Vec<String>,
    /// Whether the arguments are interleaved with other events.
    pub(super) beside: bool,
    pub(super) fate: CallFate,
}

#[derive(Debug, Clone)]
pub(super) enum CallFate {
    Invalid(String),
    /// The call repeats a pending call.
    Duplicate,
    Cleared(Outcome),
    Held(Hold),
}

/// A held call.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) verdict: Verdict,
    /// The approver's edit of the inputs.
    pub(super) edit: Option<Input>,
    /// Whether the call is decided before the page receives the approval request.
    pub(super) meanwhile: bool,
    /// The decision of this page, if it makes one. The decision may count, come too late, or differ from the
    /// decision in force.
    pub(super) page: Option<bool>,
}

#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Output(Value),
    Failure(String),
    Unknown,
}

#[derive(Debug, Clone)]
pub(super) enum Verdict {
    Yes(Outcome),
    No(Option<String>),
    Late,
    Withdrawn,
    /// The call is approved, and not started in time.
    NotStarted,
    /// The call is approved, and withdrawn before it starts.
    WithdrawnAfter,
    /// The call is approved and still runs. If the message continues after the call, the call is withdrawn
    /// instead.
    Runs,
    /// The call is still pending. If the message continues after the call, the call is withdrawn instead.
    Open,
}

#[derive(Debug, Clone)]
pub(super) enum End {
    Whole,
    /// The turn fails during the step.
    Broken(TurnErrorCode, String),
    /// The turn is cancelled while the calls of the step run.
    Stopped,
}

/// Texts that are special in lines, in JSON or JavaScript strings, in objects, or in encodings.
const ODD: &[&str] = &[
    "\u{2028}",
    "\u{2029}",
    "\0",
    "\u{feff}",
    "\u{fffd}",
    "\\ud800",
    "\\u0000",
    "\"",
    "\\",
    "\n",
    "\r\n",
    "\n\n",
    "\t",
    "3:\"x\"\n",
    "\n0:\"x\"\n",
    "d:{}",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "é",
    "😀",
    "👩‍👧",
    "\u{7f}",
    "\u{85}",
    "\u{10ffff}",
    "__proto__",
    "constructor",
    "toJSON",
    "then",
    "length",
    "0",
    "</script>",
    "data: ",
    " ",
];

fn words() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => select(ODD).prop_map(str::to_owned),
        3 => vec(any::<char>(), 0..8).prop_map(|chars| chars.into_iter().collect()),
        3 => vec(prop::char::range('a', 'z'), 0..12).prop_map(|chars| chars.into_iter().collect()),
    ];
    let short = vec(piece, 0..5).prop_map(|pieces| pieces.concat());
    let long = (select(ODD), 1000..4000_usize).prop_map(|(odd, times)| odd.repeat(times));
    prop_oneof![600 => short, 1 => long]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|it| json!(it)),
        any::<i32>().prop_map(|it| json!(it)),
        // A double that every JSON parser reads as the same value.
        any::<i32>().prop_map(|it| json!(f64::from(it) / 8.0 + 0.0625)),
        words().prop_map(|it| json!(it)),
        // Pages of 5 to 7 reject an object of this kind.
        Just(json!({ "constructor": { "prototype": {} } })),
        Just(json!({ "constructor": null })),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|it| json!(it)),
            vec((words(), inner), 0..4).prop_map(|it| Value::Object(it.into_iter().collect())),
        ]
    })
}

fn inputs() -> impl Strategy<Value = Input> {
    vec((words(), values()), 0..4).prop_map(|it| it.into_iter().collect())
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => values().prop_map(Outcome::Output),
        2 => words().prop_map(Outcome::Failure),
        1 => Just(Outcome::Unknown),
    ]
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        4 => outcomes().prop_map(Verdict::Yes),
        2 => option::of(words()).prop_map(Verdict::No),
        1 => Just(Verdict::Late),
        1 => Just(Verdict::Withdrawn),
        1 => Just(Verdict::NotStarted),
        1 => Just(Verdict::WithdrawnAfter),
        1 => Just(Verdict::Runs),
        2 => Just(Verdict::Open),
    ]
}

fn holds() -> impl Strategy<Value = Hold> {
    let meanwhile = prop::bool::weighted(0.2);
    (verdicts(), option::weighted(0.3, inputs()), meanwhile, option::of(any::<bool>()))
        .prop_map(|(verdict, edit, meanwhile, page)| Hold { verdict, edit, meanwhile, page })
}

fn calls() -> impl Strategy<Value = ScenarioCall> {
    let fate = prop_oneof![
        1 => words().prop_map(CallFate::Invalid),
        1 => Just(CallFate::Duplicate),
        4 => outcomes().prop_map(CallFate::Cleared),
        3 => holds().prop_map(CallFate::Held),
    ];
    let cuts = vec(any::<prop::sample::Index>(), 0..4);
    (words(), inputs(), vec(words(), 0..4), cuts, any::<bool>(), fate).prop_map(
        |(tool, input, garbage, cuts, beside, fate)| {
            let written = match fate {
                CallFate::Invalid(_) => garbage,
                CallFate::Duplicate | CallFate::Cleared(_) | CallFate::Held(_) => {
                    in_pieces(&json!(input).to_string(), &cuts)
                }
            };
            ScenarioCall { tool, input, written, beside, fate }
        },
    )
}

fn in_pieces(text: &str, cuts: &[prop::sample::Index]) -> Vec<String> {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len()))).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| text[cut[0]..cut[1]].to_owned()).collect()
}

fn steps() -> impl Strategy<Value = ScenarioStep> {
    let piece = prop_oneof![
        3 => words().prop_map(Piece::Text),
        2 => words().prop_map(Piece::Thought),
        1 => Just(Piece::End),
        1 => (0..9_u8, option::of(words())).prop_map(|(n, title)| source(n, title)),
        1 => vec(any::<u8>(), 1..40).prop_map(|bytes| Piece::File(File::new("image/png", &bytes).unwrap())),
        4 => calls().prop_map(|call| Piece::Call(Box::new(call))),
    ];
    let end = prop_oneof![
        8 => Just(End::Whole),
        2 => (error_code(), words()).prop_map(|(code, why)| End::Broken(code, why)),
        1 => Just(End::Stopped),
    ];
    let usage = option::of(any::<(u32, u32)>());
    (vec(piece, 0..7), end, usage, prop::bool::weighted(0.2), prop::bool::weighted(0.3)).prop_map(
        |(pieces, end, usage, loaded_anew, answered)| ScenarioStep {
            pieces,
            end,
            usage,
            loaded_anew,
            answered,
        },
    )
}

fn source(n: u8, title: Option<String>) -> Piece {
    Piece::Source(Source::new(&format!("https://a.example/?q={n}&\"é"), title).unwrap())
}

/// Generates scenarios.
pub(super) fn scenarios() -> impl Strategy<Value = Scenario> {
    let pieces = prop_oneof![
        1 => vec(1..9_usize, 1..6),
        3 => vec(1..300_usize, 1..6),
        1 => vec(1..5000_usize, 1..6),
    ];
    (vec(steps(), 1..6), any::<bool>(), pieces, option::of(1..4_usize))
        .prop_map(|(steps, repeated, pieces, alive)| Scenario { steps, repeated, pieces, alive })
}

fn error_code() -> impl Strategy<Value = TurnErrorCode> {
    select(vec![
        TurnErrorCode::UpstreamTimeout,
        TurnErrorCode::UpstreamError,
        TurnErrorCode::UpstreamMalformed,
        TurnErrorCode::ContextFull,
        TurnErrorCode::Interrupted,
        TurnErrorCode::StepLimit,
        TurnErrorCode::ThreadFull,
        TurnErrorCode::Internal,
    ])
}
