//! A tool whose service can verify the outcome of a call later.

use super::{Ledger, Payment, Probe};
use holdpoint::tools::{IdempotencyKey, Permit, Tool, ToolError, ToolRegistry, Verified};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The outcome that the service reports for every call.
#[derive(Debug, Clone)]
pub enum Report {
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
pub struct Question {
    pub key: String,
    pub tenant_id: String,
    pub user_id: String,
}

#[derive(Debug, Clone)]
pub struct Service {
    report: Arc<Mutex<Report>>,
    requests: Arc<Mutex<Vec<Question>>>,
    /// `Report::Waits` continues once for each permit here.
    pub release: Arc<Semaphore>,
}

impl Service {
    pub fn that_reports(report: Report) -> Self {
        Self {
            report: Arc::new(Mutex::new(report)),
            requests: Arc::default(),
            release: Arc::new(Semaphore::new(0)),
        }
    }

    /// Sets the outcome that the service reports.
    pub fn now_reports(&self, report: Report) {
        *self.report.lock().unwrap() = report;
    }

    pub fn requests(&self) -> Vec<Question> {
        self.requests.lock().unwrap().clone()
    }

    /// The number of verification requests for this call.
    pub fn requests_about(&self, key: &str) -> usize {
        self.requests().iter().filter(|question| question.key == key).count()
    }

    async fn answer(&self, key: &IdempotencyKey) -> Result<Verified<Value>, ToolError> {
        let question = Question {
            key: key.as_str().to_owned(),
            tenant_id: key.requester().tenant_id().to_owned(),
            user_id: key.requester().user_id().to_owned(),
        };
        self.requests.lock().unwrap().push(question);
        let report = self.report.lock().unwrap().clone();
        match report {
            Report::Nothing => Ok(Verified::Unknown),
            Report::Happened(output) => Ok(Verified::Happened(output)),
            Report::NeverHappened => Ok(Verified::NeverHappened),
            Report::Fails => Err(ToolError::new("the service cannot be reached")),
            Report::Breaks => panic!("the service is odd"),
            Report::Waits(output) => {
                self.release.acquire().await.map_err(|_| ToolError::new("closed"))?.forget();
                Ok(Verified::Happened(output))
            }
        }
    }

    /// The tool after a deploy that changed its schema.
    pub fn changed_tools(&self) -> ToolRegistry {
        let mut tools = ToolRegistry::new();
        tools.register(ChangedCourier(self.clone())).unwrap();
        tools
    }

    /// A registry with this tool only.
    pub fn tools(&self, ledger: &Ledger) -> ToolRegistry {
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
        self.ledger.release.acquire().await.map_err(|_| ToolError::new("closed"))?.forget();
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
