"""Answers in code and pages: what is asked, judged and shot, and whether this machine can."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from convbench.catalog import load_spec
from convbench.errors import MissingDependency
from convbench.judges.dispatch import judge_conversation
from convbench.judges.resolve import resolve_judge
from convbench.sandbox.browser import Shot, chromium, shoot
from convbench.schema import Conversation, Example, ProtocolSpec, Turn, Verdict
from tests.helpers.cli import finish, start
from tests.helpers.walls import stands


def _renders() -> bool:
    needed = all(importlib.util.find_spec(name) for name in ("playwright", "PIL", "skimage"))
    try:
        return bool(needed and chromium())
    except MissingDependency:
        return False


renders = pytest.mark.skipif(
    not _renders(), reason="no Chromium, playwright, pillow or scikit-image"
)


def shot(html: str) -> Shot:
    return asyncio.run(shoot(html))


OTHER = "<html><body style='background:#123'><table><tr><td>1<td>2<tr><td>3</table></body></html>"
TASKS = "facebook__collaborative_agent_bench/backend_tasks/test.parquet"


def protocol() -> ProtocolSpec:
    return load_spec(ProtocolSpec, "protocols", "collaboration")


def example(**hidden: object) -> Example:
    return Example(
        example_id="e", task="t", split="train", group_id="e",
        question="Write a function that adds. The signature is: def add(a, b)", hidden=hidden,
    )  # fmt: skip


def talk(*said: tuple[str, str]) -> Conversation:
    turns = [Turn(speaker="human", step="problem", content="go", finish_reason="scripted")]
    turns += [Turn(speaker=who, step="work", content=text) for who, text in said]
    return Conversation(
        key="e#0", conversation_id="c", example_id="e", turns=tuple(turns), stop="marker"
    )


needs_wall = pytest.mark.skipif(not stands(), reason="no sandbox stands on this machine")
REFERENCE = "def add(a, b):\n    return a + b"
CALLS = {f"test{i}": f"add({i}, {i / 2})" for i in range(10)}


async def _judged(answer: str, **hidden: object) -> Verdict:
    asked = {"reference": REFERENCE, "tests": json.dumps(CALLS), **hidden}
    return await judge_conversation(
        None, None, resolve_judge("unit-tests"), talk(("assistant", answer)), example(**asked),
        protocol(),
    )  # fmt: skip


def judged(answer: str, **hidden: object) -> Verdict:
    return asyncio.run(_judged(answer, **hidden))


HUMAN = "You play a person"


def command(folder: Path, *arguments: str) -> str:
    """Run `convbench` to its end and return what it printed; browsers start slowly."""
    done = finish(start(folder, *arguments), 200)
    assert done.code == 0, done.out + done.err
    return done.out
