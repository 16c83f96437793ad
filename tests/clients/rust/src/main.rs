//! Drives the client of progenitor.

use serde_json::json;
use std::error::Error;

mod client {
    #![allow(clippy::all, dead_code, rustdoc::all)]
    include!(concat!(env!("OUT_DIR"), "/client.rs"));
}

use client::types::{
    ErrorCode, MessageRole, RiskLevel, RunStatus, RunTurn, ToolCallState, ValidateTool, Verdict,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = client::Client::new(&std::env::var("HOLDPOINT_URL")?);

    let thread = client.create_thread(&Default::default()).await?.into_inner();
    let id = thread.thread_id.to_string();
    let words = RunTurn { content: Some("write hello to rust.txt".to_owned()), ..Default::default() };
    let turn = client.run_turn(&id.parse()?, None, &words).await?;
    assert_eq!(turn.status, RunStatus::Waiting);

    let session = thread.session_id.to_string().parse()?;
    let inbox = client.list_approvals(None, None, None, Some(&session), None, None).await?;
    let held = inbox.results.first().ok_or("nothing is held")?;
    assert_eq!((held.state, held.risk_level), (ToolCallState::Pending, RiskLevel::Medium));

    let mut inputs = held.input.clone();
    inputs.insert("content".to_owned(), json!("edited in rust"));
    let mut decision = ValidateTool {
        tool_call_id: held.tool_call_id,
        is_validated: true,
        validated_inputs: Some(inputs),
        input_hash: Some(held.input_hash.to_string()),
        link: None,
        preview_hash: None,
        reason: None,
        remember: None,
        resume: None,
    };
    let first = client.validate_tool(&decision).await?;
    assert_eq!((first.success, first.state), (true, ToolCallState::Succeeded));
    assert!(!first.headers().contains_key("idempotent-replayed"));

    let call = client.get_tool_call(&held.tool_call_id).await?.into_inner();
    let in_force = call.decision.ok_or("no decision")?;
    assert_eq!((call.state, in_force.decision), (ToolCallState::Succeeded, Verdict::Approve));
    assert!(in_force.edited);

    let again = client.validate_tool(&decision).await?;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(again.result, first.result);

    decision = ValidateTool { is_validated: false, validated_inputs: None, ..decision };
    match client.validate_tool(&decision).await {
        Err(progenitor_client::Error::ErrorResponse(late)) => {
            assert_eq!((late.status().as_u16(), late.error.code), (409, ErrorCode::AlreadyDecided));
        }
        other => return Err(format!("{other:?}").into()),
    }

    let page = client.list_messages(&id.parse()?, None, None).await?;
    assert_eq!(page.results.last().map(|message| message.role), Some(MessageRole::Assistant));
    Ok(())
}
