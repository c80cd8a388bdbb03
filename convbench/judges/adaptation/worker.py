"""The process of a `DeviceWorker`: `python -m convbench.judges.adaptation.worker WEIGHTS`.

Reads adaptations from stdin and writes the replies after each to stdout, one line of JSON each;
output of libraries goes to stderr. It ends with its stdin, and with its parent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson

from convbench.errors import ConvbenchError
from convbench.judges.adaptation.learner import Learner, Question
from convbench.judges.adaptation.settings import InnerSettings
from convbench.models.devices import VISIBLE
from convbench.util.guard import serve_parent


def teach_line(learner: Learner, request: dict[str, Any]) -> dict[str, Any]:
    """Return the replies after the adaptation of one request as a dict of the fields of
    `AdaptationReplies`. The request has `texts`, `questions`, `guard` and `inner`."""
    questions, guard = (
        [_parse_question(entry) for entry in request[name]] for name in ("questions", "guard")
    )
    inner = InnerSettings.model_validate(request["inner"])
    return asdict(learner.teach_texts(request["texts"], questions, inner, guard))


def _parse_question(fields: dict[str, Any]) -> Question:
    return Question(
        tuple(fields["messages"]), tuple(fields["golds"]), fields["text"], fields["topic"]
    )


def serve_lines(answer: Callable[[Learner, dict[str, Any]], dict[str, Any]]) -> None:
    """Load the learner named on the command line, and write `answer` of each line of stdin to
    stdout, until stdin ends.

    Lines are JSON: first `{"ready": …}`, then `{"done": …}` for each request. After an error it
    writes `{"broken": message}` and returns.
    """
    out = serve_parent()

    def write_line(**line: Any) -> None:
        out.write(orjson.dumps(line) + b"\n")
        out.flush()

    try:
        learner = Learner.load(sys.argv[1])
        write_line(ready=os.environ.get(VISIBLE))
        for line in sys.stdin.buffer:
            write_line(done=answer(learner, orjson.loads(line)))
    except ConvbenchError as error:
        write_line(broken=str(error))
    except BrokenPipeError:
        return
    except Exception as error:  # noqa: BLE001 - e.g. out of memory: the parent reports it
        words = str(error).strip().split("\n")[0]
        write_line(broken=f"{type(error).__name__}: {words}")


if __name__ == "__main__":
    serve_lines(teach_line)
