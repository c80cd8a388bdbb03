"""Have judges score a run: what is pending, one judge after another, and the result of `judge`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from convbench.engine import run_in_loop
from convbench.engine.session import Session
from convbench.errors import ConvbenchError, RunError
from convbench.judges.adaptation.accuracies import edit_accuracies, tie_warning
from convbench.judges.controls import ControlResult, control_results, try_controls, unfit_reasons
from convbench.judges.group import GroupUnit
from convbench.judges.kinds import kind_of
from convbench.judges.ready import check_ready
from convbench.judges.resolve import (
    Judge,
    as_run_asked,
    judge_from_run,
    resolve_judge,
    unquoted_warnings,
)
from convbench.judges.rubrics import rubric_of_model
from convbench.judges.units import ConversationUnit, JudgeSummary, TurnUnit
from convbench.judges.work import JudgeWork
from convbench.models.aliases import resolve
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.specs import sort_sets
from convbench.schema import Message, TaskSpec, Verdict
from convbench.schema.judge import Per
from convbench.store import Run
from convbench.store.index import VerdictRow
from convbench.util.redact import strip_address
from convbench.util.usage_estimate import Tokens
from convbench.util.words import Structured

if TYPE_CHECKING:
    from convbench.judges.compare import ComparisonSummary


class PendingConversations:
    """Conversations that a judge has not scored yet, by conversation_id."""

    def __init__(self, run: Run, names: Collection[str], failed: Mapping[str, VerdictRow]) -> None:
        self._run, self._names, self._failed = run, names, failed

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Verdict | None:
        """Return the newest verdict, a failed one; None without a verdict."""
        row = self._failed.get(name)
        return None if row is None else self._run.read_verdict(row)


def find_pending(run: Run, judge: Judge) -> tuple[PendingConversations, int]:
    """Return (pending conversations, number of conversations that are scored).

    Pending are completed conversations that the judge can score and has no score of; failed
    verdicts count as none. Conversations that failed to build, have no label for people's labels,
    or have an answer that a judge of unread ones need not read, are in neither.
    """
    failed: dict[str, VerdictRow] = {}
    names: set[str] = set()
    scored = 0
    for name, waits in _iter_scorable(run, judge, failed):
        scored += not waits
        if waits:
            names.add(name)
    return PendingConversations(run, names, failed), scored


def has_pending(run: Run, judge: Judge) -> bool:
    """Return whether a judge has a pending conversation. Stops at the first one."""
    return any(waits for _, waits in _iter_scorable(run, judge, {}))


def _iter_scorable(
    run: Run, judge: Judge, failed: dict[str, VerdictRow]
) -> Iterator[tuple[str, bool]]:
    """Yield (conversation_id, whether it is pending) of every conversation that the judge can
    score; adds the judge's failed verdicts to `failed`."""
    scored: set[str] = set()
    for row in run.verdict_rows():
        if row.fingerprint == judge.fingerprint:
            if row.scored:
                scored.add(row.conversation_id)
            else:
                failed[row.conversation_id] = row
    labelled: Collection[str] | None = None
    if judge.labels is not None:
        labelled = judge.scorable_ids({head.conversation_id for head in run.conversation_rows()})
    if kind_of(judge.spec).measures == "answers":
        from convbench.judges.answers import unread_conversations

        labelled = frozenset(unread_conversations(run))
    split = "train" if is_for_rewards_only(judge) else judge.split
    for head in run.conversation_rows():
        if split not in (None, run.questions[head.example_id].split):
            continue
        if head.ended and (labelled is None or head.conversation_id in labelled):
            yield head.conversation_id, head.conversation_id not in scored


def is_for_rewards_only(judge: Judge) -> bool:
    """Return whether a judge scores only what trains: an adaptation judge with `train_only`."""
    adapts = kind_of(judge.spec).measures == "adaptations"
    return adapts and bool(judge.spec.args.get("train_only"))


UNITS: Mapping[Per, type[ConversationUnit | GroupUnit]] = {
    "conversation": ConversationUnit,
    "turn": TurnUnit,
    "group": GroupUnit,
}
"""Unit of judging by the judge's `per`; pairs are of two runs (`compare`)."""


async def score_pending(
    run: Run, judge: Judge, calls: CallOptions, session: Session
) -> JudgeSummary:
    """Score a run's pending conversations, append the verdicts to the run, and return the counts.

    Without a pending one nothing is opened or written.

    The caller must hold the run's lock.
    """
    pending, already_scored = find_pending(run, judge)
    summary = JudgeSummary(judge.name, already_scored=already_scored)
    if not pending:
        if is_for_rewards_only(judge) and not run.verdicts_file.exists():
            run.verdicts_file.touch()  # it is judged, and has no verdict
        return summary
    run.store_judge(judge.fingerprint, judge.spec)
    unit = UNITS[judge.spec.per](run, judge, pending, summary)
    async with kind_of(judge.spec).open_kind(JudgeWork(run, judge, calls, session)) as (
        caller,
        unit.tools,
    ):
        summary.jobs = await unit.score_all(caller)
    return summary


@dataclass
class JudgePreview:
    """Dry run of one judge: its first request, and an estimate for all."""

    name: str
    model: str | None
    messages: list[Message]
    """Messages of the first call; empty if no model is asked."""
    estimate: Tokens
    """Tokens and dollars of the pending verdicts (of pairs: orders): one call each, one a turn if
    turns are judged, one a group."""
    structured: Structured = "text"
    """How the model is made to follow the reply schema; `text` if it is asked for text alone."""
    reply_schema: dict[str, Any] | None = None
    """The JSON schema that is sent with the messages; None without one."""


@dataclass
class JudgeResult:
    """What `judge` did, or in a dry run would do."""

    run: Run
    summaries: list[JudgeSummary] = field(default_factory=list)
    unjudged: int = 0
    """Number of conversations that failed to build, which cannot be judged."""
    previews: list[JudgePreview] = field(default_factory=list)
    problem: ConvbenchError | None = None
    """Why judging would fail after a dry run; None if it would not."""
    comparisons: list[ComparisonSummary] = field(default_factory=list)
    """Results of comparing two policies; `summaries` then counts orders."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for readers of the scores."""
    controls: dict[str, list[ControlResult]] = field(default_factory=dict)
    """Results of controls by judge, if they were tried."""


def score_here(
    run: Run, judges: Sequence[Judge], calls: CallOptions, session: Session
) -> list[JudgeSummary]:
    """Score a run's pending conversations in this process by one judge after the other, under the
    run's lock, and return the counts of each judge that began.

    Verdicts are appended to the run. It stops after a judge that was interrupted or stopped.
    """
    summaries: list[JudgeSummary] = []

    async def score_judges() -> None:
        for item in judges:
            summaries.append(await score_pending(run, item, calls, session))
            if summaries[-1].jobs.interrupted or summaries[-1].jobs.stopped:
                return

    with run.lock():
        run_in_loop(score_judges)
    return summaries


def judge_with(
    run: Run, judges: Sequence[Judge], calls: CallOptions, session: Session
) -> JudgeResult:
    """Score a run's pending conversations by these judges and return the result: counts by
    judge and warnings.

    All judges with something to score are checked before the first one asks its model; a
    ConvbenchError is raised for one that cannot score.
    """
    judges = [as_run_asked(run, item) for item in judges]
    check_ready([item for item in judges if has_pending(run, item)], calls, session, run)
    result = JudgeResult(run, warnings=unquoted_warnings(judges))
    result.summaries = score_here(run, judges, calls, session)
    result.unjudged = sum(not row.ended for row in run.conversation_rows())
    for item in judges:
        if kind_of(item.spec).measures == "adaptations":
            warning = tie_warning(edit_accuracies(run, item, None))
            result.warnings += [f"{item.name}: {warning}"] if warning else []
    return result


def add_controls(
    result: JudgeResult, judges: Sequence[Judge], calls: CallOptions, session: Session
) -> None:
    """Let these judges score the controls (answers without merit) under the run's lock, and add the
    results by judge, and warnings, to `result` in place.

    Raise RunError, before anything is scored, for a judge of labels, tests, pages or adaptations,
    which does not score what was said.
    """
    run = result.run
    for item in judges:
        kind = kind_of(item.spec)
        if kind.measures != "talk" or "labels" in kind.needs:
            raise RunError(
                f"--controls: judge {item.name} is of kind {item.spec.kind}; expected a rubric or "
                "rules, which score what was said"
            )

    async def run_controls() -> None:
        for item in judges:
            await try_controls(run, item, calls, session)

    with run.lock():
        run_in_loop(run_controls)
    for item in judges:
        results = control_results(run, item.name, item.fingerprint)
        result.controls[item.name] = results
        result.warnings += unfit_reasons(results, item.name)


def judges_of(run: Run) -> list[Judge]:
    """Return the judges of a run's newest verdicts, one for each name, with the specs that are
    stored in the run. If a name has several fingerprints, the last one counts.

    People's labels are left out, since they are of these conversations only. Empty without
    verdicts.
    """
    all_specs = run.judge_specs().items()
    specs = {mark: spec for mark, spec in all_specs if "labels" not in kind_of(spec).needs}
    names = {judge: mark for judge, mark in run.judge_fingerprints() if mark in specs}
    downloaded = run.manifest.pulled_from is not None
    return [
        judge_from_run(name, specs[mark], downloaded=downloaded) for name, mark in names.items()
    ]


def judge_with_model(
    name: str,
    specs: SpecOptions,
    calls: CallOptions,
    run: Run | None = None,
    *,
    task: TaskSpec | None = None,
    default: str | None = None,
) -> Judge:
    """Return the judge of a name with its model resolved, so that the fingerprint depends on it.

    `run` is the run to score, whose settings and address it gets; `task` is the task of a run that
    is not built yet. `default` is the rubric of a model that is named alone; without it the run's
    or the task's (`rubric_of_model`). Raise SpecError for an unknown judge or model, DataError for
    labels.
    """
    sets = sort_sets(specs.sets, ("judge",)).for_kind("judge")

    def model_reference(reference: str) -> str:
        return resolve(reference, api_base=calls.api_base, specs=specs.folders).ref

    def rubric_name() -> str:
        model_reference(name)  # an unknown model is refused before its rubric is looked for
        return default or rubric_of_model(name, task, run, specs.folders)

    judge = resolve_judge(
        name, specs.folders, sets=sets, resolve_model=model_reference, run=run, default=rubric_name
    )
    judge = judge if run is None else as_run_asked(run, judge)
    return with_address(judge, run, calls)


def with_address(judge: Judge, run: Run | None, calls: CallOptions) -> Judge:
    """Return a judge whose spec names its model and the model's address: the typed address, else
    the rubric's, else that of the judge's record in the run, else None.

    The address is without user, query and fragment. The record stores it, so that a resume and an
    evaluation use the same model and address.
    """
    base = calls.api_base or judge.spec.api_base
    if base is None and run is not None and judge.fingerprint in (specs := run.judge_specs()):
        base = specs[judge.fingerprint].api_base
    known = strip_address(base) if base and judge.model else None
    spec = judge.spec.model_copy(update={"model": judge.model, "api_base": known})
    return replace(judge, spec=spec)
