"""Candidates for single replies: more replies of a policy to exactly the messages that it saw."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from convbench.engine.caller import Caller
from convbench.engine.jobs import Summary
from convbench.engine.recorded_jobs import RecordedJobs, run_recorded
from convbench.engine.session import Session
from convbench.models.model import Model
from convbench.options.shared import CallOptions
from convbench.rollout.calls import open_for
from convbench.rollout.plan import call_key, sample_candidate
from convbench.schema import Completion, Conversation, text_of
from convbench.schema.base import ConversationId, FrozenModel
from convbench.store import Run
from convbench.store.jsonl import read_records
from convbench.views import original_text

CUT_REASONS = ("length", "filter")
"""Finish reasons of a reply that was cut."""


class CandidatePosition(FrozenModel):
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
class SampleSummary:
    """How sampling ended."""

    jobs: Summary = Summary(0, 0)
    """How the jobs ended."""
    failures: Counter[str] = field(default_factory=Counter)
    """Number of failed jobs, by message."""


CandidateJob = tuple[Conversation, CandidatePosition]


def candidate_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of candidates, nothing if the file does not exist.

    Raise RunError for a line without the texts `conversation_id` and `text`.
    """
    return iter(read_records(file, "conversation_id", "text")) if file.exists() else iter(())


def open_candidate_model(run: Run, reference: str, calls: CallOptions, session: Session) -> Model:
    """Return the open model to sample candidates from, with the address, settings and devices of
    the run's policy. Raise RunError if a pulled run may not call it."""
    member = run.manifest.cast[run.manifest.protocol.policy]
    return open_for(
        run,
        reference,
        member.api_base,
        calls,
        session,
        short=member.short,
        member=member,
        role="policy",
    )


class CandidateJobs(RecordedJobs[CandidateJob, Completion]):
    """Candidates to be sampled; each is appended to a file when it is done."""

    def __init__(
        self,
        run: Run,
        model: Model,
        jobs: Sequence[CandidateJob],
        file: Path,
        caller: Caller,
        temperature: float,
    ) -> None:
        self.file = file
        self.summary = SampleSummary()
        self._run, self._model, self._jobs, self._caller = run, model, jobs, caller
        self._temperature = temperature
        self._keys = {_job_key(job) for job in jobs}

    def jobs(self) -> Sequence[CandidateJob]:
        """Return the candidates that this object was made with, in the same order.

        They are not sorted, and those sampled meanwhile stay in the list.
        """
        return self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    async def result(self, job: CandidateJob) -> Completion:
        """Return one more reply of the policy to what it saw at the candidate's position."""
        talk, reply = job
        return await sample_candidate(
            self._run.manifest,
            talk,
            reply.turn,
            reply.candidate,
            self._model,
            self._caller,
            temperature=self._temperature,
            rounds=reply.rounds,
        )

    def failed_result(self, job: CandidateJob, error: Exception) -> None:
        """Count the error by its message and return None: a failed candidate leaves no record and
        is sampled again next time."""
        self.summary.failures.update([str(error)])

    def owns(self, key: str) -> bool:
        """Return whether a call belongs to one of these candidates."""
        return key in self._keys

    def record(self, job: CandidateJob, result: Completion) -> bytes:
        """Return a candidate's record (`candidate_row`) as JSON, without a line end."""
        return json.dumps(candidate_row(job[1], result)).encode()


async def sample_candidates(
    run: Run,
    model: Model,
    jobs: Sequence[CandidateJob],
    file: Path,
    caller: Caller,
    many: int,
    temperature: float,
) -> SampleSummary:
    """Sample these candidates, `many` at once, append each to `file` when it is done, and return
    how it ended.

    A failed candidate leaves no record; its error is counted in `failures`. What stopped the run is
    in `jobs` and is not raised.
    """
    work = CandidateJobs(run, model, jobs, file, caller, temperature)
    work.summary.jobs = await run_recorded(work, caller, many)
    return work.summary


def _job_key(job: CandidateJob) -> str:
    talk, reply = job
    return call_key(talk, reply.turn, reply.candidate, reply.rounds)


def candidate_row(reply: CandidatePosition, answer: Completion) -> dict[str, Any]:
    """Return a candidate's record: conversation_id, turn, candidate, text and cut.

    `text` is the reply as the model wrote it, including reasoning in tags; `cut` is true for finish
    reasons `length` and `filter`. `rounds` is added if tool rounds precede it, and `calls` if it
    calls tools outside its text.
    """
    text = text_of(answer.content) if answer.raw is None else answer.raw
    row: dict[str, Any] = {
        "conversation_id": reply.conversation_id,
        "turn": reply.turn,
        "candidate": reply.candidate,
        "text": original_text(answer.reasoning, text) if answer.reasoning else text,
        "cut": answer.finish_reason in CUT_REASONS,
    }
    if reply.rounds:
        row["rounds"] = reply.rounds
    if answer.raw is None and answer.tool_calls:
        row["calls"] = [call.model_dump() for call in answer.tool_calls]
    return row
