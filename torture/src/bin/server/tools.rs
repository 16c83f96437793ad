//! The tools under test. Each writes to the ledger that it begins, works, has its effect, and writes how it ended.

use crate::ledger::{Ledger, Line};
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::tools::{DynTool, Permit, RegistryError, RiskLevel, ToolError, ToolRegistry, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Name, whether a person is asked, whether it may run again.
const TOOLS: [(&str, bool, bool); 4] = [
    ("pay", true, false),
    ("pay_idempotent", true, true),
    ("note", false, false),
    ("note_idempotent", false, true),
];

/// What every tool takes.
#[derive(Debug, Deserialize)]
struct Work {
    /// Tells one call from another.
    n: i64,
    /// How long it works before its effect.
    ms: u64,
    then: Then,
}

/// What comes behind the effect.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    Ok,
    Fail,
    Panic,
    Hang,
}

/// All of them, without those of these names, and with one field more for those.
pub(crate) fn registry(
    ledger: &Ledger,
    without: &[String],
    changed: &[String],
) -> Result<ToolRegistry, RegistryError> {
    let mut registry = ToolRegistry::new();
    for (name, hil, idempotent) in TOOLS {
        if without.iter().any(|gone| gone == name) {
            continue;
        }
        let spec = ToolSpec {
            name: name.to_owned(),
            description: "Writes down that it ran.".to_owned(),
            hil,
            idempotent,
            risk: if hil { RiskLevel::High } else { RiskLevel::Low },
            input_schema: schema(changed.iter().any(|other| other == name)),
        };
        registry.register_dyn(Arc::new(Ledgered { spec, ledger: ledger.clone() }))?;
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
    spec: ToolSpec,
    ledger: Ledger,
}

impl DynTool for Ledgered {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        self.work(permit).boxed()
    }
}

impl Ledgered {
    async fn work(&self, permit: Permit) -> Result<Value, ToolError> {
        let input = Value::Object(permit.input().clone());
        let args_sha256 = hash(&input);
        let Work { n, ms, then } = serde_json::from_value(input).map_err(failed)?;
        let call = permit.tool_call_id().to_string();
        let seen = self.ledger.look(&call).await;
        let line = |what| Line {
            what,
            call: &call,
            key: &call,
            tool: &self.spec.name,
            args_sha256: &args_sha256,
            tenant: permit.requester().tenant_id(),
            user: permit.requester().user_id(),
            seen: seen.as_ref(),
            outcome: None,
        };
        self.ledger.write(&line("start")).await.map_err(failed)?;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        self.ledger.write(&line("effect")).await.map_err(failed)?;
        match then {
            Then::Ok => {
                self.ledger.write(&Line { outcome: Some("ok"), ..line("end") }).await.map_err(failed)?;
                Ok(json!({ "n": n }))
            }
            Then::Fail => {
                self.ledger.write(&Line { outcome: Some("fail"), ..line("end") }).await.map_err(failed)?;
                Err(ToolError::new(format!("{n} was refused")))
            }
            Then::Panic => broken(n),
            Then::Hang => std::future::pending().await,
        }
    }
}

#[expect(clippy::panic, reason = "a tool that breaks is what is tried")]
fn broken(n: i64) -> ! {
    panic!("{n} broke")
}

fn failed(error: impl std::fmt::Display) -> ToolError {
    ToolError::new(error.to_string())
}

/// As the server hashes what it shows, in code of its own.
fn hash(input: &Value) -> String {
    let text = serde_json_canonicalizer::to_vec(input).unwrap_or_default();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
