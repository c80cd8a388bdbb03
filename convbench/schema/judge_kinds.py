"""Registry of the kinds of judges: each one's module, what it needs, what it measures.

A kind is a module (or folder) with two functions: `open_kind(work)` opens what it needs and
`score(case, tools)` scores one conversation. A new kind is that module and one entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Need = Literal["model", "labels", "sandbox", "browser", "weights"]
"""What a kind needs to score: a judge model, a file of labels, the sandbox, a browser, the policy's
own weights."""
Measure = Literal["talk", "tests", "pages", "adaptations", "solutions", "answers"]
"""What the scores are of: how a conversation went, hidden tests that its answer passes, how similar
its page looks to the goal, what a policy knows after training on its edit, whether it solves a task
after training as its edit says, what it answered where that is unread."""


@dataclass(frozen=True)
class JudgeKindInfo:
    """One kind of judge."""

    module: str
    """The module with its `open_kind` and `score`, imported at first use."""
    needs: frozenset[Need] = frozenset()
    measures: Measure = "talk"
    graded_in: str | None = None
    """The module whose `VERSION` its scores depend on, unless a function that a spec names has
    one."""

    @property
    def version(self) -> int | None:
        """Return the version that is raised whenever scores of this kind may change, or None if the
        kind has no module `graded_in`."""
        return import_module(self.graded_in).VERSION if self.graded_in else None

    @property
    def open_kind(self) -> Callable[..., AbstractAsyncContextManager[Any]]:
        """Return the function from a `Work` to a context manager of what makes calls and this
        kind's `Tools`."""
        function: Callable[..., AbstractAsyncContextManager[Any]] = import_module(
            self.module
        ).open_kind
        return function

    @property
    def settings_of(self) -> Callable[..., Any]:
        """Return the function from a judge to its settings, for a kind that needs weights. It
        raises SpecError for wrong ones. Settings name the `learner`, and the `grader` if a model
        may grade."""
        function: Callable[..., Any] = import_module(self.module).settings_of
        return function

    @property
    def score(self) -> Callable[..., Any]:
        """Return the async function from a `Case` and the tools to its verdict: a failed one if
        there is no score. Errors that end the run (wrong key, spent budget) pass through."""
        function: Callable[..., Any] = import_module(self.module).score
        return function


KINDS: Mapping[str, JudgeKindInfo] = {
    "rubric": JudgeKindInfo("convbench.judges.model", frozenset({"model"})),
    "rules": JudgeKindInfo("convbench.judges.function"),
    "human": JudgeKindInfo("convbench.judges.labels", frozenset({"labels"})),
    "unit-tests": JudgeKindInfo("convbench.judges.function", frozenset({"sandbox"}), "tests"),
    "render": JudgeKindInfo("convbench.judges.function", frozenset({"browser"}), "pages"),
    "adaptation": JudgeKindInfo(
        "convbench.judges.adaptation.verdict",
        frozenset({"weights"}),
        "adaptations",
        graded_in="convbench.judges.adaptation.metrics",
    ),
    "few-shot": JudgeKindInfo(
        "convbench.judges.few_shot.verdict", frozenset({"weights"}), "solutions"
    ),
    "answers": JudgeKindInfo("convbench.judges.answers", frozenset({"model"}), "answers"),
}
