"""The answer of `convbench judge --pairwise`, and how it is printed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convbench.commands._command import Answer, EarlyExit, RunContext
from convbench.commands._output import (
    EVALS,
    out,
    print_fact,
    print_report_table,
    run_option,
    shell_path,
)
from convbench.options.judge import JudgeOptions

if TYPE_CHECKING:
    from convbench.judges.compare import ComparisonSummary
    from convbench.judges.run import JudgeResult


class Duels(Answer):
    """Two policies against each other, by one judge."""

    judge: str
    """Name of the judge."""
    first: str
    """The first policy, as typed."""
    second: str
    """The second policy, as typed."""
    win_rate: float | None
    """Win rate of the first, a tie counts one half; null without a duel judged in both orders."""
    low: float | None
    """Lower end of its 95% interval."""
    high: float | None
    """Upper end of its 95% interval."""
    wins: int
    """Duels that the first won."""
    ties: int
    """Duels that nobody won."""
    losses: int
    """Duels that the second won."""
    flips: float | None
    """Share of duels whose winner the order chose."""


def duel_answer(compared: ComparisonSummary) -> Duels:
    """Return the answer for a comparison of two policies by one judge.

    Without a duel judged in both orders, rates are None and counts 0.
    """
    wins = compared.wins
    ends = (wins.rate.interval if wins else None) or (None, None)
    return Duels(
        judge=compared.summary.name,
        first=compared.names[0],
        second=compared.names[1],
        win_rate=wins.rate.mean if wins else None,
        low=ends[0],
        high=ends[1],
        wins=wins.wins if wins else 0,
        ties=wins.ties if wins else 0,
        losses=wins.losses if wins else 0,
        flips=wins.flips if wins else None,
    )


def note_duels(result: JudgeResult, options: JudgeOptions, context: RunContext) -> None:
    """Add notes on what could not be compared and what failed, and the next command.

    Raises EarlyExit if a judge stopped early, or if too many orders have no preference
    (`--fail-on`).
    """
    for compared in result.comparisons:
        _note_couples(compared, context)
    typed = shlex.join(["--pairwise", *(options.pairwise or ())])
    typed += " --batch" * options.calls.batch
    run = f" --run {shell_path(options.run)}" if options.run else ""
    for compared in result.comparisons:
        judged = compared.summary
        judge = f"--judge {shlex.quote(judged.name)}"
        again = f"convbench judge {typed} {judge}{run}"
        context.note_judged(judged, compared.home.path, again)
    fails = options.calls.is_failure
    if any(
        fails(judged.failed_count, judged.failed_count + judged.jobs.done)
        for judged in result.summaries
    ):
        raise EarlyExit(1)
    context.add_next(f"convbench report{_report_words(result.comparisons, options)}")


def _report_words(compared: Sequence[ComparisonSummary], options: JudgeOptions) -> str:
    """Return the arguments of `report` for all that was compared: the runs (a run's report holds
    its evaluations) and the options that it needs for them."""
    from convbench.errors import RunError
    from convbench.judges.duels import run_of_side
    from convbench.reports.comparable import NotComparable
    from convbench.reports.frame import read_settings
    from convbench.store import Run

    runs = [run_of_side(name, options.run).path for item in compared for name in item.names]
    above = (run.parents[1] if run.parent.name == EVALS else run for run in map(Path.resolve, runs))
    roots = list(dict.fromkeys(above))
    if len(roots) == 1:
        return run_option(roots[0], "")
    named = "".join(f" {shell_path(item)}" for item in roots)
    opened = [Run.open(item) for item in roots]
    for split, option in (("test", ""), ("all", " --split all")):
        try:
            read_settings(opened, split)
        except NotComparable:
            return f"{named}{option} --allow-incomparable"
        except RunError:  # a run without conversations of this split
            continue
        return f"{named}{option}"
    return named


def print_duels(compared: list[ComparisonSummary]) -> None:
    """Print win rates, as the report does."""
    from convbench.reports.pairwise import rates_table

    for home in dict.fromkeys(shell_path(pair.home.path) for pair in compared):
        print_fact("kept in", f"{home} (comparisons.jsonl)")
    out.print()
    print_report_table(
        rates_table([(p.summary.name, " over ".join(p.names), p.wins) for p in compared])
    )


def _note_couples(pair: ComparisonSummary, context: RunContext) -> None:
    """Add notes on conversations that could not be paired."""
    names = f"{pair.names[0]} over {pair.names[1]}, {pair.summary.name}"
    counts = {
        "about a question and sample that only one of them has": pair.couples.alone,
        "in couples where one conversation failed": 2 * pair.couples.failed,
        "whose question differs between the runs": 2 * pair.couples.apart,
    }
    for what, count in counts.items():
        if count:
            context.add_note(f"{names}: {count} conversations not compared, {what}")
