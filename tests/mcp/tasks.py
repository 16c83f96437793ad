"""An MCP server whose tools run as tasks, on PyPI's `fastmcp-tasks`. It writes each execution to calls.log in STATE."""

import os
from datetime import timedelta
from pathlib import Path

from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

server = FastMCP("tasks")
server.add_extension(TasksExtension())
task = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=500))
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def log(line: str) -> None:
    with (Path(os.environ["STATE"]) / "calls.log").open("a") as file:
        file.write(f"{line}\n")


@server.tool(task=task)
async def pay(amount: int) -> dict[str, int]:
    """Pays an amount."""
    log(f"pay {amount}")
    return {"paid": amount}


@server.tool(task=task)
async def fail() -> str:
    """Fails."""
    log("fail")
    raise ValueError("it is closed today")


@server.tool(task=task)
async def confirm(ctx: Context) -> str | InputRequiredResult:
    """Asks for a word, and says it."""
    if ctx.input_responses is None:
        log(f"confirm {os.getpid()}")
        params = ElicitRequestFormParams(message="Which word?", requested_schema=WORD)
        return InputRequiredResult(input_requests={"word": ElicitRequest(params=params)})
    return ctx.input_responses["word"].content["word"]


server.run(show_banner=False)
