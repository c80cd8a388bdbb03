"""Compare policies in pairs, or preview it: the core of `judge --pairwise`."""

from __future__ import annotations

from dataclasses import replace

from convbench.engine import run as run_loop
from convbench.errors import RunError, UsageError
from convbench.judge.all import JudgePreview, JudgeResult, judge_with_model, with_address
from convbench.judge.compare import Contest, Orders, compare, todo
from convbench.judge.duels import opponents, side
from convbench.judge.preview import preview_of
from convbench.judge.ready import check_variables, problem, ready
from convbench.judge.resolve import Judge, of_run, unquoted
from convbench.judge.units import Judged
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions

RUBRIC = "pairwise"
"""The rubric of a model that is named alone."""


def contests(options: JudgeOptions) -> JudgeResult:
    """Compare every two of the named policies by the judges, in both orders, and return the result;
    finished comparisons are not repeated. Raises ConvbenchError subclasses."""
    judges = _judges(options)
    listed = [
        Contest(
            (one, other),
            side(one, options.run),
            side(other, options.run),
            judge,
            options.until_decided,
        )
        for one, other in opponents(options.pairwise or (), options.run)
        for judge in judges
    ]
    listed = [replace(one, judge=_of_home(one, options.calls)) for one in listed]
    by_mark = {one.judge.fingerprint: one.judge for one in listed}
    result = JudgeResult(listed[0].home, warnings=unquoted(by_mark.values()))
    typed = [one.judge.model for one in listed if one.judge.model]
    calls = options.calls.naming(*typed)
    if options.dry_run:
        result.previews = [_preview(one, options.calls) for one in listed]
        asked = [
            one.judge
            for one, shown in zip(listed, result.previews, strict=True)
            if shown.estimate.calls
        ]
        result.problem = problem(asked, calls, result.run)
        return result
    for one in listed:
        if todo(one).left:
            ready([one.judge], calls, one.home)
    for one in listed:
        with one.home.lock():
            compared = run_loop(lambda one=one: compare(one, calls))  # type: ignore[misc]
        result.compared.append(compared)
        result.judged.append(compared.judged)
        if compared.judged.jobs.interrupted or compared.judged.jobs.stopped:
            break
    return result


def _of_home(contest: Contest, calls: CallOptions) -> Judge:
    """Return a contest's judge with the settings and address in its home run."""
    return with_address(of_run(contest.home, contest.judge), contest.home, calls)


def _judges(options: JudgeOptions) -> list[Judge]:
    """Return the judges. Raises UsageError without any, RunError if one does not compare pairs."""
    if not options.judges:
        raise UsageError(
            "--pairwise: found no --judge; expected a model (gpt-4o, …), SPEC@MODEL, or "
            "pairwise-rules, which asks no model"
        )
    found = [
        judge_with_model(name, options.specs, options.calls, default=RUBRIC)
        for name in dict.fromkeys(options.judges)
    ]
    for judge in found:
        if judge.spec.per != "pair":
            raise RunError(
                f"--judge {judge.name} scores one conversation; expected a rubric with per: pair, "
                f"e.g. {RUBRIC}@MODEL"
            )
    return found


def _preview(contest: Contest, calls: CallOptions) -> JudgePreview:
    """Return a contest's first request, with tokens and dollars of all its requests."""
    judge, left = contest.judge, todo(contest)
    if judge.model is not None:
        check_variables(judge.spec, contest.home.examples.values())
    unit = Orders(contest, left, list(left.pending), Judged(judge.name))
    return preview_of(judge, left.left, unit.requests(), calls)
