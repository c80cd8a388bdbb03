"""Run what was printed to be typed next to its end, as a user of it would."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.helpers.cli import Done, convbench, finish, start, until
from tests.helpers.typed import Said, type_here

SENDS = ("publish",)
"""Commands that would send something to a place that is not here."""
WEIGHTS = ("demo", "eval", "train")
"""Commands that import torch, as a model `local:` does: typed in this process, which has it."""


def run_to_end(
    words: Sequence[str], folder: Path = Path(), extra: Mapping[str, str] | None = None
) -> Done | Said:
    """Run a command to its end. A page that is served ends as its user ends it; what a dry run
    would send is not sent. `extra` goes into its environment."""
    if words[0] == "view" and "--static" not in words:
        return _run_served(words, folder)
    if words[:2] == ["gold", "import"]:
        _fill_in(folder / words[2])
    sent = words[0] in SENDS and "--dry-run" not in words
    typed = [*words, *["--dry-run"] * sent]
    if (words[0] in WEIGHTS or any(word.startswith("local:") for word in words)) and not extra:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            done = type_here(*typed)
    else:
        done = convbench(folder, *typed, **({"extra": dict(extra)} if extra else {}))
    assert done.code == 0, (words, done.out + done.err)
    return done


def _run_served(words: Sequence[str], folder: Path) -> Done:
    process = start(folder, *words, "--no-open", "--port", "0")
    shown: list[str] = []
    assert process.stdout is not None
    until(lambda: "http://" in (shown.append(process.stdout.readline()) or shown[-1]), process)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code in (0, 130), (words, done.err)
    return done


def _fill_in(queue: Path) -> None:
    """Score what is to be labelled."""
    rows = [json.loads(line) for line in queue.read_text().splitlines()]
    for row in rows:
        row |= {"rater": "me", "scores": dict.fromkeys(row["scores"], 5)}
    queue.write_text("".join(json.dumps(row) + "\n" for row in rows))
