//! The tools under test. A tool writes its start, its effect and its end to the ledger.

use crate::faults::Faults;
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::tools::{
    DynTool, IdempotencyKey, Permit, RegistryError, RiskLevel, ToolError, ToolRegistry, ToolSpec, Verified,
};
use holdpoint_torture::ledger::{Execution, Ledger, Line, Requester};
use holdpoint_torture::work::{ToolEnding, Work, hash, schema};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
struct ToolKind {
    name: &'static str,
    hil: bool,
    idempotent: bool,
    /// Whether the tool can verify the outcome of a call later.
    verifies: bool,
}

const PLAIN: ToolKind = ToolKind { name: "note", hil: false, idempotent: false, verifies: false };

const TOOLS: [ToolKind; 5] = [
    ToolKind { name: "pay", hil: true, ..PLAIN },
    ToolKind { name: "pay_idempotent", hil: true, idempotent: true, ..PLAIN },
    ToolKind { name: "pay_verified", hil: true, verifies: true, ..PLAIN },
    PLAIN,
    ToolKind { name: "note_idempotent", idempotent: true, ..PLAIN },
];

/// Adds the tools of this process to those of the configuration, except `without`. The tools in `changed` have one more
/// field.
pub(crate) fn register(
    registry: &mut ToolRegistry,
    ledger: &Ledger,
    faults: &Arc<Faults>,
    without: &[String],
    changed: &[String],
) -> Result<(), RegistryError> {
    let named = |names: &[String], kind: &ToolKind| names.iter().any(|name| name == kind.name);
    for kind in TOOLS.into_iter().filter(|kind| !named(without, kind)) {
        let changed = named(changed, &kind);
        registry.register_dyn(Arc::new(LedgeredTool {
            kind,
            changed,
            ledger: ledger.clone(),
            faults: faults.clone(),
        }))?;
    }
    Ok(())
}

struct LedgeredTool {
    kind: ToolKind,
    changed: bool,
    ledger: Ledger,
    faults: Arc<Faults>,
}

impl DynTool for LedgeredTool {
    fn spec(&self) -> ToolSpec {
        let ToolKind { name, hil, idempotent, verifies: _ } = self.kind;
        ToolSpec {
            headline: None,
            preview: false,
            name: name.to_owned(),
            description: "Writes down that it ran.".to_owned(),
            hil,
            idempotent,
            risk: if hil { RiskLevel::High } else { RiskLevel::Low },
            input_schema: schema(self.changed),
            constants: Map::new(),
        }
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        self.faults.around_tool(permit.tool_call_id(), self.work(permit)).boxed()
    }

    fn verify<'a>(&'a self, key: &'a IdempotencyKey) -> BoxFuture<'a, Result<Verified<Value>, ToolError>> {
        self.verify_from_ledger(key).boxed()
    }
}

impl LedgeredTool {
    async fn work(&self, permit: Permit) -> Result<Value, ToolError> {
        let input = Value::Object(permit.input().clone());
        let args_sha256 = hash(&input);
        let Work { n, ms, then } = serde_json::from_value(input).map_err(failed)?;
        let call = permit.tool_call_id().to_string();
        let schema_hash = hash(&schema(self.changed));
        let seen = self.ledger.read_row(&call).await;
        let execution =
            Execution { call, nth: None, attempt: permit.attempt(), args_sha256, schema_hash, seen };
        let requester = requester(permit.idempotency_key());
        let line = |what, outcome| Line {
            execution: Some(&execution),
            outcome,
            ..self.line(what, permit.idempotency_key(), &requester)
        };
        self.ledger.write(&line("start", None)).await.map_err(failed)?;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        let effect = line("effect", None);
        let refused = if self.kind.verifies {
            self.ledger.write_once(&effect).await.map_err(failed)?.is_some()
        } else {
            self.ledger.write(&effect).await.map_err(failed)?;
            false
        };
        match then {
            ToolEnding::Ok | ToolEnding::Later if !refused => {
                self.ledger.write(&line("end", Some("ok"))).await.map_err(failed)?;
                Ok(json!({ "n": n }))
            }
            ToolEnding::Ok | ToolEnding::Later | ToolEnding::Fail => {
                self.ledger.write(&line("end", Some("fail"))).await.map_err(failed)?;
                Err(ToolError::new(format!("{n} was refused")))
            }
            ToolEnding::Crash => broken(n),
            ToolEnding::Hang => std::future::pending().await,
        }
    }

    /// Returns the outcome of a call from the ledger. Without an effect, a `refused` line promises that the
    /// call will have none, even if a process is paused in the middle of the call.
    async fn verify_from_ledger(&self, key: &IdempotencyKey) -> Result<Verified<Value>, ToolError> {
        if !self.kind.verifies {
            return Ok(Verified::Unknown);
        }
        let written =
            self.ledger.write_once(&self.line("refused", key, &requester(key))).await.map_err(failed)?;
        let had_effect = written.is_some_and(|line| line.get("what").is_some_and(|what| what == "effect"));
        Ok(if had_effect { Verified::Happened(json!({ "verified": true })) } else { Verified::NeverHappened })
    }

    fn line<'a>(&self, what: &'a str, key: &'a IdempotencyKey, requester: &'a Requester) -> Line<'a> {
        let (tool, requester) = (self.kind.name, Some(requester));
        Line { what, key: key.as_str(), tool, requester, execution: None, outcome: None }
    }
}

fn requester(key: &IdempotencyKey) -> Requester {
    let (tenant, user) = (key.requester().tenant_id().to_owned(), key.requester().user_id().to_owned());
    Requester { tenant, user }
}

#[expect(clippy::panic, reason = "a panic of a tool is under test")]
fn broken(n: i64) -> ! {
    panic!("{n} broke")
}

fn failed(error: impl std::fmt::Display) -> ToolError {
    ToolError::new(error.to_string())
}
