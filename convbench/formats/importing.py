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

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Literal, Protocol

from convbench import __version__
from convbench.errors import DataError
from convbench.formats import readers
from convbench.formats.columns import wire_tools
from convbench.formats.dialects import as_mapping, as_number, as_text
from convbench.formats.fold import Folded, fold, without_copies
from convbench.formats.log import IRREGULAR, Item, LeftOut, LogConversation
from convbench.schema import Choice, Conversation, Example, Failure, Verdict, fingerprint
from convbench.source import File, normal_split, open_source

PEEKED = 50
"""Values at the start of a file by which its format is recognised."""
DEEPEST = 24
"""Most levels of a value of metadata; a deeper one is stored as JSON text."""
TESTED = 0.2
"""Share of the questions that `split_by` puts into test."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SplitBy = Literal["time", "group"]


class Reader(Protocol):
    """A module of `readers`. With `whole_file = True` a record is the list of a file's values."""

    __name__: str

    def recognises(self, first: object) -> bool:
        """Return whether a value is a record of the format."""

    def read(self, record: Any, where: str) -> Iterator[Item]:
        """Yield the conversations of a record."""


@dataclass
class ImportPlan:
    """What an import is to do, beside where from and where to."""

    format: str | None = None
    """Name of a reader; without it the first that recognises the file."""
    policy: str | None = None
    """Who is learnt, where several spoke: a name, a role or a model."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Our name by the rows' own, `scores.overall` reaching into an object."""
    rewards: str | None = None
    """File of rewards by id."""
    key: str | None = None
    """Column of that id, in both."""
    split_by: SplitBy | None = None
    fail_on: str | None = None
    """Most rows that may be left out: a number, or a percentage like `5%`."""
    pii: bool = False
    """Whether addresses, phones, cards and home folders are replaced."""


@dataclass
class Seen:
    """Counts over all records, updated while they are read."""

    conversations: int = 0
    policy_turns: int = 0
    calls: int = 0
    rewards: list[float] = field(default_factory=list)
    failed: int = 0
    splits: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    """What was kept in another form, by kind."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Records without a conversation, by reason."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first place of each reason."""
    hidden: Counter[str] = field(default_factory=Counter)
    metadata: Counter[str] = field(default_factory=Counter)
    temperatures: dict[int, set[float]] = field(default_factory=dict)
    most_turns: int = 0
    with_choices: int = 0
    has_thinking: bool = False
    has_late_system: bool = False

    def leave_out(self, where: str, reason: str) -> None:
        """Count a record that is left out."""
        self.left_out[reason] += 1
        self.examples.setdefault(reason, where)

    def left_out_lines(self) -> list[str]:
        """Return a line for each reason: how many, why, and the first place."""
        return [
            f"{count} left out: {reason}; first: {self.examples[reason]}"
            for reason, count in self.left_out.most_common()
        ]


@dataclass
class Record:
    """A conversation as it is stored."""

    conversation: Conversation
    example: Example
    is_new: bool
    """Whether its question has none before it."""
    verdict: Verdict | None
    log: LogConversation


def all_readers() -> dict[str, Reader]:
    """Return the readers by name, that of any rows last."""
    names = sorted(m.name for m in pkgutil.iter_modules(readers.__path__))
    names.sort(key=lambda name: name == "rows")
    return {name: importlib.import_module(f"{readers.__name__}.{name}") for name in names}


def choose_reader(values: Iterable[Any], format: str | None) -> Reader:
    """Return the reader of this name, else the first that recognises one of the values."""
    known = all_readers()
    if format is not None:
        if format not in known:
            raise DataError(f"--format {format}: expected one of {', '.join(known)}")
        return known[format]
    values = list(values)
    for reader in known.values():
        if any(reader.recognises(value) for value in values):
            return reader
    return known["rows"]


def read_logs(files: Iterable[File], plan: ImportPlan, seen: Seen) -> Iterator[LogConversation]:
    """Yield the conversations of all files in order; what gives none is counted in `seen`."""
    files = list(files)
    for file in files:
        try:
            for item in without_copies(_read_file(file, plan, seen), seen.notes):
                if isinstance(item, LeftOut):
                    seen.leave_out(item.where, str(item))
                else:
                    item.split = item.split or file.split
                    yield item
        except DataError as error:
            if len(files) == 1:
                raise
            seen.leave_out(file.name, str(error).replace(f"{file.name}: ", ""))


def _read_file(file: File, plan: ImportPlan, seen: Seen) -> Iterator[Item]:
    rows = file.rows()
    first = list(islice(rows, PEEKED))
    reader = choose_reader([value for _, value in first], plan.format)
    if len(first) == 1 and not reader.recognises(first[0][1]):
        first = list(_inside(*first[0]))  # a list of rows, or an object that holds one
        reader = choose_reader([value for _, value in first[:PEEKED]], plan.format)
    seen.formats[reader.__name__.rpartition(".")[2]] += 1
    whole: list[Any] = []
    for where, value in chain(first, rows):
        if isinstance(value, DataError):
            yield _placed(LeftOut(str(value)), where)
        elif getattr(reader, "whole_file", False):
            whole.append(value)
        else:
            yield from (_placed(item, where) for item in _read_record(reader, value, where, plan))
    if whole:
        yield from (_placed(i, file.name) for i in _read_record(reader, whole, file.name, plan))


def _placed(item: Item, where: str) -> Item:
    item.where = where
    return item


def _inside(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rows in a file's one value: the items of a list, or of an object's longest list of
    objects; else the value."""
    rows = value
    while isinstance(rows, dict):
        lists = [v for v in rows.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        inner = [v for v in rows.values() if isinstance(v, dict)]
        if lists and not any("role" in v[0] or "from" in v[0] for v in lists):
            rows = max(lists, key=len)
        elif len(inner) == 1 and not lists:
            rows = inner[0]
        else:
            break
    if isinstance(rows, list):
        yield from ((f"{place}:{number}", row) for number, row in enumerate(rows, 1))
    else:
        yield place, value


def _read_record(reader: Reader, value: Any, where: str, plan: ImportPlan) -> Iterator[Item]:
    """Yield what a reader makes of a record. Whatever a hostile record makes it raise is counted:
    a record is data, and no shape of it is a fault of the program."""
    try:
        if plan.names and isinstance(value, dict) and reader.__name__.endswith(".rows"):
            value = _renamed(value, plan.names)
        if not getattr(reader, "whole_file", False) and not isinstance(value, dict | list):
            yield LeftOut(f"found {type(value).__name__}; expected an object")
            return
        yield from reader.read(value, where)
    except LeftOut as reason:
        yield reason
    except IRREGULAR as error:
        name = reader.__name__.rpartition(".")[2]
        yield LeftOut(f"not as {name} writes it ({type(error).__name__})")


def _renamed(row: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a row with its fields under our names. Raise LeftOut without one of them."""
    fields = dict(row)
    for ours, theirs in names.items():
        value: Any = row
        for part in theirs.split("."):
            if not isinstance(value, dict) or part not in value:
                raise LeftOut(f"--map {ours}={theirs}: found no {part!r}")
            value = value[part]
        if "." not in theirs:
            fields.pop(theirs, None)
        fields[ours] = value
    return fields


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
        for _, row in _inside(place, value):
            fields = as_mapping(row)
            numbers = [as_number(fields.get(k)) for k in ("reward", "score", "label", "value")]
            number = next((n for n in numbers if n is not None), None)
            if fields.get(plan.key) is not None and number is not None:
                found[str(fields[plan.key])] = number
    if not found:
        raise DataError(f"--rewards {plan.rewards}: found no row with {plan.key} and reward")
    return found
