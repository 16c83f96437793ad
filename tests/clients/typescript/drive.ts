// Drives the client of @hey-api/openapi-ts, and types one request with openapi-typescript.
import assert from 'node:assert/strict';
import createClient from 'openapi-fetch';
import { client } from './client/client.gen';
import { createThread, getToolCall, listApprovals, runTurn, validateTool } from './client/sdk.gen';
import type { paths } from './schema';

async function main(url: string) {
    client.setConfig({ baseUrl: url });

    const thread = (await createThread({ throwOnError: true })).data;
    const turn = await runTurn({
        path: { thread_id: thread.thread_id },
        body: { content: 'write hello to typescript.txt' },
        throwOnError: true,
    });
    assert.equal(turn.data.status, 'waiting');

    const inbox = await listApprovals({ query: { session_id: thread.session_id }, throwOnError: true });
    const [held] = inbox.data.results;
    assert.ok(held && held.state === 'pending' && held.risk_level === 'medium' && held.can_decide);

    const approval = {
        toolCallId: held.tool_call_id,
        isValidated: true,
        validatedInputs: { ...held.input, content: 'edited in typescript' },
        inputHash: held.input_hash,
    };
    const first = await validateTool({ body: approval, throwOnError: true });
    assert.deepEqual([first.data.success, first.data.state], [true, 'succeeded']);
    assert.equal(first.response?.headers.get('idempotent-replayed'), null);

    const call = (await getToolCall({ path: { tool_call_id: held.tool_call_id }, throwOnError: true })).data;
    assert.deepEqual([call.state, call.decision?.decision, call.decision?.edited], ['succeeded', 'approve', true]);

    const again = await validateTool({ body: approval, throwOnError: true });
    assert.equal(again.response?.headers.get('idempotent-replayed'), 'true');
    assert.equal(again.data.result, first.data.result);

    const late = await validateTool({ body: { toolCallId: held.tool_call_id, isValidated: false } });
    assert.equal(late.response?.status, 409);
    assert.ok(late.error && late.error.error.code === 'already_decided');

    const typed = createClient<paths>({ baseUrl: url });
    const same = await typed.GET('/tool_calls/{tool_call_id}', {
        params: { path: { tool_call_id: held.tool_call_id } },
    });
    assert.deepEqual(same.data?.validated_inputs, approval.validatedInputs);
}

main(process.env.HOLDPOINT_URL ?? '').catch((error) => {
    console.error(error);
    process.exit(1);
});
