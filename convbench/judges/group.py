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
from convbench.judges.ask import ReplyForm, ask_judge, schema_of, transcript_messages
from convbench.judges.model import failure_parts, sampling_details, unreadable_reason
from convbench.judges.replies import Complaint, JsonPairs, Scores, read_reply
from convbench.judges.resolve import Judge
from convbench.judges.units import JudgeSummary, PendingVerdicts, Request, Unit
from convbench.judges.verdicts import failed_verdict, scored_verdict, unscorable_verdict
from convbench.judges.work import JudgeTools
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
_FENCE = re.compile(
    r"\A\s*+```(?:json)?[^\S\n]*+\n(.*)\n[^\S\n]*+```\s*+\Z", re.DOTALL | re.IGNORECASE
)
"""A code fence around the complete reply."""
_HEAD = re.compile(r"^[\W_]*conversation[\W_]*(\d{1,2})[\W_]*$", re.IGNORECASE)


@dataclass(frozen=True)
class ConversationGroup:
    """The conversations on one question, in the order in which the judge is shown them."""

    talks: tuple[Conversation, ...]
    example: Example
    attempts: int = 0
    """Number of replies in earlier attempts."""


def prompt_order(talks: Sequence[Conversation], mark: str) -> tuple[Conversation, ...]:
    """Return the conversations ordered by a hash of `mark`, the judge's fingerprint, and their ids:
    random, but always the same."""
    return tuple(
        sorted(
            talks,
            key=lambda talk: hashlib.sha256(
                f"{mark}\0{talk.conversation_id}".encode("utf-8", "replace")
            ).digest(),
        )
    )


def group_key(judge: Judge, group: ConversationGroup) -> str:
    """Return the prefix of a group's journal keys."""
    return f"judge/{judge.fingerprint}/group/{group.example.example_id}"


def group_messages(judge: Judge, group: ConversationGroup) -> list[Message]:
    """Return the messages to the judge's model on a group."""
    return transcript_messages(
        judge.spec, group.talks, group.example, f"{group_key(judge, group)}#{group.attempts}"
    )


async def score_group(
    judge: Judge, group: ConversationGroup, protocol: ProtocolSpec, tools: JudgeTools
) -> tuple[Verdict, ...]:
    """Return a verdict for each conversation, in the order shown, with equal shares of the call's
    tokens and cost, and `group` (size) and `place` (position from 1) in its details.

    All are failed ones if the reply cannot be read, the model gives an error, or the group has not
    2 to 16 conversations (kind `GroupSize`). Errors that end the run are raised; so is DataError
    without a model.
    """
    if not LEAST <= len(group.talks) <= MOST:
        message = (
            f"found {len(group.talks)} conversations on the question; expected {LEAST} to {MOST} "
            f"for a judge of groups: build with --samples {LEAST} to {MOST}"
        )
        return _all_unscorable(
            judge, group, "GroupSize", message, attempts=group.attempts, cost_usd=0.0
        )
    if tools.caller is None or tools.kind_state is None:
        raise DataError(f"judge {judge.name}: found no model; expected one to ask")
    count = len(group.talks)

    form = ReplyForm(
        lambda: group_schema(judge.spec, count), lambda text: read_group(text, judge.spec, count)
    )
    done = await ask_judge(
        tools.caller,
        tools.kind_state,
        judge,
        group_messages(judge, group),
        group_key(judge, group),
        group.attempts,
        form,
    )
    shares = [
        _equal_shares(done.total_usage(name), len(group.talks))
        for name in ("prompt_tokens", "completion_tokens", "cost_usd")
    ]
    attempts = group.attempts + len(done.replies)
    if not isinstance(done.result, tuple):
        kind, message, raw = failure_parts(done)
        return tuple(
            unscorable_verdict(
                judge,
                talk.conversation_id,
                kind,
                message,
                reply=raw,
                attempts=attempts,
                prompt_tokens=a,
                completion_tokens=b,
                cost_usd=c,
            )
            for talk, a, b, c in zip(group.talks, *shares, strict=True)
        )
    sampling = sampling_details(done.replies)
    return tuple(
        scored_verdict(
            judge,
            talk,
            protocol,
            scores.scores,
            justifications=scores.justifications,
            details={**sampling, "group": len(group.talks), "place": position},
            attempts=attempts,
            prompt_tokens=a,
            completion_tokens=b,
            cost_usd=c,
        )
        for position, (talk, scores, a, b, c) in enumerate(
            zip(group.talks, done.result, *shares, strict=True), 1
        )
    )


def group_schema(spec: JudgeSpec, count: int) -> dict[str, Any]:
    """Return the JSON schema of a reply on `count` conversations: an object with the required keys
    `conversation_1`, `conversation_2` and so on, each an object of all metrics."""
    schema = schema_of(spec)
    names = [_conversation_name(number) for number in range(1, count + 1)]
    return {
        "type": "object",
        "properties": dict.fromkeys(names, schema),
        "required": names,
        "additionalProperties": False,
    }


def read_group(reply: str, spec: JudgeSpec, count: int) -> tuple[Scores, ...] | Complaint:
    """Return the scores of all `count` conversations in the order shown, or a complaint to send to
    the judge.

    A reply by the schema is an object with keys `conversation_1` and so on; a text has a line
    `Conversation 1` above each conversation's scores. Each must occur once, and is read as strictly
    as a rubric's full reply.
    """
    parts = _json_parts(reply) or _text_parts(reply)
    names = [name for name, _ in parts]
    expected = [_conversation_name(number) for number in range(1, count + 1)]
    if sorted(names) != sorted(expected):
        listed = ", ".join(names) or "none"
        return Complaint(
            f"Your reply could not be read: expected scores of {count} conversations, each once, "
            f"under {', '.join(expected)}; found {listed[:200]}. Please give all of it again."
        )
    by_name = dict(parts)
    out: list[Scores] = []
    for name in expected:
        got = read_reply(by_name[name], spec)
        if isinstance(got, Complaint):
            return Complaint(f"{name.replace('_', ' ').capitalize()}: {got.text}")
        out.append(got)
    return tuple(out)


def _conversation_name(number: int) -> str:
    return f"conversation_{number}"


def _json_parts(reply: str) -> list[tuple[str, str | JsonPairs]] | None:
    """Return (conversation, its scores) of a JSON reply; None for any other reply."""
    fence = _FENCE.match(reply)
    try:
        parsed = json.loads(fence[1] if fence else reply, object_pairs_hook=JsonPairs)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, JsonPairs) or not all(_is_scores(value) for _, value in parsed):
        return None
    return list(parsed)


def _is_scores(value: Any) -> bool:
    return isinstance(value, JsonPairs) and all(isinstance(part, JsonPairs) for _, part in value)


def _text_parts(reply: str) -> list[tuple[str, str | JsonPairs]]:
    """Return (conversation, its text) of a text reply: the lines below each `Conversation N`."""
    parts: list[tuple[str, list[str]]] = []
    for line in reply.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            parts.append((_conversation_name(int(head[1])), []))
        elif parts:
            parts[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in parts]


def _equal_shares(total: Any, count: int) -> list[Any]:
    """Return equal shares of tokens (as integers) or dollars; Nones if the total is unknown."""
    if total is None:
        return [None] * count
    if isinstance(total, int):
        return [total // count + (k < total % count) for k in range(count)]
    return [total / count] * count


def _all_unscorable(
    judge: Judge, group: ConversationGroup, kind: str, message: str, **more: Any
) -> tuple[Verdict, ...]:
    return tuple(
        unscorable_verdict(judge, talk.conversation_id, kind, message, **more)
        for talk in group.talks
    )


def groups_of(run: Run, judge: Judge, pending: PendingVerdicts) -> list[ConversationGroup]:
    """Return a group for each example with a pending conversation, in the order in which examples
    first occur in the run.

    It has all conversations on the example, scored ones too, since their scores are relative;
    failed conversations are left out. They are in the order of `prompt_order`.
    """
    talks: dict[str, list[Conversation]] = {}
    for talk in run.conversations():
        if talk.failure is None:
            talks.setdefault(talk.example_id, []).append(talk)
    groups = []
    for name, members in talks.items():
        before = [
            pending[talk.conversation_id] for talk in members if talk.conversation_id in pending
        ]
        if before:
            attempts = max((talk.attempts for talk in before if talk is not None), default=0)
            shown = prompt_order(members, judge.fingerprint)
            groups.append(ConversationGroup(shown, run.examples[name], attempts))
    return groups


class GroupUnit(Unit[ConversationGroup, tuple[Verdict, ...]]):
    """Pending groups. All conversations of a group are one job, one journal line and one write."""

    def __init__(
        self, run: Run, judge: Judge, pending: PendingVerdicts, summary: JudgeSummary
    ) -> None:
        self.file = run.verdicts_file
        self.judge, self.summary = judge, summary
        self._protocol = run.manifest.protocol
        self._groups = groups_of(run, judge, pending)
        self._keys = {group_key(judge, group) for group in self._groups}
        self._scored = self._failed = 0

    def jobs(self) -> Sequence[ConversationGroup]:
        """Return the groups with a pending conversation."""
        return self._groups

    def __len__(self) -> int:
        return len(self._groups)

    async def result(self, job: ConversationGroup) -> tuple[Verdict, ...]:
        """Return a verdict for each conversation of a group, in the order shown; see
        `score_group`."""
        return await score_group(self.judge, job, self._protocol, self.tools)

    def record(self, job: ConversationGroup, result: tuple[Verdict, ...]) -> bytes:
        """Return the verdicts of a group as JSON lines, joined by newlines, without one at the
        end."""
        return b"\n".join(verdict.model_dump_json().encode() for verdict in result)

    def failed_result(self, job: ConversationGroup, error: Exception) -> tuple[Verdict, ...]:
        """Return a failed verdict with this error for each conversation of a group."""
        return tuple(failed_verdict(self.judge, talk.conversation_id, error) for talk in job.talks)

    def owns(self, key: str) -> bool:
        """Return whether a journal key belongs to one of these groups."""
        return key.rpartition("#")[0] in self._keys

    def is_failed(self, result: tuple[Verdict, ...]) -> bool:
        """Return whether any conversation of the group got no score."""
        return any(verdict.failure is not None for verdict in result)

    def count(self, job: ConversationGroup, result: tuple[Verdict, ...]) -> None:
        """Count conversations with and without scores."""
        for verdict in result:
            self._scored += verdict.failure is None
            self._failed += verdict.failure is not None
            self.summary.count_failure(verdict.failure)

    def unreadable(self, result: tuple[Verdict, ...]) -> str | None:
        """Return a sentence on why no reply on the group could be read; None if one could, or if it
        failed for another reason."""
        return unreadable_reason(self.judge, result[0].failure)

    async def score_all(self, caller: Caller) -> Summary:
        """Score the groups and return the counts, of conversations and not of groups: how many were
        scored and how many failed."""
        jobs = await super().score_all(caller)
        return Summary(self._scored, self._failed, jobs.interrupted, jobs.stopped)

    def iter_requests(self) -> Iterator[Request]:
        """Yield (messages, function that returns the reply's JSON schema) for each group, as the
        judge's model would be sent them."""
        for group in self._groups:
            schema = partial(group_schema, self.judge.spec, len(group.talks))
            yield group_messages(self.judge, group), schema

    @classmethod
    def requests_unbuilt(
        cls, judge: Judge, manifest: RunManifest, shown: Preview
    ) -> Iterable[Request]:
        """Return an iterator of the requests on a run that is not built yet: the same (messages,
        schema function) for each group.

        A group is `manifest.samples` copies of the conversation of `shown`, the preview of the
        first one.
        """
        size = manifest.samples
        group = ConversationGroup((shown.played,) * size, shown.example)
        schema = partial(group_schema, judge.spec, size)
        return repeat((group_messages(judge, group), schema), shown.estimate.conversations // size)
