"""The subprocess of a local model: `python -m convbench.models.worker SETTINGS`.

It reads calls from stdin and writes replies to stdout, one line of JSON each; what libraries print
goes to stderr. It ends with its stdin, and with its parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import Any, BinaryIO

import orjson
from pydantic import TypeAdapter

from convbench.errors import ConvbenchError, FatalModelError
from convbench.models.devices import VISIBLE
from convbench.models.local import LocalModel
from convbench.schema import Completion, Message, Sampling
from convbench.schema.reasoning import Reasoning
from convbench.util.guard import serve_parent

LINE = 64 << 20
"""Longest line in bytes."""
REPLY = TypeAdapter(Completion)


class Worker:
    """One model and its pending calls."""

    def __init__(self, settings: dict[str, Any], out: BinaryIO) -> None:
        self.model = LocalModel(settings.pop("ref"), **settings)
        self.share = settings["share"]
        self._out = out
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve_calls(self) -> None:
        """Load the model, report that it is ready, and answer calls until stdin ends, which ends
        the process.

        If the model does not load, report that and return.
        """
        lines = asyncio.StreamReader(limit=LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, lines), sys.stdin)
        calls = asyncio.ensure_future(self._read_calls(lines))
        try:
            await self.model.start()
        except ConvbenchError as error:
            self.write_line(broken=str(error))
            return
        self.write_line(ready={"devices": os.environ.get(VISIBLE), "share": self.share})
        await calls

    async def _read_calls(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            call = orjson.loads(line)
            if "cancel" in call:
                if (task := self._tasks.get(call["cancel"])) is not None:
                    task.cancel()
                continue
            self._tasks[call["id"]] = asyncio.ensure_future(self._answer_call(call))
        os._exit(0)  # at once, whatever the batch does: the system reclaims all memory

    async def _answer_call(self, call: dict[str, Any]) -> None:
        number = call["id"]
        try:
            sampling = Sampling.model_validate(call["sampling"])
            messages = [_read_message(message) for message in call["messages"]]
            reply = await self.model.complete(messages, sampling, key=call["key"])
        except FatalModelError as error:
            self.write_line(id=number, error=str(error), stops_run=error.stops_run)
        except Exception as error:  # noqa: BLE001
            # the batch broke, e.g. out of memory: no call after this one can be answered
            line = str(error).strip().split("\n")[0]
            self.write_line(broken=f"{self.model.ref}: {type(error).__name__}: {line}")
        else:
            self.write_line(id=number, reply=REPLY.dump_python(reply, mode="json"))
        finally:
            self._tasks.pop(number, None)

    def write_line(self, **line: Any) -> None:
        """Write the arguments as one line of JSON to the parent; end the process if the parent is
        gone."""
        try:
            self._out.write(orjson.dumps(line) + b"\n")
            self._out.flush()
        except BrokenPipeError:
            os._exit(0)


def _read_message(message: dict[str, Any]) -> Message:
    """Return a message restored from JSON."""
    if "reasoning" in message:
        message["reasoning"] = Reasoning.model_validate(message["reasoning"])
    return message  # type: ignore[return-value]


def main() -> None:
    """Serve calls with the settings in the first argument, then end the process: this does not
    return."""
    out = serve_parent()
    asyncio.run(Worker(orjson.loads(sys.argv[1]), out).serve_calls())
    os._exit(1)


if __name__ == "__main__":
    main()
