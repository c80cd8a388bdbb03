"""What a run of branches is to hold, written beside it: any process can have them from it alone.

RUN/wanted.json      branches at each turn
RUN/parents.jsonl    the conversations that they leave
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import Field

from convbench.rollout.branch import branches
from convbench.rollout.plan import Rollout
from convbench.schema import Conversation
from convbench.schema.noun import Noun
from convbench.store import Run
from convbench.store.jsonl import lines, write_whole
from convbench.store.shape import checked, read_model

FILE, PARENTS = "wanted.json", "parents.jsonl"


class Wanted(Noun):
    """How many branches are wanted."""

    per_turn: int = Field(ge=1, le=10_000)
    """Branches at each turn of the policy."""


def want(run: Run, talks: Iterable[Conversation], per_turn: int) -> None:
    """Write down which branches a run is to hold; those it has already stay."""
    records = b"".join(talk.model_dump_json().encode() + b"\n" for talk in talks)
    write_whole(run.path / PARENTS, records)
    said = Wanted(per_turn=per_turn)
    write_whole(run.path / FILE, said.model_dump_json().encode() + b"\n")


def wanted(run: Run) -> Iterator[Rollout]:
    """Yield the branches that a run, or one of its shards, lacks: of its own questions. RunError
    for a record that is none."""
    home = (run.home or run).path
    if not (home / FILE).exists():
        return
    per_turn = read_model(home / FILE, Wanted).per_turn
    yield from branches(run.manifest, parents(run), per_turn=per_turn, on_disk=run.attempts())


def parents(run: Run) -> Iterator[Conversation]:
    """Yield what is written in `parents.jsonl` of a run, or of the one that it is a shard of: the
    conversations about its own questions. RunError for a record that is none."""
    file = (run.home or run).path / PARENTS
    found = (checked(f"{file}:{number}", line, Conversation) for number, line in lines(file))
    return (talk for talk in found if talk.example_id in run.examples)
