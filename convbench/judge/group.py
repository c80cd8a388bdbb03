"""Judges of a group (`per: group`): all conversations on a question are scored in one call.

The scores of such a judge are relative: they compare a policy's answers to one question, as SWiFt's
standardising needs (Mukherjee et al. 2025, section 3), and say nothing across questions or
policies. The order in which conversations are shown is drawn for each group. Each conversation gets
its own verdict, with its position in the prompt and its share of the call's cost.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

from convbench.engine import Summary
from convbench.engine.caller import Caller
from convbench.errors import DataError
from convbench.judge.ask import Form, ask, schema_of
from convbench.judge.model import sent, unread, unreadable
from convbench.judge.replies import FENCE, Complaint, Pairs, Scores, read
from convbench.judge.resolve import Judge
from convbench.judge.several import messages_of
from convbench.judge.units import Before, Judged, Request, Unit
from convbench.judge.verdicts import failed_verdict, scored, unscorable
from convbench.judge.work import Tools
from convbench.rollout.preview import Preview
from convbench.schema import (
    Conversation,
    Example,
    JudgeSpec,
    Message,
    ProtocolSpec,
    RunManifest,
    Verdict,
)
from convbench.store import Run

LEAST, MOST = 2, 16
"""Bounds on the size of a group: one has no other to compare with, and more are read carelessly."""
_HEAD = re.compile(r"^[\W_]*conversation[\W_]*(\d{1,2})[\W_]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """The conversations on one question, in the order in which the judge is shown them."""

    talks: tuple[Conversation, ...]
    example: Example
    asked: int = 0
    """Number of replies in earlier attempts."""


def in_prompt(talks: Sequence[Conversation], mark: str) -> tuple[Conversation, ...]:
    """Return conversations in an order drawn from their ids and `mark`, the judge's fingerprint."""
    return tuple(
        sorted(
            talks,
            key=lambda one: hashlib.sha256(
                f"{mark}\0{one.conversation_id}".encode("utf-8", "replace")
            ).digest(),
        )
    )


def key_of(judge: Judge, group: Group) -> str:
    """Return the prefix of a group's journal keys."""
    return f"judge/{judge.fingerprint}/group/{group.example.example_id}"


def group_messages(judge: Judge, group: Group) -> list[Message]:
    """Return the messages to the judge's model on a group."""
    return messages_of(
        judge.spec, group.talks, group.example, f"{key_of(judge, group)}#{group.asked}"
    )


async def score_group(
    judge: Judge, group: Group, protocol: ProtocolSpec, tools: Tools
) -> tuple[Verdict, ...]:
    """Return a verdict for each conversation, in the order shown; all fail if the reply cannot be
    read or the group has a wrong size. Errors that end the run are raised."""
    if not LEAST <= len(group.talks) <= MOST:
        said = (
            f"found {len(group.talks)} conversations about the question; a judge of groups needs "
            f"{LEAST} to {MOST}: build with --samples in that range"
        )
        return _all(judge, group, "GroupSize", said, attempts=group.asked, cost_usd=0.0)
    if tools.caller is None or tools.held is None:
        raise DataError(f"judge {judge.name}: found no model; expected one to ask")
    count = len(group.talks)

    form = Form(
        lambda: group_schema(judge.spec, count), lambda text: read_group(text, judge.spec, count)
    )
    done = await ask(
        tools.caller,
        tools.held,
        judge,
        group_messages(judge, group),
        key_of(judge, group),
        group.asked,
        form,
    )
    shares = [
        _share(done.total(name), len(group.talks))
        for name in ("prompt_tokens", "completion_tokens", "cost_usd")
    ]
    attempts = group.asked + len(done.replies)
    if not isinstance(done.result, tuple):
        kind, said, raw = unread(done)
        return tuple(
            unscorable(
                judge,
                talk.conversation_id,
                kind,
                said,
                reply=raw,
                attempts=attempts,
                prompt_tokens=a,
                completion_tokens=b,
                cost_usd=c,
            )
            for talk, a, b, c in zip(group.talks, *shares, strict=True)
        )
    told = sent(done.replies)
    return tuple(
        scored(
            judge,
            talk,
            protocol,
            found.scores,
            justifications=found.justifications,
            details={**told, "group": len(group.talks), "place": place},
            attempts=attempts,
            prompt_tokens=a,
            completion_tokens=b,
            cost_usd=c,
        )
        for place, (talk, found, a, b, c) in enumerate(
            zip(group.talks, done.result, *shares, strict=True), 1
        )
    )


def group_schema(spec: JudgeSpec, count: int) -> dict[str, Any]:
    """Return the JSON schema of a reply: an object of conversations, each with all metrics."""
    one = schema_of(spec)
    names = [_name(place) for place in range(1, count + 1)]
    return {
        "type": "object",
        "properties": dict.fromkeys(names, one),
        "required": names,
        "additionalProperties": False,
    }


def read_group(reply: str, spec: JudgeSpec, count: int) -> tuple[Scores, ...] | Complaint:
    """Return the scores of all conversations in the order shown, or a complaint.

    A reply by the schema is an object with keys `conversation_1` …; a text has a line
    `Conversation 1` above each conversation's scores. Each part is read as strictly as a rubric's
    full reply.
    """
    parts = _objects(reply) or _texts(reply)
    names = [name for name, _ in parts]
    wanted = [_name(place) for place in range(1, count + 1)]
    if sorted(names) != sorted(wanted):
        found = ", ".join(names) or "none"
        return Complaint(
            f"Your reply could not be read: expected scores of {count} conversations, each once, "
            f"under {', '.join(wanted)}; found {found[:200]}. Please give all of it again."
        )
    by_name = dict(parts)
    out: list[Scores] = []
    for name in wanted:
        got = read(by_name[name], spec)
        if isinstance(got, Complaint):
            return Complaint(f"{name.replace('_', ' ').capitalize()}: {got.text}")
        out.append(got)
    return tuple(out)


def _name(place: int) -> str:
    return f"conversation_{place}"


def _objects(reply: str) -> list[tuple[str, str | Pairs]] | None:
    """Return (conversation, its scores) of a JSON reply; None for any other reply."""
    fence = FENCE.match(reply)
    try:
        found = json.loads(fence[1] if fence else reply, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, Pairs) or not all(_is_scores(value) for _, value in found):
        return None
    return list(found)


def _is_scores(value: Any) -> bool:
    return isinstance(value, Pairs) and all(isinstance(one, Pairs) for _, one in value)


def _texts(reply: str) -> list[tuple[str, str | Pairs]]:
    """Return (conversation, its text) of a text reply: the lines below each `Conversation N`."""
    parts: list[tuple[str, list[str]]] = []
    for line in reply.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            parts.append((_name(int(head[1])), []))
        elif parts:
            parts[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in parts]


def _share(total: Any, count: int) -> list[Any]:
    """Return equal shares of tokens (as integers) or dollars; Nones if the total is unknown."""
    if total is None:
        return [None] * count
    if isinstance(total, int):
        return [total // count + (k < total % count) for k in range(count)]
    return [total / count] * count


def _all(judge: Judge, group: Group, kind: str, said: str, **more: Any) -> tuple[Verdict, ...]:
    return tuple(unscorable(judge, one.conversation_id, kind, said, **more) for one in group.talks)


def groups_of(run: Run, judge: Judge, pending: Before) -> list[Group]:
    """Return a group for each question with a pending conversation. It has all conversations on the
    question, since their scores are relative to each other."""
    talks: dict[str, list[Conversation]] = {}
    for one in run.conversations():
        if one.failure is None and one.branch is None:
            talks.setdefault(one.example_id, []).append(one)
    found = []
    for name, members in talks.items():
        before = [pending[one.conversation_id] for one in members if one.conversation_id in pending]
        if before:
            asked = max((one.attempts for one in before if one is not None), default=0)
            shown = in_prompt(members, judge.fingerprint)
            found.append(Group(shown, run.examples[name], asked))
    return found


class Groups(Unit[Group, tuple[Verdict, ...]]):
    """Pending groups. All conversations of a group are one job, one journal line and one write."""

    def __init__(self, run: Run, judge: Judge, pending: Before, judged: Judged) -> None:
        self.file = run.verdicts_file
        self.judge, self.judged = judge, judged
        self._protocol = run.manifest.protocol
        self._groups = groups_of(run, judge, pending)
        self._keys = {key_of(judge, group) for group in self._groups}
        self._scored = self._failed = 0

    def jobs(self) -> Sequence[Group]:
        """Return the groups with a pending conversation."""
        return self._groups

    def __len__(self) -> int:
        return len(self._groups)

    async def result(self, job: Group) -> tuple[Verdict, ...]:
        """Return a verdict for each conversation."""
        return await score_group(self.judge, job, self._protocol, self.tools)

    def record(self, job: Group, result: tuple[Verdict, ...]) -> bytes:
        """Return the JSON lines of a group's verdicts."""
        return b"\n".join(one.model_dump_json().encode() for one in result)

    def failed_result(self, job: Group, error: Exception) -> tuple[Verdict, ...]:
        """Return failed verdicts with this error."""
        return tuple(failed_verdict(self.judge, one.conversation_id, error) for one in job.talks)

    def owns(self, key: str) -> bool:
        """Return whether a journal key belongs to one of these groups."""
        return key.rpartition("#")[0] in self._keys

    def key_prefix(self, job: Group) -> str:
        """Return the prefix of the journal keys of a group."""
        return f"{key_of(self.judge, job)}#"

    def is_failed(self, result: tuple[Verdict, ...]) -> bool:
        """Return whether a conversation of the group got no score."""
        return any(one.failure is not None for one in result)

    def count(self, job: Group, result: tuple[Verdict, ...]) -> None:
        """Count conversations with and without scores."""
        for verdict in result:
            self._scored += verdict.failure is None
            self._failed += verdict.failure is not None
            self.judged.count(verdict.failure)

    def unreadable(self, result: tuple[Verdict, ...]) -> str | None:
        """Return why the judge's reply could not be read; None if it could."""
        return unreadable(self.judge, result[0].failure)

    async def run(self, caller: Caller) -> Summary:
        """Score the groups and return how many conversations were scored and how many failed."""
        jobs = await super().run(caller)
        return Summary(self._scored, self._failed, jobs.interrupted, jobs.stopped)

    def requests(self) -> Iterator[Request]:
        """Yield the requests to the judge's model, group by group."""
        for group in self._groups:
            schema = partial(group_schema, self.judge.spec, len(group.talks))
            yield group_messages(self.judge, group), schema

    @classmethod
    def requests_unbuilt(
        cls, judge: Judge, manifest: RunManifest, shown: Preview
    ) -> Iterable[Request]:
        """Return the requests on a run that is not built yet; `shown` is the preview of its first
        conversation."""
        size = manifest.samples
        group = Group((shown.played,) * size, shown.example)
        schema = partial(group_schema, judge.spec, size)
        return repeat((group_messages(judge, group), schema), shown.estimate.conversations // size)
