"""A run's tags and note: what its owner calls it, beside what it is, and free to change."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import Field

from convbench.errors import RunError, UsageError
from convbench.schema.noun import Noun
from convbench.store.jsonl import write_whole
from convbench.store.locks import folder_lock
from convbench.store.run import Run
from convbench.store.shape import read_model, there

FILE = "label.json"
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
MOST = 64
"""Tags of one run."""
LONGEST_NOTE = 2000
"""Characters of a note."""


class RunLabel(Noun):
    """What a run is called by those who work with it."""

    tags: tuple[str, ...] = Field(default=(), max_length=MOST)
    """Short names to find it by."""
    note: str | None = Field(default=None, max_length=LONGEST_NOTE)
    """A line of words."""


def read_label(run: Run) -> RunLabel:
    """Return a run's tags and note; none where nobody gave it any."""
    file = run.path / FILE
    return read_model(file, RunLabel) if there(file) else RunLabel()


def write_label(
    run: Run, tags: Iterable[str] = (), without: Iterable[str] = (), note: str | None = None
) -> RunLabel:
    """Add tags, take some off, set the note (empty: none); one process after another. Raises
    RunError for what is no tag."""
    with folder_lock(run.path, "changing its tags", name=".label.lock", wait_s=10):
        return _write_label(run, tuple(tags), set(without), note)


def _write_label(run: Run, tags: tuple[str, ...], gone: set[str], note: str | None) -> RunLabel:
    before = read_label(run)
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise UsageError(
                f"--tag {tag[:80]!r}: expected up to 64 letters, digits and . _ : / - that begin "
                "with a letter or digit"
            )
    if unknown := sorted(gone - set(before.tags)):
        had = ", ".join(before.tags) or "none"
        raise RunError(f"--untag {unknown[0]}: found tags {had}; expected one of these")
    kept = dict.fromkeys(tag for tag in (*before.tags, *tags) if tag not in gone)
    words = before.note if note is None else " ".join(note.split()) or None
    if len(kept) > MOST or len(words or "") > LONGEST_NOTE:
        raise RunError(
            f"{run.path}: expected at most {MOST} tags and a note of {LONGEST_NOTE} characters"
        )
    label = RunLabel(tags=tuple(kept), note=words)
    write_whole(run.path / FILE, label.model_dump_json(indent=1).encode() + b"\n")
    return label
