"""Compare policies in pairs, or preview it: the core of `judge --pairwise`."""

from __future__ import annotations

from dataclasses import replace

from convbench.engine import run_in_loop
from convbench.errors import RunError, UsageError
from convbench.judges.compare import Contest, PairUnit, compare_policies, contest_progress
from convbench.judges.duels import list_opponents, run_of_side
from convbench.judges.preview import preview_of
from convbench.judges.ready import check_ready, check_variables, find_problem
from convbench.judges.resolve import Judge, as_run_asked, unquoted_warnings
from convbench.judges.run import JudgePreview, JudgeResult, judge_with_model, with_address
from convbench.judges.units import JudgeSummary
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions

RUBRIC = "pairwise"
"""The rubric of a model that is named alone."""


def judge_pairwise(options: JudgeOptions) -> JudgeResult:
    """Compare every two of the named policies by each judge, in both orders, and return the result:
    `comparisons` and `summaries`, one each for a contest.

    Comparisons are appended to the runs as they finish; finished ones are not repeated. It stops
    after a contest that was interrupted or stopped. A dry run asks nothing and fills `previews` and
    `problem`. Raise UsageError without a judge, and other ConvbenchError subclasses.
    """
    judges = _pairwise_judges(options)
    listed = [
        Contest(
            (contest, other),
            run_of_side(contest, options.run),
            run_of_side(other, options.run),
            judge,
            options.until_decided,
        )
        for contest, other in list_opponents(options.pairwise or (), options.run)
        for judge in judges
    ]
    listed = [replace(contest, judge=_of_home(contest, options.calls)) for contest in listed]
    by_mark = {contest.judge.fingerprint: contest.judge for contest in listed}
    result = JudgeResult(listed[0].home, warnings=unquoted_warnings(by_mark.values()))
    typed = [contest.judge.model for contest in listed if contest.judge.model]
    calls = options.calls.with_user_models(*typed)
    if options.dry_run:
        result.previews = [_preview_contest(contest, options.calls) for contest in listed]
        to_ask = [
            contest.judge
            for contest, preview in zip(listed, result.previews, strict=True)
            if preview.estimate.calls
        ]
        result.problem = find_problem(to_ask, calls, result.run)
        return result
    for contest in listed:
        if contest_progress(contest).pending_count:
            check_ready([contest.judge], calls, contest.home)
    for contest in listed:
        with contest.home.lock():
            comparison = run_in_loop(lambda contest=contest: compare_policies(contest, calls))  # type: ignore[misc]
        result.comparisons.append(comparison)
        result.summaries.append(comparison.summary)
        if comparison.summary.jobs.interrupted or comparison.summary.jobs.stopped:
            break
    return result


def _of_home(contest: Contest, calls: CallOptions) -> Judge:
    """Return a contest's judge with the settings and address in its home run."""
    return with_address(as_run_asked(contest.home, contest.judge), contest.home, calls)


def _pairwise_judges(options: JudgeOptions) -> list[Judge]:
    """Return the judges. Raises UsageError without any, RunError if one does not compare pairs."""
    if not options.judges:
        raise UsageError(
            "--pairwise: found no --judge; expected a model (gpt-4o, …), SPEC@MODEL, or "
            "pairwise-rules, which needs no model"
        )
    judges = [
        judge_with_model(name, options.specs, options.calls, default=RUBRIC)
        for name in dict.fromkeys(options.judges)
    ]
    for judge in judges:
        if judge.spec.per != "pair":
            raise RunError(
                f"--judge {judge.name} scores one conversation; expected a rubric with per: pair, "
                f"e.g. {RUBRIC}@MODEL"
            )
    return judges


def _preview_contest(contest: Contest, calls: CallOptions) -> JudgePreview:
    """Return a contest's first request, with tokens and dollars of all its requests."""
    judge, left = contest.judge, contest_progress(contest)
    if judge.model is not None:
        check_variables(judge.spec, contest.home.examples.values())
    unit = PairUnit(contest, left, list(left.pending), JudgeSummary(judge.name))
    return preview_of(judge, left.pending_count, unit.iter_requests(), calls)
