//! The order in which the parts of the policy rule, and the conditions under which rules hold.

use super::*;
use crate::tool::definition::DefinitionCause;
use serde_json::{Value, json};
use uuid::Uuid;

const GRANT: GrantId = GrantId::new(Uuid::nil());

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn tools(patterns: &[&str]) -> Tools {
    Tools::new(&names(patterns))
}

fn rule(effect: Effect, when: Vec<Condition>) -> Rule {
    Rule {
        name: "r".to_owned(),
        effect,
        tools: tools(&["pay"]),
        when,
        roles: Vec::new(),
        unless_roles: Vec::new(),
        reason: "because".to_owned(),
    }
}

fn when(argument: &str, test: Test) -> Condition {
    Condition { argument: argument.to_owned(), test }
}

/// Evaluates a call of `pay`. Returns the requirement and its source, in words.
fn evaluated(policy: &Policy, session: &SessionPolicy, hil: bool, remembered: Option<GrantId>) -> String {
    evaluated_as(policy, session, hil, true, remembered)
}

/// Does the same with a given `may_run`: whether the tool runs for the requester.
fn evaluated_as(
    policy: &Policy,
    session: &SessionPolicy,
    hil: bool,
    may_run: bool,
    remembered: Option<GrantId>,
) -> String {
    let input = Input::new();
    let accepted = PolicyRequest {
        tool: "pay",
        hil,
        input: &input,
        roles: &[],
        may_run,
        session,
        remembered,
        unaccepted: None,
    };
    let verdict = in_words(policy.evaluate(&accepted));
    let unaccepted = Unaccepted { cause: DefinitionCause::Changed, hash: String::new(), changes: Vec::new() };
    let changed = in_words(policy.evaluate(&PolicyRequest { unaccepted: Some(&unaccepted), ..accepted }));
    // Whatever lets a call run, a definition that is not accepted asks. It loosens nothing.
    let expected = if verdict.starts_with("runs") { "asks definition" } else { &verdict };
    assert_eq!(changed, expected);
    verdict
}

fn in_words(ruling: Ruling) -> String {
    let required = match ruling.requirement {
        Requirement::Skip(_) => "runs",
        Requirement::NeedsApproval => "asks",
        Requirement::Forbidden => "never",
    };
    let source = match ruling.source {
        Source::AlwaysDeny => "always_deny".to_owned(),
        Source::AlwaysAllow => "always_allow".to_owned(),
        Source::Rule(name) => format!("rule:{name}"),
        Source::Role => "role".to_owned(),
        Source::Remembered(id) => format!("remembered:{id}"),
        Source::Session => "session".to_owned(),
        Source::Tool => "tool".to_owned(),
        Source::Mode => "mode".to_owned(),
        Source::Definition => "definition".to_owned(),
    };
    format!("{required} {source}")
}

#[test]
fn the_first_policy_layer_with_an_answer_decides() {
    let session = |word| SessionPolicy { mode: None, tools: [("pay".to_owned(), word)].into() };
    // Each layer, the strongest first. Each layer rules over all layers after it.
    let layers =
        ["always_deny", "deny", "role", "session deny", "always_allow", "ask", "remembered", "session allow"];
    let expected = [
        "never always_deny",
        "never rule:r",
        "never role",
        "never session",
        "runs always_allow",
        "asks rule:r",
        "runs remembered:00000000-0000-0000-0000-000000000000",
        "runs session",
    ];
    for (first, expected) in expected.iter().enumerate() {
        let has = |layer: &str| layers[first..].contains(&layer);
        let mut policy = Policy { mode: ApprovalMode::AutoDeny, ..Policy::default() };
        if has("always_deny") {
            policy.always_deny = tools(&["p*"]);
        }
        if has("deny") {
            policy.rules.push(rule(Effect::Deny, Vec::new()));
        }
        if has("always_allow") {
            policy.always_allow = tools(&["pay"]);
        }
        if has("ask") {
            policy.rules.push(rule(Effect::Ask, Vec::new()));
        }
        let word = if has("session deny") { ToolPolicy::Deny } else { ToolPolicy::Allow };
        let remembered = has("remembered").then_some(GRANT);
        assert_eq!(evaluated_as(&policy, &session(word), true, !has("role"), remembered), *expected);
    }
    assert_eq!(evaluated(&Policy::default(), &session(ToolPolicy::Ask), false, None), "asks session");
    assert_eq!(
        evaluated(&Policy::default(), &session(ToolPolicy::Ask), false, Some(GRANT)),
        "runs remembered:00000000-0000-0000-0000-000000000000"
    );
}

#[test]
fn a_mode_applies_to_tools_that_ask_and_the_session_mode_precedes_the_server_mode() {
    let plain = SessionPolicy::default();
    for (mode, asks) in [
        (ApprovalMode::Manual, "asks tool"),
        (ApprovalMode::AutoApprove, "runs mode"),
        (ApprovalMode::AutoDeny, "never mode"),
    ] {
        let policy = Policy { mode, ..Policy::default() };
        assert_eq!(evaluated(&policy, &plain, true, None), asks);
        assert_eq!(evaluated(&policy, &plain, false, None), "runs tool");
    }
    let policy = Policy { mode: ApprovalMode::AutoApprove, ..Policy::default() };
    let strict = SessionPolicy { mode: Some(ApprovalMode::AutoDeny), ..SessionPolicy::default() };
    assert_eq!(evaluated(&policy, &strict, true, None), "never session");
    let manual = SessionPolicy { mode: Some(ApprovalMode::Manual), ..SessionPolicy::default() };
    assert_eq!(evaluated(&policy, &manual, true, None), "asks tool");
}

/// Whether a rule with this condition applies to these inputs.
fn holds(condition: Condition, input: &Value) -> bool {
    let policy = Policy { rules: vec![rule(Effect::Deny, vec![condition])], ..Policy::default() };
    let (input, session) = (input.as_object().unwrap(), SessionPolicy::default());
    let request = PolicyRequest {
        tool: "pay",
        hil: true,
        input,
        roles: &[],
        may_run: true,
        session: &session,
        remembered: None,
        unaccepted: None,
    };
    matches!(policy.evaluate(&request).requirement, Requirement::Forbidden)
}

#[test]
fn a_condition_holds_for_matching_inputs_and_for_inputs_it_cannot_judge() {
    let shapes = || vec!["*@acme.example".to_owned()];
    for (pointer, test, input, expected) in [
        ("/amount", Test::Above(1000.into()), json!({ "amount": 1000 }), false),
        ("/amount", Test::Above(1000.into()), json!({ "amount": 1001 }), true),
        ("/amount", Test::Above(1000.into()), json!({ "amount": 1000.5 }), true),
        ("/amount", Test::Above(1000.into()), json!({ "amount": 1e3 }), false),
        ("/amount", Test::Above(1000.into()), json!({ "amount": u64::MAX }), true),
        ("/amount", Test::Above(i64::MAX.into()), json!({ "amount": i64::MAX as u64 + 1 }), true),
        ("/amount", Test::Above(1000.into()), json!({ "amount": "5" }), true),
        ("/amount", Test::Above(1000.into()), json!({}), true),
        ("/amount", Test::Below(0.into()), json!({ "amount": -1 }), true),
        ("/amount", Test::Below(0.into()), json!({ "amount": 0 }), false),
        ("/env", Test::Equals(json!("prod")), json!({ "env": "prod" }), true),
        ("/env", Test::Equals(json!("prod")), json!({ "env": "test" }), false),
        ("/env", Test::Equals(json!("prod")), json!({}), true),
        ("/n", Test::Equals(json!(1)), json!({ "n": 1.0 }), true),
        ("/env", Test::NotIn(vec![json!("test")]), json!({ "env": "test" }), false),
        ("/env", Test::NotIn(vec![json!("test")]), json!({ "env": "prod" }), true),
        ("/to", Test::Matches("*@evil.example".to_owned()), json!({ "to": "a@evil.example" }), true),
        ("/to", Test::Matches("*@evil.example".to_owned()), json!({ "to": "a@good.example" }), false),
        ("/to", Test::Matches("*@evil.example".to_owned()), json!({ "to": ["a@good.example"] }), true),
        ("/to", Test::MatchesNone(shapes()), json!({ "to": "a@acme.example" }), false),
        ("/to", Test::MatchesNone(shapes()), json!({ "to": "a@acme.example.evil" }), true),
        ("/to", Test::MatchesNone(shapes()), json!({ "to": null }), true),
        ("/a/b/0", Test::Above(1.into()), json!({ "a": { "b": [2] } }), true),
        ("/a/b/0", Test::Above(1.into()), json!({ "a": { "b": [1] } }), false),
        ("/a~1b/c~0d", Test::Above(1.into()), json!({ "a/b": { "c~d": 1 } }), false),
    ] {
        let case = format!("{pointer} {test:?} {input}");
        assert_eq!(holds(when(pointer, test), &input), expected, "{case}");
    }
}

#[test]
fn a_rule_holds_for_its_tools_and_its_roles_if_all_its_conditions_hold() {
    let (input, session) = (Input::new(), SessionPolicy::default());
    let holds = |rule: &Rule, tool: &str, roles: &[&str]| {
        let roles = names(roles);
        let request = PolicyRequest {
            tool,
            hil: true,
            input: &input,
            roles: &roles,
            may_run: true,
            session: &session,
            remembered: None,
            unaccepted: None,
        };
        rule.holds(&request)
    };
    let all = Rule { tools: tools(&["pay", "mcp__bank__*"]), ..rule(Effect::Deny, Vec::new()) };
    assert!(holds(&all, "pay", &[]) && holds(&all, "mcp__bank__send", &[]));
    assert!(!holds(&all, "pays", &[]) && !holds(&all, "xpay", &[]) && !holds(&all, "Pay", &[]));
    let unless = Rule { unless_roles: names(&["finance"]), ..all.clone() };
    assert!(holds(&unless, "pay", &["clerk"]) && !holds(&unless, "pay", &["clerk", "finance"]));
    let interns = Rule { roles: names(&["intern"]), ..all.clone() };
    assert!(holds(&interns, "pay", &["intern"]) && !holds(&interns, "pay", &[]));
    let never =
        Rule { when: vec![when("/a", Test::NotIn(vec![])), when("/b", Test::Above(1.into()))], ..all };
    assert!(holds(&never, "pay", &[]), "nothing is there, so everything may be so");
}

#[test]
fn a_session_policy_is_loosened_if_any_tool_is_allowed_more_than_before() {
    let session = |mode: Option<ApprovalMode>, tools: &[(&str, ToolPolicy)]| SessionPolicy {
        mode,
        tools: tools.iter().map(|(name, word)| ((*name).to_owned(), *word)).collect(),
    };
    let known = || [("look", false), ("pay", true)].into_iter();
    let policy =
        Policy { always_allow: tools(&["free"]), always_deny: tools(&["never"]), ..Policy::default() };
    let none = session(None, &[]);
    let deny = |mode| session(mode, &[("gone", ToolPolicy::Deny)]);
    let (tool, mode) = (|name| Some(LoosenedPolicy::Tool(name)), Some(LoosenedPolicy::Mode));
    for (from, to, loosened) in [
        (&none, session(None, &[]), None),
        (&none, session(Some(ApprovalMode::AutoDeny), &[]), None),
        (&none, session(Some(ApprovalMode::Manual), &[]), None),
        (&none, session(Some(ApprovalMode::AutoApprove), &[]), tool("pay")),
        (&none, session(None, &[("look", ToolPolicy::Ask)]), None),
        // A later build may require approval for `look`.
        (&none, session(None, &[("look", ToolPolicy::Allow)]), tool("look")),
        (&none, session(None, &[("pay", ToolPolicy::Allow)]), tool("pay")),
        (&none, session(Some(ApprovalMode::AutoDeny), &[("pay", ToolPolicy::Ask)]), None),
        (&session(Some(ApprovalMode::AutoDeny), &[]), session(None, &[]), tool("pay")),
        (
            &session(Some(ApprovalMode::AutoDeny), &[]),
            session(Some(ApprovalMode::AutoDeny), &[("pay", ToolPolicy::Ask)]),
            tool("pay"),
        ),
        (
            &session(None, &[("look", ToolPolicy::Deny)]),
            session(None, &[("look", ToolPolicy::Ask)]),
            tool("look"),
        ),
        (&session(None, &[("pay", ToolPolicy::Allow)]), session(None, &[]), None),
        (&session(None, &[("pay", ToolPolicy::Ask)]), session(None, &[]), tool("pay")),
        // Tools that are not registered, or that another part of the policy hides.
        (&deny(None), deny(None), None),
        (&deny(None), deny(Some(ApprovalMode::AutoDeny)), None),
        (&deny(None), session(None, &[("gone", ToolPolicy::Ask)]), tool("gone")),
        (&deny(None), session(None, &[]), tool("gone")),
        (
            &session(None, &[("gone", ToolPolicy::Ask)]),
            session(None, &[("gone", ToolPolicy::Allow)]),
            tool("gone"),
        ),
        (&session(None, &[("gone", ToolPolicy::Ask)]), deny(None), None),
        (&session(None, &[("gone", ToolPolicy::Allow)]), session(None, &[]), None),
        (&session(None, &[("never", ToolPolicy::Deny)]), session(None, &[]), tool("never")),
        (&session(None, &[("free", ToolPolicy::Ask)]), session(None, &[]), tool("free")),
        (&session(Some(ApprovalMode::Manual), &[]), session(None, &[]), mode),
        (&session(Some(ApprovalMode::AutoApprove), &[]), session(None, &[]), None),
        (&session(Some(ApprovalMode::AutoApprove), &[]), session(Some(ApprovalMode::Manual), &[]), None),
    ] {
        assert_eq!(policy.loosened(from, &to, known()), loosened, "{from:?} became {to:?}");
    }
    let no_tools = || std::iter::empty::<(&str, bool)>();
    assert_eq!(policy.loosened(&none, &session(Some(ApprovalMode::AutoApprove), &[]), no_tools()), mode);
    assert_eq!(policy.loosened(&session(Some(ApprovalMode::AutoDeny), &[]), &none, no_tools()), mode);
}
