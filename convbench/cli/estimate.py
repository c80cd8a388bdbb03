"""`convbench estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from convbench.cli.answers.measured import EstimateAnswer, EstimatedValue
from convbench.cli.command import command
from convbench.cli.console import err
from convbench.cli.envelope import give
from convbench.cli.say import fact, next_command, note, path_of, shown, told
from convbench.options.estimate import EstimateOptions

if TYPE_CHECKING:
    from convbench.commands.estimate import Estimated
    from convbench.stats.offpolicy import Value

NAMES = ("direct", "snips", "doubly robust", "gain")


@command("estimate", EstimateOptions, EstimateAnswer)
def estimate(options: EstimateOptions) -> None:
    """Estimate a policy's value from a log."""
    from convbench.commands.estimate import estimate as command

    done = command(options)
    give(_answer(done))
    fact("run", shown(done.run.path))
    fact("policy", _named(done.policy))
    fact("log", f"{done.conversations} conversations, judge {done.judge}")
    for why, count in done.skipped.items():
        note(f"left out: {count} {why}")
    for line in done.notes:
        note(line)
    if done.overlap is not None:
        seen = done.overlap
        fact("worth", f"{seen.effective:.1f} conversations, {seen.effective_groups:.1f} questions "
             f"of {seen.groups}; largest weight {seen.largest:.1%} of all")  # fmt: skip
    if done.logged is not None:
        fact("log's own", _number(done.logged))
    for name in NAMES:
        if name in done.values:
            fact(name, _number(done.values[name], "+" if name == "gain" else ""))
    if done.unknown:
        for why in done.unknown:
            told(err, "not known: ", "red", why)
        next_command(f"convbench eval {_named(done.policy)} --run {shown(done.run.path)}")
        raise typer.Exit(1)


def _named(policy: str) -> str:
    return shown(Path(policy)) if Path(policy).exists() else policy


def _number(value: Value, sign: str = "") -> str:
    if value.interval is None:
        return f"{value.mean:{sign}.4f}"
    low, high = value.interval
    return f"{value.mean:{sign}.4f}, 95 % [{low:{sign}.4f}, {high:{sign}.4f}]"


def _answer(done: Estimated) -> EstimateAnswer:
    seen = done.overlap
    return EstimateAnswer(
        run=path_of(done.run.path), policy=_named(done.policy), judge=done.judge,
        conversations=done.conversations, left_out=done.skipped, known=not done.unknown,
        why=done.unknown,
        effective=None if seen is None else seen.effective,
        effective_questions=None if seen is None else seen.effective_groups,
        largest=None if seen is None else seen.largest,
        shape=None if seen is None else seen.shape,
        logged=None if done.logged is None else _value("log", done.logged),
        values=[_value(name, done.values[name]) for name in NAMES if name in done.values],
    )  # fmt: skip


def _value(name: str, value: Value) -> EstimatedValue:
    low, high = value.interval or (None, None)
    return EstimatedValue(estimator=name, mean=value.mean, low=low, high=high)
