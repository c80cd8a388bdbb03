"""Kill a build at stated moments, again and again, and let the last one end.

``python -m tests.support.killer URL FOLDER MOMENTS ARGUMENTS`` (the last two JSON lists) forks one
process a moment, so that convbench is imported once. A moment is a record that is about to be
written or was (`before batch`, `after reply 3`) or a step of the provider (`stall created`). Prints
how each process ended: -9 where it was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convbench.engine import batches
from convbench.store import jsonl

LONG_S = 60.0
RECORDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "intent": lambda record: "calls" in record,
    "batch": lambda record: "batch" in record,
    "ended": lambda record: "ended" in record,
    "reply": lambda record: "finish_reason" in record and "hash" in record,
    "conversation": lambda record: "turns" in record,
}


def main() -> None:
    """Do as the arguments say."""
    url, folder = sys.argv[1], Path(sys.argv[2])
    moments, arguments = json.loads(sys.argv[3]), json.loads(sys.argv[4])
    batches.LISTED_S, batches.SOONEST_S = 0.05, 0.02
    if any("anthropic/" in argument for argument in arguments):
        from convbench.models.litellm_model import load_litellm

        load_litellm()
    os.chdir(folder)
    print(json.dumps([once(url, moment, arguments) for moment in [*moments, None]]), flush=True)


def once(url: str, moment: str | None, arguments: list[str]) -> int:
    """Run the command in a process of its own, killed at the moment; return how it ended."""
    how, _, what = (moment or "").partition(" ")
    step = what if how == "stall" else None
    post(url, "/_batch_plan", {"stall": step})
    child = os.fork()
    if child == 0:
        run(how, what, arguments)
    if step is not None:
        wait_until(lambda: step in post(url, "/_batch_state", None)["stalled"] or over(child))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def over(child: int) -> bool:
    """Whether a process has ended by itself; it stays to be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def run(how: str, what: str, arguments: list[str]) -> None:
    """Run the command; this process ends with it, or at its moment."""
    if how in ("before", "after"):
        kind, _, number = what.partition(" ")
        hook(how, kind, int(number or 1))
    code = 70
    try:
        from convbench.__main__ import main as command

        sys.argv = ["convbench", *arguments]
        sys.stdout = sys.stderr
        command()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stderr.flush()
        os._exit(code)


def hook(how: str, kind: str, number: int) -> None:
    """Die at the record of this kind and number, before or after it is written."""
    seen = 0

    def wrap(write: Callable[[Any, bytes], None]) -> Callable[[Any, bytes], None]:
        def written(self: Any, line: bytes) -> None:
            nonlocal seen
            hit = RECORDS[kind](json.loads(line))
            seen += hit
            mine = hit and seen == number
            if mine and how == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            write(self, line)
            if mine:
                os.kill(os.getpid(), signal.SIGKILL)

        return written

    jsonl.Appender.write = wrap(jsonl.Appender.write)  # type: ignore[method-assign]


def post(url: str, path: str, value: object) -> Any:
    """Ask the provider's control page."""
    request = urllib.request.Request(url + path, method="GET")
    if value is not None:
        request = urllib.request.Request(url + path, json.dumps(value).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=LONG_S) as reply:
        return json.load(reply)


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that must come."""
    ends = time.monotonic() + 10 * LONG_S
    while not true():
        if time.monotonic() > ends:
            raise SystemExit("waited in vain")
        time.sleep(0.01)


if __name__ == "__main__":
    main()
