//! The parts of a turn that only compute: the encoder of each dialect, the history, and the gate.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use holdpoint::benches::{JudgingGate, StoredThread, TextTurn};
use holdpoint::config::{ApprovalRule, Config, RuleCondition, RuleEffect};
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::hint::black_box;

const TOKENS: usize = 1000;

fn encoder(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encoder");
    group.throughput(Throughput::Elements(1000));
    for (dialect, turn) in TextTurn::in_each_dialect(TOKENS) {
        group.bench_function(dialect, |bencher| bencher.iter(|| black_box(turn.encode())));
    }
    group.finish();
}

fn history(criterion: &mut Criterion) {
    let thread = StoredThread::new(200);
    // A message of the user, the message of the model with its call, and the result of the call.
    assert_eq!(thread.history(), 3 * 200);
    criterion
        .bench_function("history of 400 messages", |bencher| bencher.iter(|| black_box(thread.history())));
}

/// A payment.
#[derive(Deserialize, JsonSchema)]
struct Payment {
    #[expect(dead_code, reason = "no call runs here")]
    to: String,
    #[expect(dead_code, reason = "no call runs here")]
    amount: u32,
}

struct Pay;

impl Tool for Pay {
    const NAME: &'static str = "pay";
    const DESCRIPTION: &'static str = "Pay an amount";
    const HIL: bool = false;
    type Input = Payment;
    type Output = String;

    async fn execute(&self, _: Payment, _: Permit<Self>) -> Result<String, ToolError> {
        Ok(String::new())
    }
}

fn gate(criterion: &mut Criterion) {
    let above =
        RuleCondition { argument: "/amount".to_owned(), above: Some(100.into()), ..RuleCondition::default() };
    let banks = json!(["bank-1", "bank-2"]);
    let elsewhere = RuleCondition {
        argument: "/to".to_owned(),
        not_in: serde_json::from_value(banks).ok(),
        ..RuleCondition::default()
    };
    let rule = |name: &str, when| ApprovalRule {
        name: name.to_owned(),
        effect: RuleEffect::Ask,
        tools: vec!["pay".to_owned()],
        when: vec![when],
        roles: Vec::new(),
        unless_roles: Vec::new(),
        escalate_after: None,
        escalate_to: Vec::new(),
        reason: None,
    };
    let mut config = Config::default();
    config.approval.rules = vec![rule("large", above), rule("elsewhere", elsewhere)];
    let mut tools = ToolRegistry::new();
    assert!(tools.register(Pay).is_ok());
    let gate = JudgingGate::new(tools, &config);
    let mut group = criterion.benchmark_group("gate");
    for (name, amount, held) in [("a call that is held", 500, true), ("a call that runs", 50, false)] {
        let arguments = json!({ "to": "bank-1", "amount": amount }).to_string();
        assert_eq!(gate.holds("pay", &arguments), Some(held), "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(gate.holds("pay", black_box(&arguments))))
        });
    }
    group.finish();
}

criterion_group!(parts, encoder, history, gate);
criterion_main!(parts);
