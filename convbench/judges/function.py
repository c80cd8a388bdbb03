"""Judge kinds that call a function: rules, hidden unit tests, rendered pages."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial

from convbench.errors import DataError
from convbench.judges.resolve import Judge
from convbench.judges.verdicts import scored_verdict
from convbench.judges.work import Case, JudgeTools, open_without_model
from convbench.schema import Verdict

open_kind = open_without_model
"""A function needs nothing opened."""


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Return the verdict of the spec's function, which returns scores or (scores, details) and may
    be async.

    It is called with conversation, example and protocol, and gets `mode`, `spec` and `examples` as
    keywords if it has parameters of these names. Raise DataError if the judge has no function, or
    for scores that `check_scores` refuses.
    """
    judge, run = case.judge, {"mode": case.mode, "spec": case.judge.spec, "examples": case.examples}
    function = judge.function
    if function is None:
        raise DataError(f"judge {judge.name}: kind {judge.spec.kind} has no function to run")
    known = inspect.signature(function).parameters
    extra = {name: value for name, value in run.items() if name in known}
    call = partial(function, case.conversation, case.example, case.protocol, **extra)
    result = call()
    if inspect.isawaitable(result):
        result = await result
    scores, details = result if isinstance(result, tuple) else (result, {})
    check_scores(judge, scores)
    return scored_verdict(
        judge, case.conversation, case.protocol, dict(scores), details=dict(details)
    )


def check_scores(judge: Judge, scores: Mapping[str, float]) -> None:
    """Raise DataError unless a function's scores have the spec's metrics, no others, and values in
    their ranges.

    Metrics that are `optional` may be missing. A spec without metrics needs only the reward's, and
    allows others.
    """
    spec = judge.spec
    expected = {metric.name for metric in spec.metrics} or {spec.reward.metric}
    wrong = expected.symmetric_difference(scores) if spec.metrics else expected - set(scores)
    wrong -= {metric.name for metric in spec.metrics if metric.optional}
    if wrong:
        raise DataError(
            f"judge {judge.name}: {spec.function} returned {sorted(scores)}; "
            f"expected {sorted(expected)}"
        )
    for name, value in scores.items():
        low, high = spec.score_limits(name)
        if not low <= value <= high:
            raise DataError(
                f"judge {judge.name}: {spec.function} returned {name} {value!r}; expected a number "
                f"from {low:g} to {high:g}"
            )
