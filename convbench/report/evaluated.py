"""Check that a run's evaluations belong to the checkpoints on disk and keep their own names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from convbench.models.where import folder_of, weights_fingerprint
from convbench.schema.run import EVALUATION
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint

WITHIN = (5, 2)
"""Number of path components of a checkpoint within its run: rounds/RECIPE/N/checkpoints/NAME, or
checkpoints/NAME."""


def misplaced_evaluations(run: Run) -> Iterator[tuple[Run, str]]:
    """Yield (evaluation, problem) for each evaluation whose checkpoint no longer has the weights or
    the recipe that were evaluated, or whose folder was renamed."""
    children = run.child_runs()
    for child in children:
        for text in (_weights_mismatch(child, run), _name_mismatch(child, children)):
            if text is not None:
                yield child, text


def _weights_mismatch(child: Run, run: Run) -> str | None:
    """Return how the checkpoint differs from what was evaluated, or None. The fingerprint covers
    the weights and the checkpoint's seal, which covers every file of it."""
    member = child.manifest.cast.get(child.manifest.protocol.policy)
    folders = _evaluated_checkpoints(child, run)
    if member is None or member.fingerprint is None or not folders:
        return None
    fingerprints = [weights_fingerprint(folder) for folder in folders]
    if member.fingerprint in fingerprints:
        return None
    return (
        f"evaluated a checkpoint of fingerprint {member.fingerprint}, and {folders[0].name} has "
        f"{fingerprints[0]}: its weights or its seal were changed since"
    )


def _evaluated_checkpoints(child: Run, run: Run) -> list[Path]:
    """Return the folders that may hold the evaluated checkpoint. A checkpoint trained in this run
    is looked up in the run's folder as it is now. Two are returned if another run's checkpoint has
    since taken the recorded path; none if the checkpoint is gone or there was none."""
    if child.manifest.checkpoint is None:
        return []
    then = folder_of(child.manifest.checkpoint).expanduser()
    today = [run.path.joinpath(*then.parts[-size:]) for size in WITHIN]
    rounds = (Run.open(file.parent) for file in run.path.glob("rounds/*/*/run.json"))
    own = {run.manifest.id, *(round_run.manifest.id for round_run in rounds)}
    within = [folder for folder in today if Checkpoint(folder).training.get("run") in own]
    elsewhere = Checkpoint(then).training.get("run") not in (None, *own)
    folders = [folder for folder in (*within, then) if Checkpoint(folder).is_finished]
    return folders if elsewhere else folders[:1]


def _name_mismatch(child: Run, children: Sequence[Run]) -> str | None:
    """Return how the folder's name differs from the recorded one, or None. Without a record, the
    folder is wrong only if it has the name of another evaluation's checkpoint."""
    name, made_as = child.path.name, child.manifest.extra.get(EVALUATION)
    if made_as is None:
        others = {_default_name(sibling) for sibling in children if sibling is not child}
        if _default_name(child) in (None, name) or name not in others:
            return None
        made_as = _default_name(child)
    return None if name == made_as else f"was made as {made_as}; its folder is named {name}"


def _default_name(child: Run) -> str | None:
    checkpoint = child.manifest.checkpoint
    return None if checkpoint is None else folder_of(checkpoint).name
