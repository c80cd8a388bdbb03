"""What self-edits of few-shot tasks ask for, before the training and after it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from convbench.judge.kinds import kind_of
from convbench.report.document import Cell, Column, Table
from convbench.report.policies import Policy, judge_spec
from convbench.report.sections import Section
from convbench.report.tables.cells import NONE
from convbench.tasks.arc_agi.edit import GROUPS, STRATEGIES


def is_few_shot(section: Section, judge: str | None) -> bool:
    """Whether a judge of this section is a few-shot one."""
    spec = judge_spec(section.policies, judge)
    return spec is not None and kind_of(spec).measures == "solutions"


def choice_table(section: Section, judge: str | None) -> Table | None:
    """Return how often self-edits ask for each tool, strategy, rate and number of epochs, by
    policy, as shares of all of its edits; None for another judge."""
    if judge is None or not is_few_shot(section, judge):
        return None
    counted = [(policy.name, _counts(policy, judge)) for policy in section.policies]
    counted = [(name, found) for name, found in counted if found["edits"]]
    if not counted:
        return None
    rows = [
        (Cell(what), *(_cell(found, what) for _, found in counted))
        for what in _order(found for _, found in counted)
    ]
    columns = (
        Column("Self-edits that ask for", "Ask for", numeric=False),
        *(Column(name, name) for name, _ in counted),
    )
    notes = ("Shares of all self-edits of the policy; in brackets, how many.",)
    return Table("What self-edits ask for", columns, tuple(rows), notes, "choices")


def _cell(found: Mapping[str, int], what: str) -> Cell:
    if what == "edits":
        return Cell(str(found["edits"]))
    return Cell(f"{found[what] / found['edits']:.2f} ({found[what]})") if found[what] else NONE


def _counts(policy: Policy, judge: str) -> Counter[str]:
    """Return how many of a policy's edits ask for what."""
    found: Counter[str] = Counter()
    for row in policy.rows:
        scored = row.verdicts.get(judge)
        if scored is None or scored.failed:
            continue
        found["edits"] += 1
        found["not trained on"] += not scored.scores.get("trained", 1.0)
        found.update(_asked(scored.details.get("edit")))
    return found


def _asked(edit: Any) -> Iterator[str]:
    """Yield what one edit asks for. Verdicts may come from elsewhere: what is no edit is none."""
    if not isinstance(edit, Mapping):
        yield "no valid edit"
        return
    tools = edit.get("tools")
    yield from (f"tools: {group}" for group in GROUPS if isinstance(tools, list) and group in tools)
    if edit.get("strategy") in STRATEGIES:
        yield _strategy(edit["strategy"])
    rate, epochs = edit.get("learning_rate"), edit.get("epochs")
    if isinstance(rate, int | float) and 0 < rate <= 1:
        yield _rate(math.floor(math.log10(rate) + 1e-9))
    if isinstance(epochs, int) and epochs > 0:
        yield _epochs(epochs)


def _strategy(name: str) -> str:
    return "loss on " + name.removeprefix("train_using_").replace("_", " ")


def _rate(power: int) -> str:
    return "rate 1" if power >= 0 else f"rate 1e{power} to 1e{power + 1}"


def _epochs(epochs: int) -> str:
    return f"epochs: {epochs}" if epochs < 4 else "epochs: 4 to 7" if epochs < 8 else "epochs: 8 on"


def _order(found: Iterator[Counter[str]]) -> list[str]:
    """Return the lines of the table: those that some policy asks for, in a fixed order."""
    there = {what for counts in found for what, count in counts.items() if count}
    fixed = [
        "edits", *(f"tools: {group}" for group in GROUPS), *map(_strategy, STRATEGIES),
        *(_rate(power) for power in range(-400, 1)), *(_epochs(n) for n in (1, 2, 3, 4, 8)),
        "no valid edit", "not trained on",
    ]  # fmt: skip
    return [what for what in fixed if what in there]
