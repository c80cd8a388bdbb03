"""Judge `unit-tests`: hidden tests, run in a sandbox (Zhou et al. 2025, section 4).

`overall` is the share of tests on which the answer's output equals the reference's, `accuracy` 1
where it is all of them. Beside them stands `constant`, what the answer that is the best constant
for the task scores on its tests (what usual constants do is in the details). The reference runs in
the same kind of sandbox as the answer, each in one of its own; the outputs are compared out here
(`convbench.sandbox.grading`). A task whose reference gives what is not compared whole is
unsupported, which is a failure of its own and no score. The paper's own checker runs code where
helper functions, recursion and imports fail; this one does not. `args.checker: paper` does as that
one: code in function scope, classes equal by name, nothing passes where either side raises.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from convbench.answers.disguises import fenced
from convbench.answers.tags import visible
from convbench.engine.caller import offload
from convbench.errors import DataError, MissingDependency, RunError
from convbench.judge.constants import commonest, constant_scores
from convbench.sandbox import Limits, Outcome, agree, arun, check_reference
from convbench.schema import Conversation, Example, JudgeSpec, ProtocolSpec
from convbench.views import heard, policy_turns, texts

VERSION = 2
"""Raised whenever a score may move; part of the judge's fingerprint."""

Details = dict[str, Any]


async def score(
    conversation: Conversation, example: Example, protocol: ProtocolSpec, *, spec: JudgeSpec
) -> tuple[dict[str, float], Details]:
    """Return the scores, 0 to 1, and why each failed test failed.

    The example's hidden fields named by the spec's `args` (`reference`, `tests`) are the
    reference's code and its tests: calls by name. Raises DataError for a task whose reference
    does not run here (no fault of the answer), RunError where no sandbox stands.
    """
    args = dict(spec.args)
    reference = _hidden(example, str(args.pop("reference", "reference")))
    calls = tests(_hidden(example, str(args.pop("tests", "tests"))), example.example_id)
    paper = _papers(args.pop("checker", "ours"), spec.name)
    limits = _limits({**args, "scope": "function" if paper else "module"}, spec.name)
    try:
        task = _kept(str(reference), calls, limits)
        wanted = await task.reference()
        if not paper:  # there the answer fails what the reference cannot do
            check_reference(wanted, example.example_id)
        code = await offload(partial(answer_code, conversation, protocol), texts(conversation))
        found = await arun(code, calls, limits)
        constants, constant = await task.floor()
        if paper:  # an exception passes nothing there
            constants = {k: v for k, v in constants.items() if not k.startswith("raise ")}
    except MissingDependency as error:
        raise RunError(f"judge {spec.name}: {error}") from None
    passed = [
        agree(a, b) and not (paper and a.ended == "raised")
        for a, b in zip(found, wanted, strict=True)
    ]
    scores = {
        "overall": sum(passed) / len(passed),
        "accuracy": float(all(passed)),
        "constant": max([constant, *constants.values()]),
    }
    why = [None if ok else outcome.why for ok, outcome in zip(passed, found, strict=True)]
    reasons = Counter(reason for reason in why if reason)
    counts = {"passed": sum(passed), "tests": len(passed), "reasons": dict(reasons)}
    return scores, {**counts, "constants": constants}


def _papers(checker: object, name: str) -> bool:
    """Whether the paper's checker is asked for."""
    if checker not in ("ours", "paper"):
        raise RunError(f"judge {name}: args.checker: found {checker!r}; expected ours or paper")
    return checker == "paper"


def answer_code(conversation: Conversation, protocol: ProtocolSpec) -> list[str]:
    """Return the texts that may be the answer's code, best first.

    That is what follows the marker in the last policy turn, or all of the turn without one, as
    the other speakers saw it, without thinking blocks; of text with fenced blocks the blocks
    together, then the longest.
    """
    last = conversation.turns[policy_turns(protocol, conversation)[-1]]
    text = visible(heard(protocol, last))
    if protocol.answer_after:
        text = text.partition(protocol.answer_after)[2] or text
    blocks = [textwrap.dedent(block) for block in fenced(text)]
    if not blocks:
        return list(dict.fromkeys([text.strip(), textwrap.dedent(text).strip("\n")]))
    return list(dict.fromkeys(["\n\n".join(blocks), max(blocks, key=len), blocks[-1]]))


def tests(value: object, name: str) -> tuple[str, ...]:
    """Return the calls of a task's tests: a mapping or list, or the JSON of one."""
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


def _hidden(example: Example, name: str) -> object:
    if name not in example.hidden:
        raise DataError(
            f"example {example.example_id}: found no hidden field {name!r}; it has "
            f"{sorted(example.hidden)}; name it with --set judge.args"
        )
    return example.hidden[name]


def _limits(args: Mapping[str, Any], name: str) -> Limits:
    try:
        values = {**args, "modules": tuple(args.get("modules", ()))}
        return Limits(**values)
    except TypeError as error:
        raise RunError(f"judge {name}: args: {error}; see convbench.sandbox.Limits") from None


@dataclass
class _Task:
    """What is alike for all answers to a task: run and compared once for its samples."""

    code: str
    calls: tuple[str, ...]
    limits: Limits
    wanted: list[Outcome] | None = None
    constants: dict[str, float] | None = None
    constant: float = 0.0

    async def reference(self) -> list[Outcome]:
        """Return the outcomes of its reference."""
        if self.wanted is None:
            self.wanted = await arun([self.code], self.calls, self.limits)
        return self.wanted

    async def floor(self) -> tuple[dict[str, float], float]:
        """Return what usual constants score on its tests, and what the commonest output does."""
        if self.constants is None:
            wanted = await self.reference()
            self.constants = await constant_scores(self.calls, wanted, self.limits)
            self.constant = commonest(wanted)
        return self.constants, self.constant


@lru_cache(maxsize=4096)
def _kept(code: str, calls: tuple[str, ...], limits: Limits) -> _Task:
    return _Task(code, calls, limits)
