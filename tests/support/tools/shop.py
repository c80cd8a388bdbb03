"""An honest tool server, by the package's own server class: prices, sums, and its environment."""

import os
import subprocess

from mcp.server.mcpserver import MCPServer

app = MCPServer("shop")


@app.tool()
def price(item: str) -> str:
    """The price of one basket of a good in pence."""
    return f"{item}: {3 + len(item)} pence"


@app.tool()
def variables() -> str:
    """Names of the variables of its environment."""
    return ",".join(sorted(os.environ))


@app.tool()
def helper() -> str:
    """Start a process that outlives everything, and tell its number."""
    started = subprocess.Popen(
        ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done"], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return str(started.pid)


@app.tool()
def fails() -> str:
    """Fail."""
    raise ValueError("out of stock")


if __name__ == "__main__":
    app.run("stdio")
