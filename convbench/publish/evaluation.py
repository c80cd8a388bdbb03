"""What an evaluation says of a checkpoint, for the card of a published one."""

from __future__ import annotations

from pathlib import Path

from convbench.models.where import folder_of
from convbench.publish.card import mean_text
from convbench.publish.checkpoint_card import MeasureRow, Results
from convbench.publish.folder import one_judge
from convbench.report.compare import differences
from convbench.report.measures import ACCURACY, Measure, reward
from convbench.report.paired import paired
from convbench.report.policies import Policy, read_policy
from convbench.report.sections import Section
from convbench.stats.means import Estimate
from convbench.store.checkpoint import Checkpoint
from convbench.store.run import Run


def results_of(run: Run, checkpoint: Path, judge: str | None = None) -> Results | None:
    """Return the evaluation of a checkpoint of this run, beside the run's own policy on the same
    split; None where it was not evaluated. Raises RunError for a judge that did not judge it."""
    child = _child(run, checkpoint)
    if child is None:
        return None
    ours = read_policy(child, child.manifest.split, run)
    if not ours.rows:
        return None
    base = read_policy(run, child.manifest.split)
    chosen = one_judge(ours.run, ours.judges, judge or _rewarded(checkpoint, ours))
    notes = [f"Failed conversations: {failed}." for failed in [_failed(ours)] if failed]
    unlike = differences(base, ours) if base.rows else ["Base was not asked these questions"]
    if unlike:
        notes.append(f"Not set against Base: {'; '.join(unlike[:3])}.")
    manifest = child.manifest
    section = Section(
        manifest.task.name, manifest.mode, manifest.protocol.name, manifest.turns,
        manifest.split, (ours,) if unlike else (base, ours), manifest.regime,
    )  # fmt: skip
    measures = [ACCURACY, *([reward(chosen)] if chosen else [])]
    means = [(measure, mean) for measure in measures if (mean := measure.of(ours))]
    return Results(
        manifest.split,
        manifest.protocol.name,
        len(ours.rows),
        len({row.group for row in ours.rows}),
        chosen,
        tuple(_row(section, measure, mean) for measure, mean in means),
        tuple(notes),
        {measure.key: mean.mean for measure, mean in means},
    )


def _child(run: Run, checkpoint: Path) -> Run | None:
    """Return the child run that evaluates this checkpoint; one of its own name goes first."""
    name = checkpoint.resolve().name
    found = [
        child for child in run.children() if folder_of(child.manifest.checkpoint or "").name == name
    ]
    found.sort(key=lambda child: (child.path.name != name, child.path.name))
    return found[0] if found else None


def _rewarded(checkpoint: Path, ours: Policy) -> str | None:
    """Return the judge that the checkpoint learnt from, where it judged the evaluation too."""
    name = Checkpoint(checkpoint).training.get("judge")
    return name if name in ours.judges else None


def _failed(policy: Policy) -> int:
    return sum(row.failed for row in policy.rows)


def _row(section: Section, measure: Measure, mean: Estimate) -> MeasureRow:
    base = measure.of(section.base) if section.base else None
    change = next((item.estimate for item in paired(section, measure)), None)
    return MeasureRow(
        measure.head,
        mean_text(base, measure.digits) if base else None,
        mean_text(mean, measure.digits),
        _change(change, measure) if change else None,
    )


def _change(found: Estimate, measure: Measure) -> str:
    text = f"{found.mean:+.{measure.digits}f}"
    if found.interval is None:
        return f"{text} ({found.n} pairs)"
    low, high = (f"{end:+.{measure.digits}f}" for end in found.interval)
    return f"{text} ({low} to {high}; {found.n} pairs)"
