"""Cases that reach further than chance would: words that the scripted model understands, in few threads, and the ids
of held calls, which stand in streams, where the links of a document cannot look."""

import itertools
import json
import os
import pathlib
import random
import re

import requests
import schemathesis
from schemathesis import GenerationMode

SENTENCES = ["delete notes.txt", "write hello to notes.txt", "list files and delete notes.txt", "what happened"]
THREADS = ["page-1", "page-2", "page-3"]
HELD = re.compile(r'"toolCallId":"([0-9a-f-]{36})","validated":"pending"|"approvalId":"([0-9a-f-]{36})"')
DIALECTS = pathlib.Path(__file__).parents[1] / "wire/dialects.json"
STREAMS = {dialect["protocol_header"] for dialect in json.loads(DIALECTS.read_text())}
OPTIONAL_BODIES = ["createThread", "runTurn"]
UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# All of them, because what is decided has to be answered too, and those that were not decided here yet.
held = []
fresh = []
ways = itertools.cycle(["approve", "reject", "cancel"])
chance = random.Random(1)


@schemathesis.hook
def before_load_schema(context, raw_schema):
    # The document is that of mode `jwt`. In mode `none` no request needs the token that it names.
    if os.environ["MODE"] == "none":
        for path in raw_schema["paths"].values():
            for operation in path.values():
                operation.pop("security", None)


@schemathesis.hook
def filter_case(context, case):
    # Null counts as an absent body, which the document cannot say without a null in the types of all clients.
    if case.body is None and case.operation.definition.raw.get("operationId") in OPTIONAL_BODIES:
        return False
    # The document says in words that an integer has at most 64 bits, because a schema of any JSON cannot say it.
    positive = case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE
    return not (positive and has_wide_integer(case.body))


def has_wide_integer(value):
    if isinstance(value, dict):
        return any(map(has_wide_integer, value.values()))
    if isinstance(value, list):
        return any(map(has_wide_integer, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**64


@schemathesis.hook
def after_call(context, case, response):
    if any(name in response.headers for name in STREAMS):
        for call in map("".join, HELD.findall(response.text)):
            held.append(call)
            if len(held) % 2:
                end(call, response.request)
            else:
                fresh.append(call)


@schemathesis.hook
def before_call(context, case, kwargs):
    positive = case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE
    if case.path.startswith("/qa/chat_streamed"):
        if positive and chance.random() < 0.9:
            talk(case)
    elif case.path == "/qa/validate_tool":
        # What is no id is there to be refused.
        if held and isinstance(case.body, dict) and UUID.fullmatch(str(case.body.get("toolCallId"))):
            decide(case.body, positive)
    elif case.path == "/qa/validate_tools":
        if positive:
            decide_all(case.body["decisions"])
    elif held and "tool_call_id" in case.path_parameters and chance.random() < 0.3:
        case.path_parameters["tool_call_id"] = chance.choice(held)


def end(call, request):
    """Ends every other held call at once, in turn in each way, so that a slow machine comes to it as well."""
    base = request.url.split("/qa/")[0]
    headers = {name: value for name, value in request.headers.items() if name.lower() == "authorization"}
    way = next(ways)
    if way == "cancel":
        answer = requests.post(f"{base}/tool_calls/{call}/cancel", headers=headers, timeout=20)
    else:
        decision = {"toolCallId": call, "isValidated": way == "approve"}
        answer = requests.post(f"{base}/qa/validate_tool", json=decision, headers=headers, timeout=20)
    # A stream may report it again after it has ended.
    assert answer.status_code in (200, 409), answer.text


def talk(case):
    if "thread_id" in case.path_parameters:
        case.path_parameters["thread_id"] = chance.choice(THREADS)
    if "chatId" in case.query:
        case.query["chatId"] = chance.choice(THREADS)
    if isinstance(case.body, dict):
        case.body["content"] = chance.choice(SENTENCES)
        case.body.pop("model", None)
        case.body.pop("tool_selection", None)
        if chance.random() < 0.8:
            case.body.pop("trigger", None)
        if "id" in case.body:
            case.body["id"] = chance.choice(THREADS)


def decide(body, positive):
    if not positive or not fresh or chance.random() < 0.2:
        body["toolCallId"] = chance.choice(held)
        return
    body["toolCallId"] = fresh.pop()
    body["isValidated"] = chance.random() < 0.6
    # Inputs and hashes by chance fit no tool, and nothing would ever run.
    body.pop("validatedInputs", None)
    body.pop("inputHash", None)


def decide_all(decisions):
    """Each about another call: what names one twice is refused as a whole."""
    calls = list(dict.fromkeys(held))
    chance.shuffle(calls)
    del decisions[max(1, len(calls)):]
    for decision, call in zip(decisions, calls):
        decision["toolCallId"] = call
        decision.pop("validatedInputs", None)
        decision.pop("inputHash", None)
