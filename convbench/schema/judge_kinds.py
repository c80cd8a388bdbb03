"""The kinds of judges, registered once: where each one's file is, what it needs, what it measures.

A kind is a module (or folder) with two functions: `opened(work)` opens what it needs and
`score(case, tools)` scores one conversation. A new kind is that module and one entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Need = Literal["model", "labels", "sandbox", "browser", "weights"]
"""What a kind cannot score without: a judge model, a file of labels, the sandbox, a browser, the
policy's own weights."""
Measure = Literal["talk", "tests", "pages", "adaptations", "solutions", "simulator"]
"""What the scores are of: how a conversation went, hidden tests that its answer passes, how like
the wanted page its page looks, what a policy knows after training on its edit, whether it solves a
task after training as its edit says, how its simulated human kept to its part."""


@dataclass(frozen=True)
class Kind:
    """One kind of judge."""

    module: str
    """Where its `opened` and `score` are; loaded when it judges."""
    needs: frozenset[Need] = frozenset()
    measures: Measure = "talk"
    may_ask: bool = False
    """Whether a model may be named that it asks too."""
    graded_in: str | None = None
    """The module by whose `VERSION` its scores go, where no function that a spec names has one."""

    @property
    def version(self) -> int | None:
        """What is raised whenever a score of this kind may move; None where nothing is."""
        return import_module(self.graded_in).VERSION if self.graded_in else None

    @property
    def opened(self) -> Callable[..., AbstractAsyncContextManager[Any]]:
        """From a `Work` to what makes calls and the `Tools` of this kind, closed at the end."""
        found: Callable[..., AbstractAsyncContextManager[Any]] = import_module(self.module).opened
        return found

    @property
    def settings(self) -> Callable[..., Any]:
        """From a judge to its settings, of a kind that needs weights; SpecError where they are
        wrong. They name the `learner`, and the `grader` where a model may grade."""
        found: Callable[..., Any] = import_module(self.module).settings_of
        return found

    @property
    def score(self) -> Callable[..., Any]:
        """From a `Case` and the tools to its verdict: a failed one where there is no score to
        give. Errors that end the whole run (wrong key, spent budget) pass through."""
        found: Callable[..., Any] = import_module(self.module).score
        return found


KINDS: Mapping[str, Kind] = {
    "rubric": Kind("convbench.judge.model", frozenset({"model"})),
    "rules": Kind("convbench.judge.function"),
    "human": Kind("convbench.judge.labels", frozenset({"labels"})),
    "unit-tests": Kind("convbench.judge.function", frozenset({"sandbox"}), "tests"),
    "render": Kind("convbench.judge.function", frozenset({"browser"}), "pages"),
    "adaptation": Kind(
        "convbench.judge.adaptation.verdict",
        frozenset({"weights"}),
        "adaptations",
        graded_in="convbench.judge.adaptation.metrics",
    ),
    "few-shot": Kind("convbench.judge.few_shot.verdict", frozenset({"weights"}), "solutions"),
    "review": Kind("convbench.judge.review.verdict", measures="simulator", may_ask=True),
}
