"""Judge `unit-tests`: hidden tests, run in a sandbox (Zhou et al. 2025, section 4).

`overall` is the share of tests on which the answer's output equals the reference's, `accuracy` is 1
if it is all of them. A third score, `constant`, is that of the best constant answer on the task's
tests (scores of usual constants are in the details). The reference runs in the same kind of sandbox
as the answer, each in its own; the outputs are compared outside (`convbench.sandbox.grading`). A
task whose reference returns what cannot be compared completely is unsupported, which is a failure
of its own and no score. The paper's checker runs code in function scope, where helper functions,
recursion and imports fail; this one does not. `args.checker: paper` does as the paper's: code in
function scope, classes equal by name, nothing passes if either side raises.

Scores of constant answers on a task's tests: a floor for the scores of real answers.

Each constant is run on the same tests in the same kind of sandbox as an answer: every function
that a test calls is replaced by one that takes any arguments and returns the constant.
"""

from __future__ import annotations

import builtins
import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from convbench.answers.tags import without_thinking
from convbench.errors import DataError, MissingDependency, RunError
from convbench.sandbox import CallOutcome, Limits, agree, check_reference, run_calls_async
from convbench.schema import Conversation, Example, JudgeSpec, ProtocolSpec
from convbench.views import heard_text, policy_turns

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


def commonest_share(expected: Sequence[CallOutcome], *, exceptions: bool = True) -> float:
    """Return the largest share of the tests on which the reference's outcome is the same: the score
    of the best constant, if tests are simple calls.

    The output None agrees with nothing, and without `exceptions` neither does an exception. Raise
    ZeroDivisionError without outcomes.
    """
    counts = [
        sum(agree(outcome, other) for other in expected)
        for outcome in expected
        if exceptions or outcome.ended != "raised"
    ]
    return max(counts, default=0) / len(expected)


async def constant_scores(
    calls: tuple[str, ...], expected: Sequence[CallOutcome], limits: Limits
) -> dict[str, float]:
    """Return the share of the tests that each constant passes, by its name in `CONSTANTS`; those
    that pass none are left out.

    `calls` are the tests, `expected` the reference's outcomes of them in the same order. The
    constants are run in a sandbox.
    """
    names = {name for call in calls for name in _CALLED.findall(call)} - set(dir(builtins))
    expressions = [f"(_with({name!r}), (\n{call}\n))[1]" for name in CONSTANTS for call in calls]
    outcomes = await run_calls_async([_CODE.format(called=sorted(names))], expressions, limits)
    many = len(calls)
    passed = {
        name: sum(map(agree, outcomes[i * many : (i + 1) * many], expected)) / many
        for i, name in enumerate(CONSTANTS)
    }
    return {name: share for name, share in passed.items() if share}


VERSION = 3
"""Raised whenever a score may move; part of the judge's fingerprint."""

Details = dict[str, Any]


async def score(
    conversation: Conversation, example: Example, protocol: ProtocolSpec, *, spec: JudgeSpec
) -> tuple[dict[str, float], Details]:
    """Return (scores, details) of the answer's code on the hidden tests, run in a sandbox.

    Scores, 0 to 1: `overall` (share of tests passed), `accuracy` (1 if all are) and `constant`
    (that of the best constant answer). Details: `passed`, `tests`, `reasons` (number of failed
    tests by reason) and `constants`. The spec's `args` `reference` and `tests` name the example's
    hidden fields. Raise DataError for a task whose reference does not run here, RunError without a
    sandbox or for wrong args.
    """
    args = dict(spec.args)
    reference = _hidden_field(example, str(args.pop("reference", "reference")))
    calls = parse_tests(_hidden_field(example, str(args.pop("tests", "tests"))), example.example_id)
    paper = _is_paper_checker(args.pop("checker", "ours"), spec.name)
    limits = _sandbox_limits({**args, "scope": "function" if paper else "module"}, spec.name)
    try:
        task = _cached_task(str(reference), calls, limits)
        expected = await task.reference_outcomes()
        if not paper:  # with the paper's checker the answer fails where the reference does
            check_reference(expected, example.example_id)
        code = answer_code(conversation, protocol)
        outcomes = await run_calls_async(code, calls, limits)
        constants, constant = await task.constant_floor()
        if paper:  # an exception passes no test with the paper's checker
            constants = {k: v for k, v in constants.items() if not k.startswith("raise ")}
            constant = commonest_share(expected, exceptions=False)
    except MissingDependency as error:
        raise RunError(f"judge {spec.name}: {error}") from None
    passed = [
        agree(a, b) and not (paper and a.ended == "raised")
        for a, b in zip(outcomes, expected, strict=True)
    ]
    scores = {
        "overall": sum(passed) / len(passed),
        "accuracy": float(all(passed)),
        "constant": max([constant, *constants.values()]),
    }
    why = [None if ok else outcome.why for ok, outcome in zip(passed, outcomes, strict=True)]
    reasons = Counter(reason for reason in why if reason)
    counts = {"passed": sum(passed), "tests": len(passed), "reasons": dict(reasons)}
    return scores, {**counts, "constants": constants}


def _is_paper_checker(checker: object, name: str) -> bool:
    """Return whether `checker` names the paper's. Raises RunError for an unknown one."""
    if checker not in ("ours", "paper"):
        raise RunError(f"judge {name}: args.checker: found {checker!r}; expected ours or paper")
    return checker == "paper"


def answer_code(conversation: Conversation, protocol: ProtocolSpec) -> list[str]:
    """Return the candidates for the answer's code, best first, each once.

    The text is what follows the first marker in the last policy turn, or all of the turn without
    one, as the other speakers saw it, without thinking blocks. With fenced blocks the candidates
    are all blocks joined, the longest, and the last; without any, the text stripped, and dedented.
    Raise IndexError without a policy turn.
    """
    last = conversation.turns[policy_turns(protocol, conversation)[-1]]
    text = without_thinking(heard_text(protocol, last))
    if protocol.answer_after:
        text = text.partition(protocol.answer_after)[2] or text
    blocks = [textwrap.dedent(block) for block in _fenced_blocks(text)]
    if not blocks:
        return list(dict.fromkeys([text.strip(), textwrap.dedent(text).strip("\n")]))
    return list(dict.fromkeys(["\n\n".join(blocks), max(blocks, key=len), blocks[-1]]))


def parse_tests(value: object, name: str) -> tuple[str, ...]:
    """Return the calls of a task's tests in order, from the values of a mapping or from a list, or
    from the JSON of either.

    Raise DataError, which names the example `name`, for anything else, no test, or a test that is
    no text.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    calls = list(value.values()) if isinstance(value, Mapping) else value
    if not isinstance(calls, list | tuple) or not calls or not all(map(_is_text, calls)):
        raise DataError(
            f"example {name}: hidden tests: found {str(value)[:60]!r}; expected a JSON object of "
            "calls by name"
        )
    return tuple(calls)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _hidden_field(example: Example, name: str) -> object:
    if name not in example.hidden:
        raise DataError(
            f"example {example.example_id}: found no hidden field {name!r}; it has "
            f"{sorted(example.hidden)}; name it with --set judge.args"
        )
    return example.hidden[name]


def _sandbox_limits(args: Mapping[str, Any], name: str) -> Limits:
    try:
        values = {**args, "modules": tuple(args.get("modules", ()))}
        return Limits(**values)
    except TypeError as error:
        raise RunError(f"judge {name}: args: {error}; see convbench.sandbox.Limits") from None


@dataclass
class _TaskOutcomes:
    """Outcomes of a task that all its answers share; each is computed once."""

    code: str
    calls: tuple[str, ...]
    limits: Limits
    expected: list[CallOutcome] | None = None
    constants: dict[str, float] | None = None
    constant: float = 0.0

    async def reference_outcomes(self) -> list[CallOutcome]:
        """Return the outcomes of the reference on the tests."""
        if self.expected is None:
            self.expected = await run_calls_async([self.code], self.calls, self.limits)
        return self.expected

    async def constant_floor(self) -> tuple[dict[str, float], float]:
        """Return (scores of usual constants, share of the reference's commonest output)."""
        if self.constants is None:
            expected = await self.reference_outcomes()
            self.constants = await constant_scores(self.calls, expected, self.limits)
            self.constant = commonest_share(expected)
        return self.constants, self.constant


@lru_cache(maxsize=4096)
def _cached_task(code: str, calls: tuple[str, ...], limits: Limits) -> _TaskOutcomes:
    return _TaskOutcomes(code, calls, limits)


def _fenced_blocks(text: str) -> Iterator[str]:
    """Yield the contents of each fenced block, in order.

    A block begins at a line that starts with three or more backticks or tildes (this line is left
    out) and ends at a line of as many of these or more, or at the end of the text. Each line of a
    closed block ends in a newline, so that an empty one gives an empty text. A block that is not
    closed has no last newline, and yields nothing if it has no lines.
    """
    mark, body = "", list[str]()
    for line in text.split("\n"):
        bare = line.strip(" \t")
        if mark and bare.startswith(mark) and not bare.strip(mark[0]):
            yield "".join(f"{body_line}\n" for body_line in body)
            mark, body = "", []
        elif mark:
            body.append(line)
        elif bare.startswith(("```", "~~~")):
            mark = bare[: len(bare) - len(bare.lstrip(bare[0]))]
    if body:
        yield "\n".join(body)
