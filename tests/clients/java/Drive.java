import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.ApiResponse;
import org.openapitools.client.api.ApprovalsApi;
import org.openapitools.client.api.ChatApi;
import org.openapitools.client.api.ThreadsApi;
import org.openapitools.client.api.ToolCallsApi;
import org.openapitools.client.model.*;

/** Drives the client of openapi-generator for Java, on java.net.http. */
class Drive {
    static void check(boolean holds, Object seen) {
        if (!holds) {
            throw new AssertionError(String.valueOf(seen));
        }
    }

    static boolean isReplayed(ApiResponse<?> response) {
        return response.getHeaders().containsKey("idempotent-replayed");
    }

    public static void main(String[] args) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(System.getenv("HOLDPOINT_URL"));
        ChatApi chat = new ChatApi(client);
        ThreadsApi threads = new ThreadsApi(client);

        ChatThread thread = threads.createThread(null);
        RunTurn words = new RunTurn().content("write hello to java.txt");
        Turn turn = chat.runTurn(thread.getThreadId().toString(), null, words);
        check(turn.getStatus() == RunStatus.RUN_STATUS_WAITING, turn);

        Approval held = new ApprovalsApi(client)
            .listApprovals(null, null, thread.getSessionId().toString(), null, null, null).getResults().get(0);
        check(held.getState() == ToolCallState.TOOL_CALL_STATE_PENDING && held.getRiskLevel() == RiskLevel.RISK_LEVEL_MEDIUM, held);

        ValidateTool approval = new ValidateTool()
            .toolCallId(held.getToolCallId())
            .isValidated(true)
            .validatedInputs(Map.of("path", held.getInput().get("path"), "content", "edited in java"))
            .inputHash(held.getInputHash());
        ApiResponse<ValidateToolResult> first = chat.validateToolWithHttpInfo(approval);
        check(first.getData().getState() == ToolCallState.TOOL_CALL_STATE_SUCCEEDED && !isReplayed(first), first.getData());

        ToolCall call = new ToolCallsApi(client).getToolCall(held.getToolCallId());
        check(call.getState() == ToolCallState.TOOL_CALL_STATE_SUCCEEDED, call);
        check(call.getDecision().getDecision() == Verdict.VERDICT_APPROVE && call.getDecision().getEdited(), call);

        ApiResponse<ValidateToolResult> again = chat.validateToolWithHttpInfo(approval);
        check(isReplayed(again) && again.getData().getResult().equals(first.getData().getResult()), again.getData());

        try {
            chat.validateTool(new ValidateTool().toolCallId(held.getToolCallId()).isValidated(false));
            throw new AssertionError("the call was decided twice");
        } catch (ApiException failure) {
            check(failure.getCode() == 409, failure);
            ErrorBody body = client.getObjectMapper().readValue(failure.getResponseBody(), ErrorBody.class);
            check(body.getError().getCode() == ErrorCode.ERROR_CODE_ALREADY_DECIDED, body);
        }

        PageOfListedMessage page = threads.listMessages(thread.getThreadId().toString(), null, null);
        check(page.getResults().get(1).getRole() == MessageRole.MESSAGE_ROLE_ASSISTANT, page);
        check(page.getResults().get(0).getParts().get(0).getText().equals("write hello to java.txt"), page);
    }
}
