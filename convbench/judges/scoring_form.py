"""The rubric by which people score: that of a run's own judge, as a form and as a judge of labels.

People score conversations by the judge's metrics, scales and labels. A run without a verdict of a
judge with a rubric uses its task's judge, or the six metrics of judge `human`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.errors import ConvbenchError, SpecError
from convbench.judges.human import needed_names
from convbench.judges.kinds import kind_of
from convbench.schema import JudgeSpec
from convbench.schema.judge import OVERALL
from convbench.store import Run

PEOPLE, USUAL = "human", "rubric"
"""Names of the spec of people's labels, and of the rubric that explains its metrics."""


def default_rubric() -> JudgeSpec:
    """Return the rubric that people use by default: the spec of judge `human`, its metrics with the
    explanations of the shipped rubric."""
    spec = catalog.load_spec(JudgeSpec, "judges", PEOPLE)
    about = {m.name: m.about for m in catalog.load_spec(JudgeSpec, "judges", USUAL).metrics}
    metrics = [
        m.model_copy(update={"about": m.about or about.get(m.name, "")}) for m in spec.metrics
    ]
    return spec.model_copy(update={"metrics": tuple(metrics)})


def label_judge(rubric: JudgeSpec) -> JudgeSpec:
    """Return the spec of the judge of people's labels by a rubric, of kind `human`, with the
    rubric's name, metrics, scales, weights and reward, and whether a note is required.

    Optional metrics, which only a function measures, are left out.
    """
    metrics = tuple(metric for metric in rubric.metrics if not metric.optional)
    return catalog.load_spec(JudgeSpec, "judges", PEOPLE).model_copy(
        update={
            "name": rubric.name,
            "title": f"scores that people gave by {rubric.name}",
            "metrics": metrics,
            "lowest": rubric.lowest,
            "highest": rubric.highest,
            "justification": rubric.justification,
            "reward": rubric.reward,
        }
    )


def form_rubric(run: Run, specs: Sequence[Path] = ()) -> JudgeSpec:
    """Return the rubric by which people score a run's conversations, as a spec of kind `human`.

    That is the rubric of a judge that scored it (a model's before a function's, the task's own
    first, then by name), else that of the judge its task names, else the default one. Judges of
    pairs and labels, and those that do not score what was said, do not count.
    """
    candidates = [spec for spec in run.judge_specs().values() if _has_rubric(spec)]
    own = run.manifest.task.judge
    if not candidates and own is not None:
        with suppress(ConvbenchError):
            candidates = [
                s
                for s in [catalog.load_spec(JudgeSpec, "judges", own, specs=specs)]
                if _has_rubric(s)
            ]
    first = min(
        candidates,
        key=lambda s: ("model" not in kind_of(s).needs, s.name != own, s.name),
        default=None,
    )
    return default_rubric() if first is None or _is_default(first) else label_judge(first)


def find_label_judge(text: str, specs: Sequence[Path], run: Run | None = None) -> JudgeSpec:
    """Return the spec of the judge of labels, of kind `human`, by the rubric of this name: that of
    a judge that scored `run`, else of the specs.

    Raise SpecError for an unknown rubric, or one without metrics.
    """
    run_specs = () if run is None else run.judge_specs().values()
    rubric = next((spec for spec in run_specs if spec.name == text and _has_rubric(spec)), None)
    if rubric is None:
        rubric = catalog.load_spec(JudgeSpec, "judges", text, specs=specs)
    if not rubric.metrics:
        raise SpecError(
            f"--judge {text}@human:…: {rubric.name} has no metrics that people can score"
        )
    return label_judge(rubric)


def form_fields(spec: JudgeSpec) -> dict[str, Any]:
    """Return a rubric as the fields of a form: `name`, `metrics`, `note` (whether one is required)
    and `headline` (the label of the headline metric).

    Each metric has `name`, `label`, `about`, `lowest`, `highest`, `needed` (whether the reward
    needs it) and `weight` (a number or None).
    """
    needed = needed_names(spec)
    metrics = []
    for metric in spec.metrics:
        low, high = spec.score_limits(metric.name)
        metrics.append(
            {
                "name": metric.name,
                "label": metric.label,
                "about": metric.about,
                "lowest": low,
                "highest": high,
                "needed": metric.name in needed,
                "weight": metric.weight,
            }
        )
    return {
        "name": spec.name,
        "metrics": metrics,
        "note": spec.justification == "required",
        "headline": spec.score_labels.get(spec.headline_metric, spec.headline_metric),
    }


def _has_rubric(spec: JudgeSpec) -> bool:
    """Return whether people can score by a judge's metrics."""
    kind = kind_of(spec)
    return (
        bool(spec.metrics)
        and spec.per != "pair"
        and "labels" not in kind.needs
        and kind.measures == "talk"
    )


def _is_default(spec: JudgeSpec) -> bool:
    """Return whether a rubric has the metrics, range and reward of judge `human`."""
    people = default_rubric()
    same = {m.name: m.label.lower() for m in people.metrics}
    labels = {m.name: m.label.lower() for m in spec.metrics}
    has_defaults = spec.justification == "optional" and not spec.has_weights
    ranges = {spec.score_limits(name) for name in spec.score_names}
    return (
        has_defaults
        and labels == same
        and ranges == {(people.lowest, people.highest)}
        and spec.reward.metric == OVERALL
    )
