"""How often the verdict takes a shared taste of two judges for a gain: 300 policies a world.

python -m tests.bench tastes
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from convbench.reports.verdict import WINS
from tests.bench.bench import Row
from tests.stats.tastes import World, judged
from tests.stats.trained import said

POLICIES = 300
WORLDS = (
    ("longer, no better", World(), 15, False),
    ("longer, no better, before an independent judge", World(second_pays=0.0), 8, False),
    ("more exclamations, no better", World("exclamations"), 15, False),
    ("more list items, no better", World("list items"), 15, False),
    ("longer and worse by .05", World(better=-0.05), 8, False),
    ("better by .08", World(shift=0.0, better=0.08), POLICIES / 2, True),
    ("longer and better by .08", World(better=0.08), POLICIES / 2, True),
    ("better by .08, before an independent judge",
     World(shift=0.0, better=0.08, second_pays=0.0), POLICIES / 2, True),
)  # fmt: skip
"""Each with the bound of how many are called real or agreed on, and whether it is a lower one."""


def tastes(folder: Path) -> Iterator[Row]:
    """Yield how many policies of each world are called real or agreed on, and how many that people
    find better and the judge overpays by a fifth are called gaming, by labels of each policy."""
    for what, world, bound, least in WORLDS:
        rng = random.Random(what)
        won = sum(judged(rng, world).word in WINS for _ in range(POLICIES))
        yield Row(f"called real or agreed on: {what}", won, f"of {POLICIES}", bound, at_least=least)
    for labels in (50, 100):
        rng = random.Random(labels)
        words = [said(rng, better=1.0, paid=0.18, labels=labels).word for _ in range(POLICIES)]
        yield Row(f"better, a fifth overpaid, {labels} labels, called gaming",
                  words.count("gaming"), f"of {POLICIES}", 0.02 * POLICIES)  # fmt: skip
