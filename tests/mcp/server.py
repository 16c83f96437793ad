"""An MCP server on the SDK for Python. It writes each execution to calls.log in the folder STATE."""

import os
import signal
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("python", version="1.0.0")


def log(line: str) -> None:
    with (Path(os.environ["STATE"]) / "calls.log").open("a") as file:
        file.write(f"{line}\n")


@server.tool()
def pay(amount: int) -> dict[str, int]:
    """Pays an amount."""
    log(f"pay {amount}")
    return {"paid": amount}


@server.tool()
def protocol(ctx: Context) -> str:
    """Says which version of the protocol the client chose."""
    return str(ctx.protocol_version)


@server.tool()
def fail() -> str:
    """Fails."""
    log("fail")
    raise ToolError("it is closed today")


@server.tool()
def die() -> str:
    """Ends its process, after its effect and before its answer."""
    log("die")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never said"


@server.tool()
async def redefine(description: str, ctx: Context) -> str:
    """Changes what the tool that pays says about itself."""
    server.remove_tool("pay")
    server.add_tool(pay, description=description)
    await ctx.notify_tools_changed()
    return "done"


server.run()
