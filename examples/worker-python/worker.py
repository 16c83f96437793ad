"""A worker: claims approved calls of its tools from holdpoint, runs them and settles them."""

import json
import os
import threading
import time
import urllib.error
import urllib.request

BASE = os.environ.get("HOLDPOINT_URL", "http://127.0.0.1:8080")
HEADERS = {"content-type": "application/json"}
if token := os.environ.get("HOLDPOINT_TOKEN"):
    HEADERS["authorization"] = f"Bearer {token}"


class Refused(Exception):
    """The effect did not happen and will not. After any other exception the outcome of the call is unknown."""


def refund(call, stop):
    """`stop` is set if the call is cancelled, or if its lease is lost."""
    if call["input"]["cents"] > 10_000:
        raise Refused("more than 100.00 needs the bank")
    return {"refunded": call["input"]["order"], "reference": call["idempotency_key"]}


def post(path, body):
    """Posts until the server answers. A repeated renewal or outcome changes nothing."""
    while True:
        request = urllib.request.Request(BASE + path, json.dumps(body).encode(), HEADERS)
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return True, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                return False, json.load(error)
        except OSError:
            pass  # The server is away.
        time.sleep(1)


def execute(tool, claim):
    call, permit, done, stop = claim["call"], claim["permit"], threading.Event(), threading.Event()
    path = f"/tool_calls/{call['tool_call_id']}"

    def renew():
        while not done.wait(claim["lease_ms"] / 3000):
            ok, lease = post(f"{path}/renew", {"permit": permit})
            if not ok or lease["cancel_requested"]:
                stop.set()

    threading.Thread(target=renew, daemon=True).start()
    try:
        outcome = {"outcome": "succeeded", "result": tool(call, stop)}
    except Refused as refusal:
        outcome = {"outcome": "failed", "error": str(refusal)}
    except Exception:
        outcome = {"outcome": "unknown"}
    done.set()
    post(f"{path}/settle", {"permit": permit, **outcome})


def work(tools):
    while True:
        ok, body = post("/tool_calls/claim", {"tools": list(tools), "wait": 20})
        if not ok:
            raise SystemExit(body["error"]["message"])
        if claim := body.get("claim"):
            execute(tools[claim["call"]["tool_name"]], claim)


if __name__ == "__main__":
    work({"refund": refund})
