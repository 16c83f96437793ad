// Drives the client of openapi-generator for Go.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	openapi "github.com/GIT_USER_ID/GIT_REPO_ID"
)

func must[T any](value T, response *http.Response, err error) (T, *http.Response) {
	if err != nil {
		panic(fmt.Sprint(err, response))
	}
	return value, response
}

func check(holds bool, seen ...any) {
	if !holds {
		panic(fmt.Sprintf("%+v", seen))
	}
}

func main() {
	config := openapi.NewConfiguration()
	config.Servers = openapi.ServerConfigurations{{URL: os.Getenv("HOLDPOINT_URL")}}
	client, ctx := openapi.NewAPIClient(config), context.Background()

	thread, _ := must(client.ThreadsAPI.CreateThread(ctx).Execute())
	words := openapi.NewRunTurn()
	words.SetContent("write hello to go.txt")
	turn, _ := must(client.ChatAPI.RunTurn(ctx, thread.ThreadId).RunTurn(*words).Execute())
	check(turn.Status == openapi.RUN_STATUS_WAITING, turn)

	inbox, _ := must(client.ApprovalsAPI.ListApprovals(ctx).SessionId(thread.SessionId).Execute())
	held := inbox.Results[0]
	check(held.State == openapi.TOOL_CALL_STATE_PENDING && held.RiskLevel == openapi.RISK_LEVEL_MEDIUM, held)

	approval := openapi.NewValidateTool(held.ToolCallId, true)
	approval.SetValidatedInputs(map[string]any{"path": held.Input["path"], "content": "edited in go"})
	approval.SetInputHash(held.InputHash)
	first, response := must(client.ChatAPI.ValidateTool(ctx).ValidateTool(*approval).Execute())
	check(first.Success && first.State == openapi.TOOL_CALL_STATE_SUCCEEDED, first)
	check(response.Header.Get("idempotent-replayed") == "", response.Header)

	call, _ := must(client.ToolCallsAPI.GetToolCall(ctx, held.ToolCallId).Execute())
	check(call.State == openapi.TOOL_CALL_STATE_SUCCEEDED, call)
	check(call.Decision.Decision == openapi.VERDICT_APPROVE && call.Decision.Edited, call.Decision)

	again, response := must(client.ChatAPI.ValidateTool(ctx).ValidateTool(*approval).Execute())
	check(response.Header.Get("idempotent-replayed") == "true" && again.Result == first.Result, again)

	rejection := openapi.NewValidateTool(held.ToolCallId, false)
	_, response, err := client.ChatAPI.ValidateTool(ctx).ValidateTool(*rejection).Execute()
	var failure *openapi.GenericOpenAPIError
	check(errors.As(err, &failure) && response.StatusCode == 409, err)
	body := failure.Model().(openapi.ErrorBody)
	check(body.Error.Code == openapi.ERROR_CODE_ALREADY_DECIDED, body)

	page, _ := must(client.ThreadsAPI.ListMessages(ctx, thread.ThreadId).Execute())
	check(len(page.Results) == 2 && page.Results[1].Role == openapi.MESSAGE_ROLE_ASSISTANT, page)
	check(page.Results[0].Parts[0].GetText() == "write hello to go.txt", page)
}
