"""Drives the client of openapi-python-client."""

import os

from client import Client
from client.api.approvals import list_approvals
from client.api.chat import run_turn, validate_tool
from client.api.threads import create_thread
from client.api.tool_calls import get_tool_call
from client.models.error_body import ErrorBody
from client.models.error_code import ErrorCode
from client.models.risk_level import RiskLevel
from client.models.run_status import RunStatus
from client.models.run_turn import RunTurn
from client.models.tool_call_state import ToolCallState
from client.models.validate_tool import ValidateTool
from client.models.validate_tool_validated_inputs_type_0 import ValidateToolValidatedInputsType0
from client.models.verdict import Verdict

client = Client(base_url=os.environ["HOLDPOINT_URL"], timeout=60)

thread = create_thread.sync(client=client)
turn = run_turn.sync(thread.thread_id, client=client, body=RunTurn(content="write hello to python.txt"))
assert turn.status is RunStatus.RUN_STATUS_WAITING, turn

[held] = list_approvals.sync(client=client, session_id=str(thread.session_id)).results
assert held.state is ToolCallState.TOOL_CALL_STATE_PENDING and held.risk_level is RiskLevel.RISK_LEVEL_MEDIUM and held.can_decide, held

approval = ValidateTool(
    tool_call_id=held.tool_call_id,
    is_validated=True,
    validated_inputs=ValidateToolValidatedInputsType0.from_dict(
        held.input_.to_dict() | {"content": "edited in python"}
    ),
    input_hash=held.input_hash,
)
first = validate_tool.sync_detailed(client=client, body=approval)
assert first.parsed.success and first.parsed.state is ToolCallState.TOOL_CALL_STATE_SUCCEEDED, first
assert "idempotent-replayed" not in first.headers

call = get_tool_call.sync(held.tool_call_id, client=client)
assert call.state is ToolCallState.TOOL_CALL_STATE_SUCCEEDED, call
assert call.decision.decision is Verdict.VERDICT_APPROVE and call.decision.edited, call

again = validate_tool.sync_detailed(client=client, body=approval)
assert again.headers["idempotent-replayed"] == "true" and again.parsed.result == first.parsed.result, again

late = validate_tool.sync_detailed(
    client=client, body=ValidateTool(tool_call_id=held.tool_call_id, is_validated=False)
)
assert late.status_code == 409 and isinstance(late.parsed, ErrorBody), late
assert late.parsed.error.code is ErrorCode.ERROR_CODE_ALREADY_DECIDED, late
