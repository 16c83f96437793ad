//! The tools under test. A tool writes its start, its effect and its end to the ledger.

use crate::faults::Faults;
use crate::ledger::{Execution, Ledger, Line};
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::tools::{
    DynTool, IdempotencyKey, Permit, RegistryError, RiskLevel, ToolError, ToolRegistry, ToolSpec, Verified,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// A kind of tool.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    hil: bool,
    idempotent: bool,
    /// Whether the tool can verify the outcome of a call later.
    verifies: bool,
}

const PLAIN: Kind = Kind { name: "note", hil: false, idempotent: false, verifies: false };

const TOOLS: [Kind; 5] = [
    Kind { name: "pay", hil: true, ..PLAIN },
    Kind { name: "pay_idempotent", hil: true, idempotent: true, ..PLAIN },
    Kind { name: "pay_verified", hil: true, verifies: true, ..PLAIN },
    PLAIN,
    Kind { name: "note_idempotent", idempotent: true, ..PLAIN },
];

/// The inputs of every tool.
#[derive(Debug, Deserialize)]
struct Work {
    /// The number of the call, unique in the run.
    n: i64,
    /// The time before the effect, in milliseconds.
    ms: u64,
    then: Then,
}

/// The end of a tool after its effect.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    Ok,
    Fail,
    Panic,
    Hang,
}

/// Returns the registry of all tools except `without`. The tools in `changed` have one more field.
pub(crate) fn registry(
    ledger: &Ledger,
    faults: &Arc<Faults>,
    without: &[String],
    changed: &[String],
) -> Result<ToolRegistry, RegistryError> {
    let mut registry = ToolRegistry::new();
    let named = |names: &[String], kind: &Kind| names.iter().any(|name| name == kind.name);
    for kind in TOOLS.into_iter().filter(|kind| !named(without, kind)) {
        let changed = named(changed, &kind);
        registry.register_dyn(Arc::new(Ledgered {
            kind,
            changed,
            ledger: ledger.clone(),
            faults: faults.clone(),
        }))?;
    }
    Ok(registry)
}

fn schema(changed: bool) -> Value {
    let mut fields = json!({
        "n": { "type": "integer" },
        "ms": { "type": "integer", "minimum": 0, "maximum": 600_000 },
        "then": { "enum": ["ok", "fail", "panic", "hang"] },
    });
    if let Some(fields) = fields.as_object_mut().filter(|_| changed) {
        fields.insert("memo".to_owned(), json!({ "type": "string" }));
    }
    json!({ "type": "object", "properties": fields, "required": ["n", "ms", "then"], "additionalProperties": false })
}

struct Ledgered {
    kind: Kind,
    changed: bool,
    ledger: Ledger,
    faults: Arc<Faults>,
}

impl DynTool for Ledgered {
    fn spec(&self) -> ToolSpec {
        let Kind { name, hil, idempotent, verifies: _ } = self.kind;
        ToolSpec {
            headline: None,
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

impl Ledgered {
    async fn work(&self, permit: Permit) -> Result<Value, ToolError> {
        let input = Value::Object(permit.input().clone());
        let args_sha256 = hash(&input);
        let Work { n, ms, then } = serde_json::from_value(input).map_err(failed)?;
        let call = permit.tool_call_id().to_string();
        let schema_hash = hash(&schema(self.changed));
        let seen = self.ledger.read_row(&call).await;
        let execution = Execution { call, attempt: permit.attempt(), args_sha256, schema_hash, seen };
        let line = |what, outcome| Line {
            execution: Some(&execution),
            outcome,
            ..self.line(what, permit.idempotency_key())
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
            Then::Ok if !refused => {
                self.ledger.write(&line("end", Some("ok"))).await.map_err(failed)?;
                Ok(json!({ "n": n }))
            }
            Then::Ok | Then::Fail => {
                self.ledger.write(&line("end", Some("fail"))).await.map_err(failed)?;
                Err(ToolError::new(format!("{n} was refused")))
            }
            Then::Panic => broken(n),
            Then::Hang => std::future::pending().await,
        }
    }

    /// Returns the outcome of a call from the ledger. Without an effect, a `refused` line promises that the
    /// call will have none, even if a process is paused in the middle of the call.
    async fn verify_from_ledger(&self, key: &IdempotencyKey) -> Result<Verified<Value>, ToolError> {
        if !self.kind.verifies {
            return Ok(Verified::Unknown);
        }
        let written = self.ledger.write_once(&self.line("refused", key)).await.map_err(failed)?;
        let had_effect = written.is_some_and(|line| line.get("what").is_some_and(|what| what == "effect"));
        Ok(if had_effect { Verified::Happened(json!({ "verified": true })) } else { Verified::NeverHappened })
    }

    fn line<'a>(&self, what: &'a str, key: &'a IdempotencyKey) -> Line<'a> {
        let (tenant, user) = (key.requester().tenant_id(), key.requester().user_id());
        Line { what, key: key.as_str(), tool: self.kind.name, tenant, user, execution: None, outcome: None }
    }
}

#[expect(clippy::panic, reason = "a panic of a tool is under test")]
fn broken(n: i64) -> ! {
    panic!("{n} broke")
}

fn failed(error: impl std::fmt::Display) -> ToolError {
    ToolError::new(error.to_string())
}

/// Hashes inputs like the server does, in a separate implementation.
fn hash(input: &Value) -> String {
    let text = serde_json_canonicalizer::to_vec(input).unwrap_or_default();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
