"""Resolve what a user types after `--judge` to a judge."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convbench import catalog
from convbench.errors import SpecError
from convbench.judges.instructions import names_every_label
from convbench.judges.kinds import asks_grader, grades_unfenced, kind_of
from convbench.judges.rubrics import PAPER, rubrics_of_run
from convbench.schema import JudgeSpec, fingerprint
from convbench.store import Run

if TYPE_CHECKING:
    from convbench.judges.human import LabelFile

LABELS = "human"
"""Name of the spec of a judge `human:FILE`."""

_ASIDE = {"name", "title", "reference", "model", "api_base", "file"}
"""Fields of a spec that do not affect its scores (the model enters the fingerprint separately)."""


@dataclass(frozen=True, slots=True)
class Judge:
    """A resolved judge.

    `name` is the judge of its verdicts: as the user typed it; for labels `human:` and the file's
    stem. `model` is the model reference of a rubric, None for other kinds. Two judges with the same
    `fingerprint` give comparable scores.
    """

    name: str
    spec: JudgeSpec
    model: str | None
    fingerprint: str
    labels: LabelFile | None = None
    function: Callable[..., Any] | None = None
    """The function of a judge that asks no model."""
    earlier: Judge | None = None
    """The judge of this name before question and options were quoted; None if the rubric or the
    user sets `fence`."""
    split: str | None = None
    """The split whose conversations it scores; None for all."""

    @property
    def short_name(self) -> str:
        """The model's part of the judge's name: MODEL of `MODEL` or `SPEC@MODEL`."""
        return self.name.rpartition("@")[2]

    def scorable_ids(self, conversation_ids: Collection[str]) -> set[str]:
        """Return the ids of the conversations that this judge can score: all of `conversation_ids`,
        or for people's labels the labelled ones.

        Raise DataError for labels of conversations that are not among `conversation_ids`.
        """
        if self.labels is None:
            return set(conversation_ids)
        self.labels.check_known(conversation_ids)
        return set(self.labels.rows)


def resolve_judge(
    text: str,
    specs: Sequence[Path] = (),
    *,
    sets: Mapping[str, Any] | None = None,
    resolve_model: Callable[[str], str] = lambda reference: reference,
    run: Run | None = None,
    default: Callable[[], str] = lambda: PAPER,
) -> Judge:
    """Return the judge of a name, its labels read or its function imported.

    `human:FILE` reads labels, `SPEC@human:FILE` labels by that rubric (of `run`, else of the
    specs); `SPEC` is a judge spec; `SPEC@MODEL` a rubric with a model, from the specs or `run`;
    anything else is a model, with the rubric that `default` returns. `resolve_model` returns a
    model's reference, on which the fingerprint depends. Raise SpecError, or DataError for labels.
    """
    before, at, after = text.partition("@")
    if text.startswith("human:"):
        return _human_judge(text, specs, sets)
    if before and after.startswith("human:"):
        from convbench.judges.scoring_form import find_label_judge

        return _human_judge(after, specs, sets, find_label_judge(before, specs, run))
    if _is_spec(text, specs):
        return _spec_judge(text, None, specs, sets, resolve_model)
    if at and _is_spec(before, specs):
        return _spec_judge(before, after, specs, sets, resolve_model)
    run_rubrics = rubrics_of_run(run)
    rubric, model = (before, after) if at and "/" not in before and ":" not in before else ("", "")
    if rubric or text in run_rubrics:
        if (rubric or text) not in run_rubrics:
            known = ", ".join({**catalog.spec_files("judges", specs), **run_rubrics})
            raise SpecError(f"--judge {text}: no judge spec {before!r}; expected one of {known}")
        return _run_rubric_judge(run_rubrics[rubric or text], model, sets, resolve_model)
    rubric = default()
    if rubric != PAPER:
        return resolve_judge(
            f"{rubric}@{text}", specs, sets=sets, resolve_model=resolve_model, run=run
        )
    spec = catalog.load_spec(JudgeSpec, "judges", rubric, specs=specs, sets=sets)
    return _guarded_judge(text, spec, resolve_model(text))


def _run_rubric_judge(
    versions: Sequence[JudgeSpec],
    model: str,
    sets: Mapping[str, Any] | None,
    resolve_model: Callable[[str], str],
) -> Judge:
    """Return a judge of a rubric that is stored in a run, with a model. Raises SpecError if the
    rubric has several versions, or without a model."""
    name = versions[0].name
    if len(versions) > 1:
        raise SpecError(
            f"--judge {name}@{model or 'MODEL'}: found {len(versions)} versions of rubric {name} "
            "in the run; expected one: name a file of it, FILE.yaml@MODEL"
        )
    if not model:
        raise SpecError(f"--judge {name}: the rubric names no model; expected {name}@MODEL")
    value = versions[0].model_dump(mode="json", exclude_defaults=True)
    where = f"rubric {name} of the run"
    for key, new in (sets or {}).items():
        catalog.assign_key(value, key, new, where)
    spec = catalog.check_spec(JudgeSpec, value, where)
    return _guarded_judge(f"{name}@{model}", spec, resolve_model(model))


def as_run_asked(run: Run, judge: Judge) -> Judge:
    """Return the judge, or, if the run has verdicts of its `earlier` form and none of its present
    one, that earlier form with its `fence` and `criteria`.

    So verdicts from before question and options were quoted stay valid, and pending conversations
    are scored in the same way.
    """
    specs, earlier = run.judge_specs(), judge.earlier
    if earlier is None or earlier.fingerprint not in specs or judge.fingerprint in specs:
        return judge
    before = {"fence": earlier.spec.fence, "criteria": earlier.spec.criteria}
    return replace(earlier, spec=judge.spec.model_copy(update=before))


def unquoted_warnings(judges: Collection[Judge]) -> list[str]:
    """Return a warning for each judge whose prompt has unquoted texts of others. First those with
    `fence: nonce` (question, options, hidden texts), then those that grade unquoted answers."""
    return [
        f"{judge.name}: its prompt has the question, options and hidden texts unquoted (fence: "
        f"{judge.spec.fence}), like the verdicts in the run; to score everything again with quoted "
        "texts add --set judge.fence=quoted"
        for judge in judges
        if judge.spec.fence == "nonce"
    ] + [
        f"{judge.name}: its grading model sees answers unquoted (fence: none); to grade everything "
        "again with quoted answers add --set judge.fence=quoted"
        for judge in judges
        if grades_unfenced(judge.spec)
    ]


def judge_from_run(name: str, spec: JudgeSpec, *, downloaded: bool = False) -> Judge:
    """Return a judge from the spec that a run stores, to judge another run in the same way; its
    model is the spec's.

    `downloaded`: the run was pulled, so its judge may only name convbench's own functions, and its
    settings cannot exceed the limits. Raise SpecError for a function that cannot be found,
    DataError for labels that cannot be read.
    """
    if downloaded:
        from convbench.store.portable import within_limits

        spec = within_limits(spec)
    return _make_judge(name, spec, spec.model, downloaded=downloaded)


def _is_spec(text: str, specs: Sequence[Path]) -> bool:
    return text.endswith((".yaml", ".yml")) or text in catalog.spec_files("judges", specs)


def _human_judge(
    text: str,
    specs: Sequence[Path],
    sets: Mapping[str, Any] | None,
    rubric: JudgeSpec | None = None,
) -> Judge:
    file = text.removeprefix("human:")
    if not file:
        raise SpecError("--judge human: found no file; expected human:FILE (.csv or .jsonl)")
    spec = rubric or catalog.load_spec(JudgeSpec, "judges", LABELS, specs=specs, sets=sets)
    if rubric is not None and sets:
        raise SpecError(
            f"--judge {rubric.name}@{text}: found --set judge.…; expected none: the "
            "labels are read by the rubric as it stands"
        )
    return _make_judge(f"human:{Path(file).stem}", spec.model_copy(update={"file": file}), None)


def _spec_judge(
    text: str,
    model: str | None,
    specs: Sequence[Path],
    sets: Mapping[str, Any] | None,
    resolve_model: Callable[[str], str],
) -> Judge:
    spec = catalog.load_spec(JudgeSpec, "judges", text, specs=specs, sets=sets)
    kind = kind_of(spec)
    if "model" not in kind.needs and model is not None:
        raise SpecError(
            f"--judge {text}@{model}: {spec.name} is of kind {spec.kind}; "
            f"expected --judge {text}, since it needs no model"
        )
    reference = model or spec.model
    if "model" not in kind.needs:
        return _guarded_judge(spec.name, spec, None)
    if not reference:
        raise SpecError(
            f"--judge {text}: rubric {spec.name} names no model; expected {text}@MODEL, e.g. "
            f"{text}@gpt-4o"
        )
    name = f"{spec.name}@{model}" if model else spec.name
    return _guarded_judge(name, spec, resolve_model(reference))


def _guarded_judge(name: str, spec: JudgeSpec, model: str | None) -> Judge:
    """Return a judge with the defaults of a named one; `earlier` is the same judge as it was before
    texts of others were quoted and criteria appended."""
    asked_spec = with_defaults(spec)
    judge = _make_judge(name, asked_spec, model)
    if spec.fence is not None or asked_spec.fence is None:
        return judge
    before = "none" if asks_grader(spec) else "nonce"
    earlier = asked_spec.model_copy(update={"fence": before, "criteria": spec.criteria})
    return replace(judge, earlier=_make_judge(name, earlier, model))


def with_defaults(spec: JudgeSpec) -> JudgeSpec:
    """Return a rubric with the defaults of today for what it leaves open: `fence` quoted, `replies`
    structured, and `criteria` appended if its prompts do not name every metric's label.

    A spec with a grader gets the fence alone, one that reads answers no criteria. A judge that asks
    no model is returned unchanged.
    """
    kind = kind_of(spec)
    if asks_grader(spec):
        return spec.model_copy(update={"fence": spec.fence or "quoted"})
    if "model" not in kind.needs:
        return spec
    defaults: dict[str, str] = {"fence": "quoted", "replies": "structured"}
    if not names_every_label(spec):
        defaults["criteria"] = "appended"
    update = {name: getattr(spec, name) or value for name, value in defaults.items()}
    return spec.model_copy(update=update)


def _without_old_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a spec's fields without those at the value from before the field existed, so that old
    fingerprints stay valid."""
    old = {"fence": "none", "replies": "text", "criteria": "as-written"}
    return {name: value for name, value in fields.items() if name not in old or old[name] != value}


def _make_judge(
    name: str, spec: JudgeSpec, model: str | None, *, downloaded: bool = False
) -> Judge:
    """Return the judge with its fingerprint; labels are read and functions imported here."""
    labels, function = None, None
    version: str | int | None = kind_of(spec).version
    if "labels" in kind_of(spec).needs:
        if not spec.file:
            raise SpecError(f"--judge {name}: found no labels; expected --judge human:FILE")
        from convbench.judges.human import read_labels

        labels = read_labels(Path(spec.file), spec)
        version = labels.digest
    elif spec.function:
        function = catalog.find_function(spec.function, downloaded=downloaded)
        version = getattr(sys.modules.get(function.__module__), "VERSION", None)
    fields = _without_old_defaults(spec.model_dump(mode="json", exclude=_ASIDE))
    return Judge(name, spec, model, fingerprint(fields, model, version), labels, function)
