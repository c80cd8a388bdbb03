"""Scores of constant answers on a task's tests: a floor for the scores of real answers.

Each constant is run on the same tests in the same kind of sandbox as an answer: every function that
a test calls is replaced by one that takes any arguments and returns the constant.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence

from convbench.sandbox import CallOutcome, Limits, agree, run_calls_async

CONSTANTS = (
    "False",
    "True",
    "None",
    "0",
    "1",
    "-1",
    "''",
    "[]",
    "{}",
    "()",
    "set()",
    "float('nan')",
    "raise ValueError",
)
"""Constants by their names in verdicts; exceptions are equal by class, so raising is an answer."""
_CALLED = re.compile(r"(?<![.\w])([A-Za-z_]\w*)\s*\(")
_CODE = """
def _with(name):
    def constant(*args, **more):
        if name.startswith("raise "):
            raise ValueError
        return eval(name)
    for called in {called!r}:
        globals()[called] = constant
"""


def commonest_share(expected: Sequence[CallOutcome]) -> float:
    """Return the share of the tests on which the reference gives its commonest output: the score of
    the best constant, if tests are simple calls."""
    return max(sum(agree(outcome, other) for other in expected) for outcome in expected) / len(
        expected
    )


async def constant_scores(
    calls: tuple[str, ...], expected: Sequence[CallOutcome], limits: Limits
) -> dict[str, float]:
    """Return the share of the tests that each constant passes, for those that pass any. `expected`
    are the reference's outcomes."""
    names = {name for call in calls for name in _CALLED.findall(call)} - set(dir(builtins))
    expressions = [f"(_with({name!r}), (\n{call}\n))[1]" for name in CONSTANTS for call in calls]
    outcomes = await run_calls_async([_CODE.format(called=sorted(names))], expressions, limits)
    many = len(calls)
    passed = {
        name: sum(map(agree, outcomes[i * many : (i + 1) * many], expected)) / many
        for i, name in enumerate(CONSTANTS)
    }
    return {name: share for name, share in passed.items() if share}
