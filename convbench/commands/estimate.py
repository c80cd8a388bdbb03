"""`convbench estimate`: a policy's mean reward from another policy's log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import path_text, print_fact, quoted, shell_path
from convbench.options.estimate import EstimateOptions

if TYPE_CHECKING:
    from convbench.stats.offpolicy import LogOverlap, PolicyValue

NAMES = ("direct", "snips", "doubly robust", "gain")


class EstimatedValue(Answer):
    """A mean reward with its 95% interval."""

    estimator: str
    """`direct`, `snips`, `doubly robust`; `gain` is SNIPS less the log's own policy."""
    mean: float
    low: float | None
    """Lower end of the interval; null if there is no standard error."""
    high: float | None
    """Upper end of the interval."""


class EstimateAnswer(Answer):
    """`estimate`: a policy's value from another one's log."""

    run: str
    """Folder of the run that is the log."""
    policy: str
    """The policy whose value is estimated."""
    judge: str
    """The judge whose verdicts are the reward."""
    conversations: int
    """Number of conversations that were weighed."""
    left_out: dict[str, int]
    """Number of conversations left out, by reason."""
    known: bool
    """Whether the value can be estimated from the log; else the exit code is 1."""
    why: list[str]
    """Why it cannot be estimated."""
    effective: float | None
    """Effective sample size in conversations; null if no weights could be computed."""
    effective_questions: float | None
    """Effective sample size in questions."""
    largest: float | None
    """Share of the largest weight."""
    shape: float | None
    """Pareto shape of the largest weights."""
    logged: EstimatedValue | None
    """The mean reward of the log's own policy."""
    values: list[EstimatedValue]
    """The estimates; at most the direct one if the value is not known."""


def run(options: EstimateOptions, context: RunContext) -> EstimateAnswer:
    """Estimate a policy's value from a log, and return the estimates.

    If the log cannot tell, `known` is False, reasons are added, and the exit code becomes 1.
    """
    from convbench.learn.estimate import estimate_policy

    done = estimate_policy(options)
    for why, count in done.skipped.items():
        context.add_note(f"omitted: {count} {why}")
    for line in done.notes:
        context.add_note(line)
    policy = path_text(Path(done.policy)) if Path(done.policy).exists() else done.policy
    if done.unknown:
        for why in done.unknown:
            context.add_line("undetermined: ", "red", why)
        context.add_next(f"convbench eval {quoted(policy)} --run {shell_path(done.run.path)}")
        context.exit_code = 1
    weights = done.overlap
    return EstimateAnswer(
        run=path_text(done.run.path),
        policy=policy,
        judge=done.judge,
        conversations=done.conversations,
        left_out=done.skipped,
        known=not done.unknown,
        why=done.unknown,
        effective=weights and weights.effective,
        effective_questions=weights and weights.effective_groups,
        largest=weights and weights.largest,
        shape=weights and weights.shape,
        logged=None if done.logged is None else _make_value("log", done.logged),
        values=[_make_value(name, done.values[name]) for name in NAMES if name in done.values],
    ).with_source(weights)


def _make_value(name: str, value: PolicyValue) -> EstimatedValue:
    low, high = value.interval or (None, None)
    return EstimatedValue(estimator=name, mean=value.mean, low=low, high=high)


def show(answer: EstimateAnswer) -> None:
    """Print the effective size of the log, and the estimates."""
    print_fact("run", quoted(answer.run))
    print_fact("policy", quoted(answer.policy))
    print_fact("log", f"{answer.conversations} conversations, judge {answer.judge}")
    weights: LogOverlap | None = answer._source
    if weights is not None:
        print_fact(
            "effective size",
            f"{weights.effective:.1f} conversations, {weights.effective_groups:.1f} questions of "
            f"{weights.groups}; largest weight {weights.largest:.1%} of all",
        )
    if answer.logged is not None:
        print_fact("log's own", _format_value(answer.logged))
    for value in answer.values:
        print_fact(value.estimator, _format_value(value, "+" if value.estimator == "gain" else ""))


def _format_value(value: EstimatedValue, sign: str = "") -> str:
    if value.low is None:
        return f"{value.mean:{sign}.4f}"
    return f"{value.mean:{sign}.4f}, 95 % [{value.low:{sign}.4f}, {value.high:{sign}.4f}]"


estimate_command = Command(run, show)
