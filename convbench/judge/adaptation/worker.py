"""The process of a `hand`: `python -m convbench.judge.adaptation.worker WEIGHTS`.

Reads adaptations from stdin and writes what was then answered to stdout, a line of JSON each; what
libraries print goes to stderr. It ends when its stdin does, and with its parent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson

from convbench.errors import ConvbenchError
from convbench.guard import serve_parent
from convbench.judge.adaptation.learner import Learner, Question
from convbench.judge.adaptation.settings import Inner
from convbench.models.devices import VISIBLE


def taught(learner: Learner, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what one line asks for, as plain data."""
    questions, guard = ([_question(one) for one in asked[name]] for name in ("questions", "guard"))
    inner = Inner.model_validate(asked["inner"])
    return asdict(learner.teach(asked["texts"], questions, inner, guard))


def _question(found: dict[str, Any]) -> Question:
    return Question(tuple(found["messages"]), tuple(found["golds"]), found["text"], found["topic"])


def serve(answer: Callable[[Learner, dict[str, Any]], dict[str, Any]]) -> None:
    """Load, say so, and answer line by line until stdin ends."""
    out = serve_parent()

    def say(**line: Any) -> None:
        out.write(orjson.dumps(line) + b"\n")
        out.flush()

    try:
        learner = Learner.load(sys.argv[1])
        say(ready=os.environ.get(VISIBLE))
        for line in sys.stdin.buffer:
            say(done=answer(learner, orjson.loads(line)))
    except ConvbenchError as error:
        say(broken=str(error))
    except BrokenPipeError:
        return
    except Exception as error:  # noqa: BLE001 - e.g. out of memory: the parent says it
        words = str(error).strip().split("\n")[0]
        say(broken=f"{type(error).__name__}: {words}")


if __name__ == "__main__":
    serve(taught)
