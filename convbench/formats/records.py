"""Records of a run from logged conversations: numbered, grouped by their questions, counted."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import fmean
from string import ascii_uppercase
from typing import Any

import orjson

from convbench import __version__
from convbench.errors import DataError
from convbench.formats.dialects import wire_tools
from convbench.formats.fold import fold
from convbench.formats.log import Item, LeftOut, LogConversation, each
from convbench.formats.reading import ImportPlan, read_logs, rows_inside
from convbench.formats.values import as_mapping, as_number, as_text, as_time, first_of, named_scores
from convbench.schema import Choice, Conversation, Example, Failure, Turn, Verdict, fingerprint
from convbench.source import normal_split, open_source
from convbench.store.shape import exceeds_depth

DEEPEST = 60  # most levels of a value of metadata; a deeper one is not stored
TESTED = 0.2  # share of the groups that `split_by` puts into test
REASONS = 8  # most reasons for leaving out that are told
Record = Conversation | Verdict | Example
FILES = {Conversation: "conversations.jsonl", Verdict: "verdicts.jsonl", Example: "examples.jsonl"}


class Importer:
    """Makes records of logged conversations. Held are the questions, each some 1.5 kilobytes."""

    def __init__(self, plan: ImportPlan, run_id: str, name: str, judge: str) -> None:
        self.plan, self.run_id, self.name = plan, run_id, name
        self.judge = judge  # fingerprint of the judge of imported rewards
        self.ended = datetime.now(UTC).isoformat(timespec="seconds")
        self.formats: Counter[str] = Counter()  # files
        self.notes: Counter[str] = Counter()  # what was kept in another form, by kind
        self.left_out: Counter[str] = Counter()  # records without a conversation, by reason
        self.first_place: dict[str, str] = {}  # by the same reason
        self.count: Counter[str] = Counter()  # conversations, policy turns, calls and the like
        self.models: Counter[str] = Counter()
        self.metadata: Counter[str] = Counter()
        self.rewards: list[float] = []
        self.examples: dict[str, Example] = {}  # the questions, complete at the end
        self.samples: Counter[str] = Counter()  # conversations by question
        self.split_of: dict[str, str] = {}  # by group
        self.times: dict[str, float] = {}  # by group, when it began
        self.most_turns = 0
        self.given = _rewards_by_key(plan) if plan.rewards else {}

    def records(self, source: str) -> Iterator[Record]:
        """Yield the conversations and rewards of a source in order, then the questions; counts are
        complete at the end. Raise DataError if nothing was read, no row matched the file of
        rewards, more was left out than `fail_on` allows, or a group has no time to split by."""
        files, self.digest = open_source(source)
        for made in each(read_logs(files, self.plan, self.formats, self.notes), self._records_of):
            if isinstance(made, LeftOut):
                self.left_out[str(made)] += 1
                self.first_place.setdefault(str(made), made.where)
            else:
                yield made
        self._check(source)
        if self.plan.split_by == "time":
            self._split_by_time()
        yield from self.examples.values()

    def left_out_lines(self) -> list[str]:
        """Return a line for each reason: how many records, why, and the first place."""
        listed = self.left_out.most_common(REASONS)
        lines = [f"{n} left out: {why}; first: {self.first_place[why]}" for why, n in listed]
        more = self.left_out.total() - sum(count for _, count in listed)
        return lines + ([f"{more} left out for other reasons"] if more else [])

    def _records_of(self, log: Item) -> list[Record]:
        if isinstance(log, LeftOut):
            raise log
        notes: Counter[str] = Counter(log.dropped)
        system, turns = fold(log, notes, self.plan.policy)
        example, scores = self._example(log, system, turns), named_scores(log.rewards)
        key, group, reward = example.example_id, example.group_id, self._reward(log, scores)
        if scores and reward is None:
            log.metadata = {**log.metadata, "scores": scores}
            notes["conversations with several scores, no reward; --map reward=NAME picks it"] += 1
        conversation = self._conversation(log, system, turns, key)
        records: list[Record] = [conversation]
        if reward is not None and log.failure is None:
            self.rewards.append(reward)
            verdict = Verdict(
                conversation_id=conversation.conversation_id,
                judge="imported",
                fingerprint=self.judge,
                scores={k: v for k, v in scores.items() if k != "reward"} | {"overall": reward},
                reward=reward,
                ended=self.ended,
            )
            records.append(verdict)
        self.samples[key] += 1
        self.split_of[group] = example.split
        known = self.examples.setdefault(key, example)
        if (known.answer, known.hidden) != (example.answer, example.hidden):
            notes["conversations whose hidden fields differ from their question's"] += 1
        if (time := as_time(log.time)) is not None:
            self.times[group] = min(time, self.times.get(group, time))
        own = [turn for turn in turns if turn.speaker == "assistant"]
        self.most_turns = max(self.most_turns, len(own))
        self.count["conversations"] += 1
        self.count["policy turns"] += sum(turn.finish_reason != "scripted" for turn in own)
        self.count["calls"] += sum(len(turn.tool_calls) for turn in own)
        self.count["failed"] += log.failure is not None
        self.count["with reasoning"] += any(turn.reasoning is not None for turn in own)
        self.count["with late system"] += any(turn.speaker == "system" for turn in turns)
        self.models.update(list(dict.fromkeys(m.model for m in log.messages if m.model)))
        self.metadata.update(log.metadata.keys())
        self.notes += notes
        return records

    def _example(self, log: LogConversation, system: str, turns: tuple[Turn, ...]) -> Example:
        """Return the question of a conversation. One whose question or group is in another split is
        left out."""
        first = next((str(turn.content) for turn in turns if turn.speaker == "teacher"), "")
        log.hidden = _plain(log.hidden)
        key = log.task or log.group or fingerprint(system or None, log.question, first)
        known = None if log.task or log.group else self.examples.get(key)
        if known and (known.answer, known.hidden) != (log.answer, log.hidden):
            key = fingerprint(key, fingerprint(log.answer, log.hidden))  # the same words, another
        group = log.group or key
        split = normal_split(None if self.plan.split_by else log.split) or "train"
        if self.plan.split_by == "group":
            split = "test" if int(fingerprint(group), 16) % 1000 < 1000 * TESTED else "train"
        if self.split_of.get(group, split) != split:
            raise LeftOut(f"in {split}, but its question or group is in {self.split_of[group]}")
        choices = zip(ascii_uppercase, log.choices, strict=False)
        return Example(
            example_id=key,
            task=self.name,
            split=split,
            group_id=group,
            question=as_text(log.question) or first,
            choices=tuple(Choice(label=letter, text=text) for letter, text in choices),
            answer=log.answer,
            hidden=log.hidden,
        )

    def _conversation(
        self, log: LogConversation, system: str, turns: tuple[Turn, ...], key: str
    ) -> Conversation:
        split = None if normal_split(log.split) == log.split else log.split
        named = {"id": log.id, "trial": log.trial, "parent": log.parent, "split": split}
        extras = [message.extra for message in log.messages]
        metadata = {k: v for k, v in named.items() if v is not None} | log.metadata
        temperature = as_number(log.temperature)
        return Conversation(
            key=f"{key}/{self.samples[key]}",
            conversation_id=f"{self.run_id}-{self.count['conversations']:06d}",
            example_id=key,
            sample=self.samples[key],
            temperature=1.0 if temperature is None else max(0.0, temperature),
            systems={"assistant": system} if system else {},
            turns=turns,
            tools=tuple(wire_tools(log.tools)),
            metadata=_plain(metadata | ({"message_fields": extras} if any(extras) else {})),
            stop=None if log.failure else log.stop,
            failure=Failure.from_message("HarnessError", log.failure) if log.failure else None,
            version=__version__,
            ended=self.ended,
        )

    def _reward(self, log: LogConversation, scores: dict[str, float]) -> float | None:
        if self.plan.rewards:
            marks = map(str, (log.metadata.get(self.plan.key or ""), log.id, log.task))
            return next((self.given[mark] for mark in marks if mark in self.given), None)
        asked = self.plan.names.get("reward", "").rpartition(".")[2]
        own = (scores.get(name) for name in (self.plan.policy or asked, asked, "reward"))
        return next((score for score in own if score is not None), None)

    def _check(self, source: str) -> None:
        plan, lines = self.plan, "; ".join(self.left_out_lines()[:3])
        if not self.examples:
            raise DataError(f"{source}: found no conversation; {lines or 'no rows'}")
        if plan.rewards and not self.rewards:
            raise DataError(f"--rewards {plan.rewards}: no id of --key {plan.key} matches")
        if plan.fail_on:
            most = as_number(plan.fail_on.removesuffix("%"))
            if most is None:
                raise DataError(f"--fail-on {plan.fail_on}: expected a number, or one like 5%")
            count = self.left_out.total()
            total = count + self.count["conversations"]
            if count > (most * total / 100 if plan.fail_on.endswith("%") else most):
                raise DataError(f"{source}: {count} of {total} rows were left out: {lines}")

    def _split_by_time(self) -> None:
        if missing := len(self.split_of) - len(self.times):
            raise DataError(
                f"--split-by time: {missing} of {len(self.split_of)} groups have no time; "
                "expected timestamp, created_at or the like in each; or --split-by group"
            )
        order = sorted(self.times, key=lambda group: self.times[group])
        tested = set(order[len(order) - round(TESTED * len(order)) :])
        for key, example in self.examples.items():
            split = "test" if example.group_id in tested else "train"
            self.examples[key] = example.model_copy(update={"split": split})


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    # As any JSON reader takes it: no infinite number, nothing too deep.
    shown = {k: "[too deep]" if exceeds_depth(v, DEEPEST) else v for k, v in fields.items()}
    return as_mapping(orjson.loads(orjson.dumps(shown, None, orjson.OPT_NON_STR_KEYS)))


def _rewards_by_key(plan: ImportPlan) -> dict[str, float]:
    if plan.key is None:
        raise DataError(f"--rewards {plan.rewards}: name the column of the id: --key NAME")
    found: dict[str, list[float]] = defaultdict(list)
    files, _ = open_source(str(plan.rewards))
    for place, value in (row for file in files for row in file.rows()):
        for fields in (as_mapping(row) for _, row in rows_inside(place, value)):
            number = as_number(first_of(fields, "reward", "score", "label", "value"))
            if fields.get(plan.key) is not None and number is not None:
                found[str(fields[plan.key])].append(number)
    if not found:
        raise DataError(f"--rewards {plan.rewards}: found no row with {plan.key} and reward")
    # where scores exceed 1, a negative one says that a reply could not be scored
    least = 0.0 if max(map(max, found.values())) > 1 else float("-inf")
    scored = {key: [n for n in numbers if n >= least] for key, numbers in found.items()}
    return {key: fmean(numbers) for key, numbers in scored.items() if numbers}
