//! Tools that record their executions, wait for a release, fail and panic.

use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The actual effects: one line for each execution.
#[derive(Debug, Clone)]
pub struct Ledger {
    lines: Arc<Mutex<Vec<String>>>,
    /// `wait_for_me` continues once for each permit here.
    pub release: Arc<Semaphore>,
    /// One permit for each execution that has started.
    pub started: Arc<Semaphore>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    pub fn new() -> Self {
        Self {
            lines: Arc::default(),
            release: Arc::new(Semaphore::new(0)),
            started: Arc::new(Semaphore::new(0)),
        }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn write(&self, line: String) {
        self.lines.lock().unwrap().push(line);
        self.started.add_permits(1);
    }

    /// Waits until another execution has started.
    pub async fn wait_started(&self) {
        self.started.acquire().await.unwrap().forget();
    }
}

/// The input of every probe.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Written to the ledger.
    #[schemars(length(min = 1, max = 100))]
    pub note: String,
}

macro_rules! probe {
    ($type:ident, $name:literal, hil: $hil:literal, |$ledger:ident, $input:ident| $body:expr) => {
        struct $type(Ledger);

        impl Tool for $type {
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = "A probe.";
            const HIL: bool = $hil;
            type Input = Probe;
            type Output = serde_json::Value;

            async fn execute(
                &self,
                $input: Probe,
                _permit: Permit<Self>,
            ) -> Result<serde_json::Value, ToolError> {
                let $ledger = &self.0;
                $ledger.write(format!("{} {}", $name, $input.note));
                $body
            }
        }
    };
}

probe!(Look, "look", hil: false, |_ledger, input| Ok(serde_json::json!({ "seen": input.note })));
probe!(Pay, "pay", hil: true, |_ledger, input| Ok(serde_json::json!({ "paid": input.note })));
probe!(Refuse, "refuse", hil: true, |_ledger, _input| Err(ToolError::new("the account is closed")));
probe!(Break, "break", hil: true, |_ledger, input| panic!("secret {}", input.note));
probe!(WaitForMe, "wait_for_me", hil: true, |ledger, input| {
    ledger.release.acquire().await.map_err(|_| ToolError::new("closed"))?.forget();
    Ok(serde_json::json!({ "waited": input.note }))
});

probe!(Dawdle, "dawdle", hil: false, |ledger, input| {
    ledger.release.acquire().await.map_err(|_| ToolError::new("closed"))?.forget();
    Ok(serde_json::json!({ "dawdled": input.note }))
});
probe!(Mumble, "mumble", hil: true, |_ledger, input| Ok(serde_json::json!(format!("\0{}\0", input.note))));

macro_rules! harmless {
    ($type:ident, $name:literal, hil: $hil:literal, idempotent: $idempotent:literal) => {
        struct $type(Ledger);

        impl Tool for $type {
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = "A probe.";
            const HIL: bool = $hil;
            const IDEMPOTENT: bool = $idempotent;
            type Input = Probe;
            type Output = serde_json::Value;

            async fn execute(
                &self,
                input: Probe,
                permit: Permit<Self>,
            ) -> Result<serde_json::Value, ToolError> {
                let (attempt, key) = (permit.attempt(), permit.idempotency_key());
                self.0.write(format!("{} {} attempt {attempt} key {key}", $name, input.note));
                self.0.release.acquire().await.map_err(|_| ToolError::new("closed"))?.forget();
                if attempt > 1 && input.note == SPOILT {
                    return Err(ToolError::new("the key is in use"));
                }
                Ok(serde_json::json!({ "attempt": attempt }))
            }
        }
    };
}

harmless!(Restock, "restock", hil: true, idempotent: true);
harmless!(Tidy, "tidy", hil: false, idempotent: true);
harmless!(RestockOnce, "restock", hil: true, idempotent: false);
harmless!(TidyWhenAllowed, "tidy", hil: true, idempotent: true);

/// A note with which `restock` and `tidy` fail when they are retried.
pub const SPOILT: &str = "spoilt";

/// The tools after a deploy: `restock` may no longer be retried, and `tidy` requires an approval.
pub fn stricter(ledger: &Ledger) -> ToolRegistry {
    let mut registry = ToolRegistry::new();
    registry.register(RestockOnce(ledger.clone())).unwrap();
    registry.register(TidyWhenAllowed(ledger.clone())).unwrap();
    registry
}

/// All probes. `look`, `dawdle` and `tidy` run without an approval; the others require one. `dawdle`,
/// `wait_for_me`, `restock` and `tidy` wait for a release; `restock` and `tidy` may be retried. `mumble`
/// returns a text with U+0000.
pub fn probes(ledger: &Ledger) -> ToolRegistry {
    let mut registry = ToolRegistry::new();
    registry.register(Look(ledger.clone())).unwrap();
    registry.register(Pay(ledger.clone())).unwrap();
    registry.register(Refuse(ledger.clone())).unwrap();
    registry.register(Break(ledger.clone())).unwrap();
    registry.register(WaitForMe(ledger.clone())).unwrap();
    registry.register(Dawdle(ledger.clone())).unwrap();
    registry.register(Mumble(ledger.clone())).unwrap();
    registry.register(Restock(ledger.clone())).unwrap();
    registry.register(Tidy(ledger.clone())).unwrap();
    registry
}

/// The input of `pay` after a deploy that changed it.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Payment {
    /// Written to the ledger, and now at most five characters.
    #[schemars(length(min = 1, max = 5))]
    pub note: String,
}

/// `pay` with another schema.
pub struct ChangedPay(pub Ledger);

impl Tool for ChangedPay {
    const NAME: &'static str = "pay";
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = true;
    const HEADLINE: Option<&'static str> = Some("Pay {note}?");
    type Input = Payment;
    type Output = serde_json::Value;

    async fn execute(&self, input: Payment, _permit: Permit<Self>) -> Result<serde_json::Value, ToolError> {
        self.0.write(format!("changed pay {}", input.note));
        Ok(serde_json::json!({ "paid": input.note }))
    }
}

/// The input of `weigh`.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// Written to the ledger.
    pub amount: serde_json::Number,
}

/// A tool that requires an approval, and takes a number.
pub struct Weigh(pub Ledger);

impl Tool for Weigh {
    const NAME: &'static str = "weigh";
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = true;
    type Input = Weight;
    type Output = serde_json::Value;

    async fn execute(&self, input: Weight, _permit: Permit<Self>) -> Result<serde_json::Value, ToolError> {
        self.0.write(format!("weigh {}", input.amount));
        Ok(serde_json::json!({ "weighed": input.amount }))
    }
}

/// The input of `count`.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Written to the ledger.
    pub to: u64,
}

/// A tool that requires an approval, and takes a 64-bit integer.
pub struct Count(pub Ledger);

impl Tool for Count {
    const NAME: &'static str = "count";
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = true;
    type Input = Span;
    type Output = u64;

    async fn execute(&self, input: Span, _permit: Permit<Self>) -> Result<u64, ToolError> {
        self.0.write(format!("count {}", input.to));
        Ok(input.to)
    }
}
