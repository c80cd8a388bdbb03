"""Read and change the tags and the note that a user gives a run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import Field

from convbench.errors import RunError, UsageError
from convbench.schema.noun import FrozenModel
from convbench.store.jsonl import write_atomic
from convbench.store.locks import folder_lock
from convbench.store.run import Run
from convbench.store.shape import is_file, read_model

LABEL_FILE = "label.json"
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
MOST_TAGS = 64
"""Largest number of tags of one run."""
LONGEST_NOTE = 2000
"""Largest number of characters of a note."""


class RunLabel(FrozenModel):
    """Tags and note of a run."""

    tags: tuple[str, ...] = Field(default=(), max_length=MOST_TAGS)
    """Short names to find the run by."""
    note: str | None = Field(default=None, max_length=LONGEST_NOTE)
    """One line of text."""


def read_label(run: Run) -> RunLabel:
    """Return the tags and the note of a run, empty if it has none."""
    file = run.path / LABEL_FILE
    return read_model(file, RunLabel) if is_file(file) else RunLabel()


def write_label(
    run: Run, tags: Iterable[str] = (), without: Iterable[str] = (), note: str | None = None
) -> RunLabel:
    """Add `tags`, remove those of `without`, set the note (an empty one removes it), under a lock.
    Return the new label. Raises UsageError for an invalid tag, RunError for one to remove that the
    run does not have and for too many."""
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
        tag_names = ", ".join(before.tags) or "none"
        raise RunError(f"--untag {unknown[0]}: found tags {tag_names}; expected one of these")
    new_tags = dict.fromkeys(tag for tag in (*before.tags, *tags) if tag not in gone)
    words = before.note if note is None else " ".join(note.split()) or None
    if len(new_tags) > MOST_TAGS or len(words or "") > LONGEST_NOTE:
        raise RunError(
            f"{run.path}: expected at most {MOST_TAGS} tags and a note of {LONGEST_NOTE} characters"
        )
    label = RunLabel(tags=tuple(new_tags), note=words)
    write_atomic(run.path / LABEL_FILE, label.model_dump_json(indent=1).encode() + b"\n")
    return label
