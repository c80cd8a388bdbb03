"""Import logs of conversations as a run.

    files = open_source("logs/")                   every file, its rows one after another
    reader = the first of `readers` that recognises a row
    reader.read(row)      -> LogConversation       as the source had it
    fold(log)             -> turns                 paired, joined, counted
    Conversation, Example, Verdict(judge="imported") are appended; the manifest comes last

What is irregular is kept as far as it can be. What cannot be is left out and counted by its reason,
with one example; a file is refused only if nothing in it can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from convbench import __version__
from convbench.errors import DataError
from convbench.formats.columns import wire_tools
from convbench.formats.dialects import as_mapping, as_number, as_text
from convbench.formats.fold import Folded, fold
from convbench.formats.log import IRREGULAR, LeftOut, LogConversation
from convbench.formats.reading import ImportPlan, Seen, read_logs, rows_inside
from convbench.schema import Choice, Conversation, Example, Failure, Verdict, fingerprint
from convbench.source import normal_split, open_source

DEEPEST = 24
"""Most levels of a value of metadata; what lies deeper is not stored."""
TESTED = 0.2
"""Share of the groups that `split_by` puts into test."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass
class Record:
    """A conversation as it is stored."""

    conversation: Conversation
    example: Example
    is_new: bool
    """Whether its question has none before it."""
    verdict: Verdict | None
    log: LogConversation


class Importer:
    """Makes records of logged conversations, numbered and grouped by their questions.

    In memory are a few hundred bytes a question: its samples, its split and a digest of what all
    its samples must agree on.
    """

    def __init__(self, plan: ImportPlan, run_id: str, name: str, judge: str, ended: str) -> None:
        self.plan, self.run_id, self.name = plan, run_id, name
        self.judge, self.ended = judge, ended
        self.seen = Seen()
        self.samples: Counter[str] = Counter()
        self.splits: dict[str, str] = {}
        """Split by group."""
        self.agreed: dict[str, str] = {}
        """By question, a digest of its answer and hidden fields."""
        self.times: dict[str, float] = {}
        """By group, when it began."""
        self.given = _rewards_by_key(plan) if plan.rewards else {}
        self.matched = 0

    def records(self, source: str) -> Iterator[Record]:
        """Yield the records of a source in order; counts are complete at the end."""
        files, self.digest = open_source(source)
        for log in read_logs(files, self.plan, self.seen):
            try:
                yield self._record(log)
            except LeftOut as reason:
                self.seen.leave_out(log.where, str(reason))
            except IRREGULAR as error:
                self.seen.leave_out(log.where, f"cannot be stored ({type(error).__name__})")

    def _record(self, log: LogConversation) -> Record:
        notes: Counter[str] = Counter()
        if self.plan.policy and not _spoke(log, self.plan.policy):
            raise LeftOut(f"no message of {self.plan.policy}")
        for name in ("id", "task", "group", "split", "parent"):
            value = getattr(log, name)
            setattr(log, name, None if value is None else as_text(value))
        folded = fold(log, notes, self.plan.policy)
        example, facts = self._example(log, folded)
        is_new = example.example_id not in self.agreed
        sample = self.samples[example.example_id]
        conversation = self._conversation(log, folded, example.example_id, sample)
        if self.plan.rewards:
            self._give_reward(log)
        asked = self.plan.names.get("reward", "").rpartition(".")[2]
        if asked in log.rewards and "reward" not in log.rewards:
            log.rewards["reward"] = log.rewards[asked]
        reward = log.rewards.get(self.plan.policy or "", log.rewards.get("reward"))
        verdict = None
        if reward is not None and log.failure is None:
            scores = {k: v for k, v in log.rewards.items() if k != "reward"} | {"overall": reward}
            verdict = Verdict(
                conversation_id=conversation.conversation_id,
                judge="imported",
                fingerprint=self.judge,
                scores=scores,
                reward=reward,
                ended=self.ended,
            )
            self.seen.rewards.append(reward)
        self.samples[example.example_id] += 1
        self.splits[example.group_id] = example.split
        if self.agreed.setdefault(example.example_id, facts) != facts:
            self.seen.notes["conversations whose hidden fields differ from their question's"] += 1
        if log.time is not None:
            self.times[example.group_id] = min(log.time, self.times.get(example.group_id, log.time))
        self._count(log, folded, example, sample)
        self.seen.notes += notes + log.dropped
        return Record(conversation, example, is_new, verdict, log)

    def _example(self, log: LogConversation, folded: Folded) -> tuple[Example, str]:
        """Return the question of a conversation, and a digest of what its samples agree on. One
        whose question or group is in another split is left out."""
        first = next((str(t.content) for t in folded.turns if t.speaker == "teacher"), "")
        facts = fingerprint(log.answer, _plain(log.hidden))
        key = log.task or log.group or fingerprint(folded.system, log.question, first)
        if not (log.task or log.group) and self.agreed.get(key, facts) != facts:
            key = fingerprint(key, facts)  # the same words, another question
        group = log.group or key
        split = normal_split(log.split) or "train"
        if self.plan.split_by == "group":
            split = "test" if int(fingerprint(group), 16) % 1000 < 1000 * TESTED else "train"
        if self.splits.get(group, split) != split:
            raise LeftOut(f"in {split}, but its question or group is in {self.splits[group]}")
        choices = zip(LETTERS, log.choices, strict=False)
        example = Example(
            example_id=key,
            task=self.name,
            split=split,
            group_id=group,
            question=log.question or first,
            choices=tuple(Choice(label=letter, text=text) for letter, text in choices),
            answer=log.answer,
            hidden=_plain(log.hidden),
        )
        return example, facts

    def _conversation(
        self, log: LogConversation, folded: Folded, key: str, sample: int
    ) -> Conversation:
        metadata = dict(log.metadata)
        extras = [message.extra for message in log.messages]
        if any(extras):
            metadata["message_fields"] = extras
        named = {"id": log.id, "trial": log.trial, "parent": log.parent, "split": log.split}
        kept = {k: v for k, v in named.items() if v is not None and k not in metadata}
        if normal_split(log.split) == log.split:
            kept.pop("split", None)
        return Conversation(
            key=f"{key}/{sample}",
            conversation_id=f"{self.run_id}-{self.seen.conversations:06d}",
            example_id=key,
            sample=sample,
            temperature=1.0 if log.temperature is None else max(0.0, log.temperature),
            systems={"assistant": folded.system} if folded.system else {},
            turns=folded.turns,
            tools=tuple(wire_tools(log.tools)),
            metadata=_plain(metadata | kept),
            stop=None if log.failure else log.stop,
            failure=Failure.from_message("HarnessError", log.failure) if log.failure else None,
            version=__version__,
            ended=self.ended,
        )

    def _give_reward(self, log: LogConversation) -> None:
        """Add the reward that the second file has for a conversation."""
        mine = (log.metadata.get(self.plan.key or ""), log.id, log.task)
        found = next((self.given[str(v)] for v in mine if str(v) in self.given), None)
        if found is not None:
            log.rewards = {**log.rewards, "reward": found}
            self.matched += 1

    def _count(self, log: LogConversation, folded: Folded, example: Example, sample: int) -> None:
        seen = self.seen
        own = [turn for turn in folded.turns if turn.speaker == "assistant"]
        seen.conversations += 1
        seen.policy_turns += sum(turn.finish_reason != "scripted" for turn in own)
        seen.calls += sum(len(turn.tool_calls) for turn in own)
        seen.failed += log.failure is not None
        seen.splits[example.split] += 1
        models = {m.model for m in log.messages if m.model} or {as_text(log.metadata.get("model"))}
        seen.models.update(model for model in models if model)
        seen.most_turns = max(seen.most_turns, len(own))
        seen.with_choices += bool(log.choices)
        seen.has_thinking |= any(turn.reasoning is not None for turn in own)
        seen.has_late_system |= any(turn.speaker == "system" for turn in folded.turns)
        seen.hidden.update(log.hidden.keys())
        seen.metadata.update(log.metadata.keys())
        known = seen.temperatures.setdefault(sample, set())
        if len(known) < 2:
            known.add(1.0 if log.temperature is None else max(0.0, log.temperature))

    def latest_groups(self) -> set[str]:
        """Return the groups that began last, which `split_by` time puts into test. Raise DataError
        if one has no time."""
        missing = len(self.splits) - len(self.times)
        if missing:
            raise DataError(
                f"--split-by time: {missing} of {len(self.splits)} groups have no time; expected "
                "timestamp, created_at or the like in each; or --split-by group"
            )
        order = sorted(self.times, key=lambda group: self.times[group])
        return set(order[len(order) - round(TESTED * len(order)) :])

    def check(self, source: str) -> None:
        """Raise DataError if nothing was read, no row matched the file of rewards, or more was left
        out than `fail_on` allows."""
        seen, lines = self.seen, self.seen.left_out_lines()
        count = sum(seen.left_out.values())
        if not seen.conversations:
            raise DataError(f"{source}: found no conversation; {'; '.join(lines[:3]) or 'no rows'}")
        if self.plan.rewards and not self.matched:
            raise DataError(
                f"--rewards {self.plan.rewards}: no id of --key {self.plan.key} matches"
            )
        most = self.plan.fail_on
        if most is None:
            return
        number = as_number(most.removesuffix("%"))
        if number is None:
            raise DataError(f"--fail-on {most}: expected a number, or a percentage like 5%")
        total = count + seen.conversations
        if count > (number / 100 * total if most.endswith("%") else number):
            raise DataError(
                f"{source}: {count} of {total} rows were left out: {'; '.join(lines[:3])}"
            )


def _spoke(log: LogConversation, policy: str) -> bool:
    return policy == "assistant" or any(policy in (m.name, m.model, m.role) for m in log.messages)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value that any JSON reader takes: no infinite numbers, at most DEEPEST levels."""
    if isinstance(value, dict | list) and depth >= DEEPEST:
        return "[too deep]"
    if isinstance(value, dict):
        return {str(k): _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def _rewards_by_key(plan: ImportPlan) -> dict[str, float]:
    """Return the rewards of the second file by its key."""
    if plan.key is None:
        raise DataError(f"--rewards {plan.rewards}: name the column of the id: --key NAME")
    found: dict[str, float] = {}
    files, _ = open_source(str(plan.rewards))
    for place, value in (row for file in files for row in file.rows()):
        for _, row in rows_inside(place, value):
            fields = as_mapping(row)
            numbers = [as_number(fields.get(k)) for k in ("reward", "score", "label", "value")]
            number = next((n for n in numbers if n is not None), None)
            if fields.get(plan.key) is not None and number is not None:
                found[str(fields[plan.key])] = number
    if not found:
        raise DataError(f"--rewards {plan.rewards}: found no row with {plan.key} and reward")
    return found
