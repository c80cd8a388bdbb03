"""Compare policies in pairs, or preview it: the core of `judge --pairwise`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from convbench.engine import run_in_loop
from convbench.engine.session import Session
from convbench.errors import RunError, UsageError
from convbench.judges.compare import Contest, PairUnit, compare_policies, contest_progress
from convbench.judges.duels import run_of_side
from convbench.judges.preview import preview_of
from convbench.judges.ready import check_ready, check_variables, find_problem
from convbench.judges.resolve import Judge, as_run_asked, unquoted_warnings
from convbench.judges.run import JudgePreview, JudgeResult, judge_with_model, with_address
from convbench.judges.units import JudgeSummary
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions

RUBRIC = "pairwise"
"""The rubric of a model that is named alone."""


def judge_pairwise(names: tuple[str, str], options: JudgeOptions, session: Session) -> JudgeResult:
    """Compare two policies, named as in `--pairwise`, by each judge in both orders, and return the
    result: `comparisons` and `summaries`, one each for a contest.

    Comparisons are appended to the runs as they finish; finished ones are not repeated. It stops
    after a contest that was interrupted or stopped. A dry run asks nothing and fills `previews` and
    `problem`. Raise UsageError without a judge, and other ConvbenchError subclasses.
    """
    judges = _pairwise_judges(options)
    first, second = (run_of_side(name, options.run) for name in names)
    listed = [Contest(names, first, second, judge) for judge in judges]
    listed = [replace(contest, judge=_of_home(contest, options.calls)) for contest in listed]
    by_mark = {contest.judge.fingerprint: contest.judge for contest in listed}
    result = JudgeResult(listed[0].home, warnings=unquoted_warnings(by_mark.values()))
    calls = options.calls
    session = session.naming(*(contest.judge.model for contest in listed))
    if options.dry_run:
        result.previews = [_preview_contest(contest, options.calls) for contest in listed]
        to_ask = [
            contest.judge
            for contest, preview in zip(listed, result.previews, strict=True)
            if preview.estimate.calls
        ]
        result.problem = find_problem(to_ask, calls, session, result.run)
        return result
    for contest in listed:
        if contest_progress(contest).pending:
            check_ready([contest.judge], calls, session, contest.home)
    for contest in listed:
        with contest.home.lock():
            comparison = run_in_loop(partial(compare_policies, contest, calls, session))
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
    unit = PairUnit(contest, left, JudgeSummary(judge.name))
    return preview_of(judge, len(left.pending), unit.iter_requests(), calls)
