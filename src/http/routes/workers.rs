//! The routes of workers, which execute the calls of worker tools.

use crate::approvals::{Report, Reported, WorkerClaim};
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{PermitHolder, Worker},
};
use crate::http::auth::Caller;
use crate::http::body::formats::{Id, Time};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::{JsonObject, Strict};
use crate::http::failure::error::ApiError;
use crate::http::routes::call::CallState;
use crate::http::stream::disconnected::Disconnected;
use holdpoint_core::card::progress::Progress;
use poem_openapi::param::Path;
use poem_openapi::types::{Any, Example};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Maximum number of tools in one claim.
const TOOLS_MAX: usize = 100;
/// The longest wait of a claim, in seconds.
const WAIT_MAX: u64 = 60;

/// The calls that a worker can execute.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct ClaimCall {
    /// The names of the worker tools: at most 100.
    #[oai(validator(min_items = 1, max_items = 100))]
    tools: Vec<String>,
    /// How many seconds the response waits for a call, at most 60. Without it the response does not wait.
    #[oai(validator(minimum(value = "0"), maximum(value = "60")))]
    wait: Option<u64>,
}

impl Example for ClaimCall {
    fn example() -> Self {
        Self { tools: vec!["refund".to_owned()], wait: Some(20) }
    }
}

/// The user on whose behalf a call runs, and whose rights limit the tool. An approver permits the call and lends no
/// rights.
#[derive(Debug, Object)]
struct Requester {
    /// The tenant of the user.
    tenant_id: String,
    /// The user inside the tenant.
    user_id: String,
}

/// A call for a worker to execute.
#[derive(Debug, Object)]
#[oai(rename = "ClaimedToolCall")]
struct ClaimedCall {
    /// The call, for the paths of `renew` and `settle`.
    tool_call_id: Id,
    /// The tool to execute.
    tool_name: String,
    /// The inputs to execute: as the model proposed them, or as an approver edited them.
    input: JsonObject,
    requester: Requester,
    /// The thread of the call. For a call of a sub-agent, the thread of the sub-agent.
    thread_id: Id,
    /// The root thread above `thread_id`, or that thread itself.
    session_id: Id,
    /// The run of the call.
    run_id: Id,
    /// The actors that approved these inputs. Empty if the policy lets the call run without an approval.
    approved_by: Vec<String>,
    /// The number of this execution, from 1. A later one follows only if the tool is idempotent.
    attempt: u32,
    /// The key by which a service recognizes a repeated execution, the same for all executions of the call.
    idempotency_key: String,
}

/// The right to execute a call once. Absent if no call of these tools waits for a worker.
#[derive(Debug, Object)]
struct Claim {
    call: ClaimedCall,
    /// The token that proves the right, for `renew` and `settle`. The server cannot show it again.
    permit: String,
    /// When the execution counts as lost, unless the lease is renewed or the call is settled before.
    lease_until: Time,
    /// How long that is from now, in milliseconds, for a worker with another clock.
    lease_ms: u64,
}

/// The result of a claim.
#[derive(Debug, Object)]
#[oai(skip_serializing_if_is_none)]
struct ClaimResult {
    claim: Option<Claim>,
}

impl From<WorkerClaim> for Claim {
    fn from(WorkerClaim { permit, token, lease_until, lease }: WorkerClaim) -> Self {
        let requester = permit.requester();
        let call = ClaimedCall {
            tool_call_id: Id::of(permit.tool_call_id()),
            tool_name: permit.tool_name().to_owned(),
            input: JsonObject(permit.input().clone()),
            requester: Requester {
                tenant_id: requester.tenant_id().to_owned(),
                user_id: requester.user_id().to_owned(),
            },
            thread_id: Id::of(permit.thread_id()),
            session_id: Id::of(permit.session_id()),
            run_id: Id::of(permit.run_id()),
            approved_by: permit.approved_by().to_vec(),
            attempt: permit.attempt(),
            idempotency_key: permit.idempotency_key().to_string(),
        };
        Self { call, permit: token, lease_until: lease_until.into(), lease_ms: millis(lease) }
    }
}

/// A renewal of a lease.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, example)]
#[serde(deny_unknown_fields)]
struct RenewCall {
    /// The `permit` of the claim.
    permit: String,
    progress: Option<ReportedByWorker>,
}

impl Example for RenewCall {
    fn example() -> Self {
        let message = Some("3 of 7 refunds".to_owned());
        let progress = ReportedByWorker { message, done: Some(3.0), total: Some(7.0) };
        Self { permit: example_permit(), progress: Some(progress) }
    }
}

/// How far an execution has come, for the people who watch it. Without a message and a number it says nothing, and the last
/// report stays.
#[derive(Debug, Object, Deserialize)]
#[oai(rename = "ProgressReport", deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
struct ReportedByWorker {
    /// Plain text. More than 500 characters are cut.
    message: Option<String>,
    /// How much is done, in a unit of the worker.
    done: Option<f64>,
    /// How much there is to do, in the same unit.
    total: Option<f64>,
}

impl ReportedByWorker {
    fn read(&self) -> Option<Progress> {
        Progress::new(self.message.as_deref(), self.done, self.total)
    }
}

/// A renewed lease.
#[derive(Debug, Object)]
struct RenewResult {
    /// When the execution counts as lost, unless the lease is renewed or the call is settled before.
    lease_until: Time,
    /// How long that is from now, in milliseconds, for a worker with another clock.
    lease_ms: u64,
    /// Whether the worker has to stop, and to settle the call with what is true then.
    cancel_requested: bool,
}

/// What became of an execution. `succeeded`: the effect happened. `failed`: it did not and will not. `unknown`: the worker
/// does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum WorkerOutcome {
    /// The effect happened.
    Succeeded,
    /// The effect did not happen, and will not.
    Failed,
    /// The worker does not know whether the effect happened.
    Unknown,
}

/// The outcome of an execution.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct SettleCall {
    /// The `permit` of the claim.
    permit: String,
    outcome: WorkerOutcome,
    /// With `succeeded`: the output, any JSON. Absent is null.
    result: Option<Any<Value>>,
    /// With `failed`: the reason, for the model and the user.
    error: Option<String>,
}

impl Example for SettleCall {
    fn example() -> Self {
        let result = serde_json::json!({ "refunded": true });
        let outcome = WorkerOutcome::Succeeded;
        Self { permit: example_permit(), outcome, result: Some(Any(result)), error: None }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn example_permit() -> String {
    "0123456789abcdef".repeat(4)
}

impl SettleCall {
    /// Returns the permit, and the report if the outcome is known.
    fn report(self) -> Result<(String, Option<Report>), ApiError> {
        let Self { permit, outcome, result, error } = self;
        if result.is_some() && outcome != WorkerOutcome::Succeeded {
            return Err(ApiError::bad_request("result: expected only with the outcome succeeded"));
        }
        if error.is_some() && outcome != WorkerOutcome::Failed {
            return Err(ApiError::bad_request("error: expected only with the outcome failed"));
        }
        let report = match (outcome, error) {
            (WorkerOutcome::Succeeded, _) => {
                Some(Report::Succeeded(result.map(|it| it.0).unwrap_or_default()))
            }
            (WorkerOutcome::Failed, Some(error)) => Some(Report::Failed(error)),
            (WorkerOutcome::Failed, None) => {
                return Err(ApiError::bad_request("error: expected the reason of the outcome failed"));
            }
            (WorkerOutcome::Unknown, _) => None,
        };
        Ok((permit, report))
    }
}

/// The result of a settlement: the state of the call now. After an unknown outcome it is `approved` if the call can be
/// claimed again.
#[derive(Debug, Object)]
struct SettleResult {
    /// The call in the path of the request.
    tool_call_id: Id,
    state: CallState,
}

#[derive(ApiResponse)]
enum SettleResponse {
    /// The outcome is stored.
    #[oai(status = 200)]
    Settled(
        Json<SettleResult>,
        /// `true` if an earlier request reported the same outcome.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access =
    &[("claimToolCall", &[Worker]), ("renewToolCall", &[PermitHolder]), ("settleToolCall", &[PermitHolder])];

pub(in crate::http) struct Workers(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Workers")]
impl Workers {
    /// Claim a call
    ///
    /// Hands the oldest approved call of one of these worker tools to the caller, in the caller's tenant. Only
    /// callers with one of `auth.worker_roles` may claim. The policy is checked again, and each call is handed
    /// to one worker. Of one user at most `limits.claims_per_user` claims wait at one process.
    #[oai(path = "/tool_calls/claim", method = "post", operation_id = "claimToolCall")]
    async fn claim(
        &self,
        caller: Caller,
        disconnected: Disconnected,
        body: Strict<ClaimCall>,
    ) -> Result<Json<ClaimResult>, ApiError> {
        let ClaimCall { tools, wait } = body.0;
        if tools.is_empty() || tools.len() > TOOLS_MAX {
            return Err(ApiError::bad_request(format!("tools: expected 1 to {TOOLS_MAX} names")));
        }
        let wait = wait.unwrap_or_default();
        if wait > WAIT_MAX {
            return Err(ApiError::bad_request(format!("wait: expected at most {WAIT_MAX} seconds")));
        }
        let wait = Duration::from_secs(wait);
        let _slot = (!wait.is_zero()).then(|| self.0.rates.claim(&caller.0)).transpose()?;
        let claimed = self.0.approvals.claim_for_worker(&caller.0, &tools, wait, &disconnected.0).await?;
        Ok(Json(ClaimResult { claim: claimed.map(Claim::from) }))
    }

    /// Renew the lease of a call
    ///
    /// Keeps the execution alive, until the `timeout` of the tool after the claim at the latest. A worker renews
    /// about three times per lease, and may report its `progress` with it. It gets 409 `execution_over` if the execution is over, and 404 if the permit
    /// is not the one of the call's last claim.
    #[oai(path = "/tool_calls/:tool_call_id/renew", method = "post", operation_id = "renewToolCall")]
    async fn renew(
        &self,
        caller: Caller,
        /// The claimed call.
        tool_call_id: Path<Id>,
        body: Strict<RenewCall>,
    ) -> Result<Json<RenewResult>, ApiError> {
        let id = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        let RenewCall { permit, progress } = body.0;
        let progress = progress.as_ref().and_then(ReportedByWorker::read);
        let renewed = self.0.approvals.renew_for_worker(&caller.0, id, &permit, progress.as_ref()).await?;
        Ok(Json(RenewResult {
            lease_until: renewed.lease_until.into(),
            lease_ms: millis(renewed.lease),
            cancel_requested: renewed.cancel_requested,
        }))
    }

    /// Settle a call
    ///
    /// Stores the outcome of the execution. A repeat of the same outcome is accepted, another outcome gets 409
    /// `execution_over`. After the end of the lease an outcome is still accepted, unless the call was settled
    /// otherwise or claimed again.
    #[oai(path = "/tool_calls/:tool_call_id/settle", method = "post", operation_id = "settleToolCall")]
    async fn settle(
        &self,
        caller: Caller,
        /// The claimed call.
        tool_call_id: Path<Id>,
        body: Strict<SettleCall>,
    ) -> Result<SettleResponse, ApiError> {
        let id = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        let (permit, report) = body.0.report()?;
        let settled = self.0.approvals.settle_for_worker(&caller.0, id, &permit, report).await?;
        let Reported { state, replayed } = settled;
        let result = SettleResult { tool_call_id: Id::of(id), state: state.into() };
        Ok(SettleResponse::Settled(Json(result), replayed.then(|| "true".to_owned())))
    }
}
