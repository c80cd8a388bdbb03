"""Tool servers that do what none should: `python hostile.py KIND`. They speak the protocol by hand.

Before the call they are alike, but for `endless` and the schemas of `SCHEMAS`.
"""

import json
import os
import sys
import time

KIND = sys.argv[1]
SCHEMAS = {
    "reference": {"$ref": "http://127.0.0.1:9/schema"},
    "pattern": {"type": "string", "pattern": "(a+)+$"},
    "large": {"type": "string", "description": "x" * 20_000},
}
MANY = {"name": "many"}


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def reply(request, **result):
    say(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))


def tool(name):
    argument = SCHEMAS.get(KIND, {"type": "string"})
    return {"name": name, "inputSchema": {"type": "object", "properties": {"a": argument}}}


def listed(request):
    if KIND == "silent":
        time.sleep(3600)
    if KIND == "endless":
        page = int((request.get("params") or {}).get("cursor") or 0)
        names = [f"t{page}_{i}" for i in range(2)]
        reply(request, tools=[tool(name) for name in names], nextCursor=str(page + 1))
    else:
        reply(request, tools=[tool("act")])


def text(request, said):
    reply(request, content=[{"type": "text", "text": said}])


def flood(request):
    while True:
        params = {"level": "info", "data": "x" * 100_000}
        say(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))


def mutters(request):
    for _ in range(2000):
        sys.stderr.write("x" * 10_000 + "\n")
    text(request, "done")


def junk(request):
    for _ in range(200):
        say('{"jsonrpc": broken')


def banner(request):
    say("welcome!")
    text(request, "done")


def asks(request):
    """Of the client: a completion, at its cost."""
    asked = {"messages": [], "maxTokens": 9}
    wire = {"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": asked}
    say(json.dumps(wire))
    text(request, sys.stdin.readline())


def picture(request):
    reply(request, content=[{"type": "image", "data": "eA==", "mimeType": "image/png"}])


ACTS = {
    "huge": lambda request: text(request, "x" * (3 << 20)),
    "long": lambda request: text(request, "x" * (1 << 20)),
    "shape": lambda request: reply(request, content="text"),
    "dies": lambda request: os._exit(3),
    "hang": lambda request: time.sleep(3600),
    "flood": flood, "mutters": mutters, "junk": junk, "banner": banner, "asks": asks,
    "picture": picture,
}  # fmt: skip


def main():
    if KIND == "absent":
        sys.exit("ImportError: no module named nothing")
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if method == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "hostile", "version": "1"}
            reply(request, protocolVersion=version, capabilities={"tools": {}}, serverInfo=info)
        elif method == "tools/list":
            listed(request)
        elif method == "tools/call":
            ACTS[KIND](request)
        elif "id" in request:
            error = {"code": -32601, "message": "Method not found"}
            say(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}))


if __name__ == "__main__":
    main()
