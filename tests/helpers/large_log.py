"""A log with every reason to be left out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from convbench.learn.log import LoggedConversation
from convbench.store import Run
from tests.helpers.runs import conversation, example, failed, verdict, write_run

SOME = 8_192
"""Conversations of which memory is measured, and twice as many."""
WEIGHED, PAIRED, PICKED, JUDGED = 450, 320, 620, 260
"""Bytes of each that Python holds at most: of a conversation that is sorted and weighed, of one
that is paired, of one on another scale in another order, of a verdict. All texts are left in
files; 100,000 conversations are some 40 MB."""


def log(folder: Path) -> Run:
    """Judged by two, written in no order, with every reason to be left out."""
    draw = random.Random(3)
    keys = [(n, sample) for n in range(40) for sample in (0, 1)]
    draw.shuffle(keys)
    noise = "".join(f"{draw.getrandbits(64):x}" for _ in range(4000))
    talks = [
        conversation(n, sample, said=f"{noise}{n}.{sample} The answer is B.") for n, sample in keys
    ]
    talks[0] = failed(*keys[0])
    scores = [verdict(talk, draw.random()) for talk in talks[:-1] if talk.failure is None]
    others = [verdict(talk, 0.5, judge="other") for talk in talks]
    return write_run(folder, examples=[example(n) for n in range(40)], conversations=talks,
                     verdicts=[*scores, *others])  # fmt: skip


def told(item: LoggedConversation) -> tuple[Any, ...]:
    """What a learner sees of a conversation."""
    run = item.run.path if item.run else None
    return (
        item.conversation, item.example, item.reward, item.turns, item.task, item.group, run,
    )  # fmt: skip
