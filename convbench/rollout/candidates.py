"""Candidates for single replies: more replies of a policy to exactly the messages that it saw.

A folder of them is a run whose `candidates.json` says which are to be sampled, so that any process
can sample them from it alone:

    RUN/candidates.json    the model and its temperature
    RUN/asked.jsonl        the replies, a record a candidate
    RUN/parents.jsonl      the conversations they stand in
    RUN/candidates.jsonl   what was said
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from convbench.engine.caller import Caller
from convbench.engine.jobs import Summary
from convbench.engine.recorded_jobs import RecordedJobs, run_recorded
from convbench.models.model import Model
from convbench.options.shared import CallOptions
from convbench.rollout.calls import at_once, calling, open_for
from convbench.rollout.plan import PARENTS, call_key, candidate, parents
from convbench.schema import Completion, Conversation, text_of
from convbench.schema.noun import ConversationId, Noun
from convbench.store import Run
from convbench.store.jsonl import lines, records, write_whole
from convbench.store.shape import checked, read_model
from convbench.views import shown

FILE, ASKED, SAID = "candidates.json", "asked.jsonl", "candidates.jsonl"
CUT = ("length", "filter")
"""Finish reasons of a reply that was cut."""


class Asking(Noun):
    """Which model's candidates are to be sampled, and how."""

    model: str = Field(max_length=4000)
    """Reference of the model."""
    temperature: float = Field(ge=0, le=100)
    """The sampling temperature."""


class Reply(Noun):
    """One candidate to be sampled, and its position."""

    conversation_id: ConversationId
    """The conversation."""
    turn: int = Field(ge=0)
    """Its turn."""
    rounds: int = Field(default=0, ge=0)
    """Tool rounds before it."""
    candidate: int = Field(ge=0)
    """Its number."""


@dataclass
class Sampled:
    """How sampling ended."""

    jobs: Summary = Summary(0, 0)
    """How the jobs ended."""
    failures: Counter[str] = field(default_factory=Counter)
    """Number of failed jobs, by message."""


Wanted = tuple[Conversation, Reply]


def want(run: Run, asking: Asking, wanted: Iterable[Wanted]) -> None:
    """Write the list of candidates to be sampled into a folder; candidates that it has stay."""
    talks: dict[str, bytes] = {}
    asked = []
    for talk, reply in wanted:
        if talk.conversation_id not in talks:
            talks[talk.conversation_id] = talk.model_dump_json().encode() + b"\n"
        asked.append(reply.model_dump_json().encode() + b"\n")
    write_whole(run.path / PARENTS, b"".join(talks.values()))
    write_whole(run.path / ASKED, b"".join(asked))
    write_whole(run.path / FILE, asking.model_dump_json().encode() + b"\n")


def lacking(run: Run) -> Iterator[Wanted]:
    """Yield the candidates that a folder, or one of its shards, lacks for its own questions. Raises
    RunError for a record that is invalid."""
    home = (run.home or run).path
    if not (home / FILE).exists():
        return
    talks = {talk.conversation_id: talk for talk in parents(run)}
    there = {place(row) for file in run.files(SAID) for row in said(file)}
    for number, line in lines(home / ASKED):
        reply = checked(f"{home / ASKED}:{number}", line, Reply)
        own = talks.get(reply.conversation_id)
        if own is not None and place(reply.model_dump()) not in there:
            yield own, reply


def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["conversation_id"], row["turn"], row.get("rounds", 0), row["candidate"]


def said(file: Path) -> Iterator[dict[str, Any]]:
    """Return the candidates in a file, none if the file does not exist."""
    return iter(records(file, "conversation_id", "text")) if file.exists() else iter(())


async def sampled(run: Run, calls: CallOptions) -> Sampled:
    """Sample the candidates that a folder lacks."""
    jobs = list(lacking(run))
    if not jobs:
        return Sampled()
    asking = read_model((run.home or run).path / FILE, Asking)
    model = open_candidates(run, asking.model, calls)
    try:
        many = at_once(calls, [model])
        async with calling(run, calls, "candidates", many, [model]) as caller:
            return await sample(run, model, jobs, run.path / SAID, caller, many, asking.temperature)
    finally:
        await model.aclose()


def open_candidates(run: Run, reference: str, calls: CallOptions) -> Model:
    """Open the model to sample from, with the policy's configuration."""
    member = run.manifest.cast[run.manifest.protocol.policy]
    return open_for(
        run, reference, member.api_base, calls, short=member.short, member=member, role="policy"
    )


class Candidates(RecordedJobs[Wanted, Completion]):
    """Candidates to be sampled; each is appended to a file when it is done."""

    def __init__(
        self,
        run: Run,
        model: Model,
        jobs: Sequence[Wanted],
        file: Path,
        caller: Caller,
        temperature: float,
    ) -> None:
        self.file = file
        self.sampled = Sampled()
        self._run, self._model, self._jobs, self._caller = run, model, jobs, caller
        self._temperature = temperature
        self._keys = {_key(job) for job in jobs}

    def jobs(self) -> Sequence[Wanted]:
        """Return the missing candidates."""
        return self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    async def result(self, job: Wanted) -> Completion:
        """Sample one candidate."""
        talk, reply = job
        return await candidate(
            self._run.manifest,
            talk,
            reply.turn,
            reply.candidate,
            self._model,
            self._caller,
            temperature=self._temperature,
            rounds=reply.rounds,
        )

    def failed_result(self, job: Wanted, error: Exception) -> None:
        """Count the error. A failed candidate leaves no record and is sampled again next time."""
        self.sampled.failures.update([str(error)])

    def owns(self, key: str) -> bool:
        """Return whether a call belongs to one of these candidates."""
        return key in self._keys

    def record(self, job: Wanted, result: Completion) -> bytes:
        """Return a candidate's line in the file."""
        return json.dumps(record(job[1], result)).encode()


async def sample(
    run: Run,
    model: Model,
    jobs: Sequence[Wanted],
    file: Path,
    caller: Caller,
    many: int,
    temperature: float,
) -> Sampled:
    """Sample these candidates, `many` at once, and append each to a file when it is done."""
    work = Candidates(run, model, jobs, file, caller, temperature)
    work.sampled.jobs = await run_recorded(work, caller, many)
    return work.sampled


def _key(job: Wanted) -> str:
    talk, reply = job
    return call_key(talk, reply.turn, reply.candidate, reply.rounds)


def record(reply: Reply, answer: Completion) -> dict[str, Any]:
    """Return a candidate's record."""
    text = text_of(answer.content) if answer.raw is None else answer.raw
    found: dict[str, Any] = {
        "conversation_id": reply.conversation_id,
        "turn": reply.turn,
        "candidate": reply.candidate,
        "text": shown(answer.reasoning, text) if answer.reasoning else text,
        "cut": answer.finish_reason in CUT,
    }
    if reply.rounds:
        found["rounds"] = reply.rounds
    if answer.raw is None and answer.tool_calls:
        found["calls"] = [call.model_dump() for call in answer.tool_calls]
    return found
