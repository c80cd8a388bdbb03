"""Check before any cost that judges can run here."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from convbench import templates
from convbench.engine import run_in_loop
from convbench.engine.session import Session
from convbench.errors import ConvbenchError, MissingDependency, RunError, SpecError
from convbench.judges.ask import FIELDS, judge_fields
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import Judge
from convbench.models.open import open_model
from convbench.options.shared import CallOptions
from convbench.rollout.calls import check_affordable, open_for
from convbench.schema import Example, JudgeSpec
from convbench.schema.judge_kinds import Need
from convbench.store import Run
from convbench.util.install import with_extra

TRANSCRIPTS = {"transcript", "transcripts", "first", "second"}
"""Template fields that show a conversation."""
LEARNER = ("torch", "transformers", "peft")
"""Packages that an adaptation loads."""


def check_ready(
    judges: Sequence[Judge], calls: CallOptions, session: Session, run: Run | None = None
) -> None:
    """Raise a ConvbenchError for a judge that cannot score: a key, package, program or weights are
    missing.

    Nothing is sent or loaded. A pulled run asks only models that the command names. `run` is the
    run to score, or another one of the same kind; None before there is one.
    """
    for judge in judges:
        if run is not None and judge.model is not None:
            check_variables(judge.spec, run.examples.values())
        if run is not None:
            _refuse_without_letters(judge, run.examples)
        for need in sorted(kind_of(judge.spec).needs):
            NEEDS[need](judge, calls, session, run)


def find_problem(
    judges: Sequence[Judge], calls: CallOptions, session: Session, run: Run
) -> ConvbenchError | None:
    """Return the error that `check_ready` raises for these judges; None if they can score."""
    try:
        check_ready(judges, calls, session, run)
    except ConvbenchError as error:
        return error
    return None


def check_variables(spec: JudgeSpec, examples: Iterable[Example]) -> None:
    """Raise SpecError for a rubric whose prompts use a variable that no example has, or show no
    conversation.

    Examples are read until every variable has occurred.
    """
    used = {key: templates.free_names(getattr(spec, key) or "") for key in ("system", "prompt")}
    known = set(FIELDS.get(spec.per, ()))
    for example in examples:
        known |= judge_fields(example, "").keys()
        if all(names <= known for names in used.values()):
            break
    for key, names in used.items():
        for name in sorted(names - known):
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise SpecError(
                f"judge {spec.name}: {key}: found {{{{ {name} }}}}, which no example of the run "
                f"has; {hint}expected one of {', '.join(sorted(known))}"
            )
    if not (used["system"] | used["prompt"]) & TRANSCRIPTS:
        raise SpecError(
            f"judge {spec.name}: prompt: found no {{{{ transcript }}}}; without it the judge sees "
            "nothing of a conversation"
        )


def _refuse_without_letters(judge: Judge, examples: Mapping[str, Example]) -> None:
    """Raise RunError if a judge's function scores only questions whose gold answer is the letter of
    an option (its module has NEEDS_GOLD_LETTER), and there is none."""
    module = sys.modules.get(getattr(judge.function, "__module__", ""))
    if not getattr(module, "NEEDS_GOLD_LETTER", False):
        return
    if not any(example.answer in example.letters for example in examples.values()):
        raise RunError(
            f"judge {judge.name}: found {len(examples):,} questions, none with a gold answer that "
            "is the letter of an option; expected one; name another judge (convbench list judges)"
        )


def _check_model(judge: Judge, calls: CallOptions, session: Session, run: Run | None) -> None:
    """Open and close the model of a rubric."""
    if judge.model is not None:
        try_model(judge.model, judge.spec.api_base, judge.short_name, calls, session, run)


def try_model(
    ref: str,
    base: str | None,
    short: str | None,
    calls: CallOptions,
    session: Session,
    run: Run | None,
) -> None:
    """Open, check and close a model. Raises BudgetError for a budget without a known price."""

    async def open_and_close() -> None:
        model = (
            open_model(ref, api_base=base, specs=calls.specs, short=short)
            if run is None
            else open_for(run, ref, base, calls, session, short=short, role="judge")
        )
        try:
            check_affordable(model, calls)
        finally:
            await model.aclose()

    run_in_loop(open_and_close)


def _check_labels(judge: Judge, calls: CallOptions, session: Session, run: Run | None) -> None:
    """Check that all labels are of this run's conversations."""
    if run is not None:
        judge.scorable_ids({row.conversation_id for row in run.conversation_rows()})


def _check_sandbox(judge: Judge, calls: CallOptions, session: Session, run: Run | None) -> None:
    from convbench.sandbox import boundary

    boundary()


def _check_browser(judge: Judge, calls: CallOptions, session: Session, run: Run | None) -> None:
    from convbench.judges.render import check_measure
    from convbench.sandbox.chromium import browser_errors, chromium

    browser_errors()
    chromium()
    check_measure(judge.spec)


def _check_weights(judge: Judge, calls: CallOptions, session: Session, run: Run | None) -> None:
    """Check for what an adaptation loads: packages, the learner's weights, a grading model."""
    for name in LEARNER:
        if importlib.util.find_spec(name) is None:
            raise MissingDependency(
                name, needed_for=f"judge {judge.name}", install=with_extra("train")
            )
    from convbench.judges.adaptation.runner import LearnerRef

    settings = kind_of(judge.spec).settings_of(judge)
    if run is not None:
        LearnerRef.of_run(run, settings.learner)
    grader = getattr(settings, "grader", None)
    if grader is not None and settings.inner.grade == "model":
        try_model(grader, None, None, calls, session, run)


NEEDS: Mapping[Need, Callable[[Judge, CallOptions, Session, Run | None], None]] = {
    "model": _check_model,
    "labels": _check_labels,
    "sandbox": _check_sandbox,
    "browser": _check_browser,
    "weights": _check_weights,
}
"""Function that checks each need of a judge's kind."""
