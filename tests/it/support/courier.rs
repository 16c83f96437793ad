//! A tool whose service can verify the outcome of a call later.

use super::{Ledger, Payment, Probe};
use holdpoint::tools::{IdempotencyKey, Permit, Tool, ToolError, ToolRegistry, Verified};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The outcome that the service reports for every call.
#[derive(Debug, Clone)]
pub(crate) enum Says {
    /// The outcome is not known yet.
    Nothing,
    Happened(Value),
    NeverHappened,
    /// The service cannot be reached.
    Fails,
    /// The verification panics.
    Breaks,
    /// The service reports that the call happened, after it is released.
    Waits(Value),
}

/// A verification request: the key, and the user of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) key: String,
    pub(crate) tenant_id: String,
    pub(crate) user_id: String,
}

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    says: Arc<Mutex<Says>>,
    asked: Arc<Mutex<Vec<Question>>>,
    /// `Says::Waits` continues once for each permit here.
    pub(crate) go: Arc<Semaphore>,
}

impl Service {
    pub(crate) fn that_says(says: Says) -> Self {
        Self { says: Arc::new(Mutex::new(says)), asked: Arc::default(), go: Arc::new(Semaphore::new(0)) }
    }

    /// Sets the outcome that the service reports.
    pub(crate) fn now_says(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    pub(crate) fn asked(&self) -> Vec<Question> {
        self.asked.lock().unwrap().clone()
    }

    /// The number of verification requests for this call.
    pub(crate) fn asked_about(&self, key: &str) -> usize {
        self.asked().iter().filter(|question| question.key == key).count()
    }

    async fn answer(&self, key: &IdempotencyKey) -> Result<Verified<Value>, ToolError> {
        let question = Question {
            key: key.as_str().to_owned(),
            tenant_id: key.requester().tenant_id().to_owned(),
            user_id: key.requester().user_id().to_owned(),
        };
        self.asked.lock().unwrap().push(question);
        let says = self.says.lock().unwrap().clone();
        match says {
            Says::Nothing => Ok(Verified::Unknown),
            Says::Happened(output) => Ok(Verified::Happened(output)),
            Says::NeverHappened => Ok(Verified::NeverHappened),
            Says::Fails => Err(ToolError::new("the service cannot be reached")),
            Says::Breaks => panic!("the service is odd"),
            Says::Waits(output) => {
                self.go.acquire().await.map_err(|_| ToolError::new("closed"))?.forget();
                Ok(Verified::Happened(output))
            }
        }
    }

    /// The tool after a deploy that changed its schema.
    pub(crate) fn changed_tools(&self) -> ToolRegistry {
        let mut tools = ToolRegistry::new();
        tools.register(ChangedCourier(self.clone())).unwrap();
        tools
    }

    /// A registry with this tool only.
    pub(crate) fn tools(&self, ledger: &Ledger) -> ToolRegistry {
        let mut tools = ToolRegistry::new();
        tools.register(Courier { ledger: ledger.clone(), service: self.clone() }).unwrap();
        tools
    }
}

struct Courier {
    ledger: Ledger,
    service: Service,
}

impl Tool for Courier {
    const NAME: &'static str = "courier";
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = true;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<Value, ToolError> {
        self.ledger.write(format!("courier {}", input.note));
        self.ledger.go.acquire().await.map_err(|_| ToolError::new("closed"))?.forget();
        Ok(json!({ "delivered": input.note }))
    }

    async fn verify(&self, key: &IdempotencyKey) -> Result<Verified<Value>, ToolError> {
        self.service.answer(key).await
    }
}

/// `courier` with another schema, and the same service.
struct ChangedCourier(Service);

impl Tool for ChangedCourier {
    const NAME: &'static str = "courier";
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = true;
    type Input = Payment;
    type Output = Value;

    async fn execute(&self, input: Payment, _permit: Permit<Self>) -> Result<Value, ToolError> {
        Ok(json!({ "delivered": input.note }))
    }

    async fn verify(&self, key: &IdempotencyKey) -> Result<Verified<Value>, ToolError> {
        self.0.answer(key).await
    }
}
