"""Records of a run from logged conversations: numbered, grouped by their questions, counted."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from pydantic import BaseModel

from convbench import __version__
from convbench.errors import DataError
from convbench.formats.dialects import wire_tools
from convbench.formats.fold import fold
from convbench.formats.log import IRREGULAR, LeftOut, LogConversation
from convbench.formats.reading import ImportPlan, Seen, read_logs, rows_inside
from convbench.formats.values import (
    as_mapping,
    as_number,
    as_text,
    as_time,
    first_of,
    named_scores,
)
from convbench.schema import Choice, Conversation, Example, Failure, Turn, Verdict, fingerprint
from convbench.source import normal_split, open_source

DEEPEST = 24  # most levels of a value of metadata; what lies deeper is not stored
TESTED = 0.2  # share of the groups that `split_by` puts into test
UNNAMED = "conversations with several scores, none of them the reward; --map reward=NAME picks one"
Turns = tuple[Turn, ...]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Importer:
    """Makes records of logged conversations, numbered and grouped by their questions.

    In memory are a few hundred bytes a question: its samples, its split and a digest of what all
    its samples must agree on.
    """

    def __init__(self, plan: ImportPlan, run_id: str, name: str, judge: str) -> None:
        self.plan, self.run_id, self.name = plan, run_id, name
        self.judge = judge  # fingerprint of the judge of imported rewards
        self.ended = datetime.now(UTC).isoformat(timespec="seconds")
        self.seen = Seen()
        self.count: Counter[str] = Counter()  # conversations, policy turns, calls and the like
        self.models: Counter[str] = Counter()
        self.metadata: Counter[str] = Counter()
        self.rewards: list[float] = []
        self.samples: Counter[str] = Counter()  # conversations by question
        self.agreed: dict[str, str] = {}  # by question, a digest of its answer and hidden fields
        self.split_of: dict[str, str] = {}  # split by group
        self.sizes: Counter[str] = Counter()  # conversations by group
        self.times: dict[str, float] = {}  # by group, when it began
        self.most_turns = 0
        self.given = _rewards_by_key(plan) if plan.rewards else {}

    def records(self, source: str) -> Iterator[tuple[str, BaseModel]]:
        """Yield (file of a run, record) of a source in order; counts are complete at the end."""
        files, self.digest = open_source(source)
        for log in read_logs(files, self.plan, self.seen):
            try:
                records = self._records_of(log)
            except LeftOut as reason:
                self.seen.leave_out(log.where, str(reason))
            except IRREGULAR as error:
                self.seen.leave_out(log.where, f"cannot be stored ({type(error).__name__})")
            else:
                yield from records

    def _records_of(self, log: LogConversation) -> list[tuple[str, BaseModel]]:
        notes: Counter[str] = Counter()
        system, turns = fold(log, notes, self.plan.policy)
        example, facts = self._example(log, system, turns)
        key, group, scores = example.example_id, example.group_id, named_scores(log.rewards)
        reward = self._reward(log, scores)
        if scores and reward is None:
            log.metadata = {**log.metadata, "scores": scores}
            notes[UNNAMED] += 1
        conversation = self._conversation(log, system, turns, key)
        records: list[tuple[str, BaseModel]] = [("conversations", conversation)]
        records += [] if key in self.agreed else [("examples", example)]
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
            records.append(("verdicts", verdict))
        self.samples[key] += 1
        self.sizes[group] += 1
        self.split_of[group] = example.split
        if self.agreed.setdefault(key, facts) != facts:
            notes["conversations whose hidden fields differ from their question's"] += 1
        if (time := as_time(log.time)) is not None:
            self.times[group] = min(time, self.times.get(group, time))
        own = [turn for turn in turns if turn.speaker == "assistant"]
        self.most_turns = max(self.most_turns, len(own))
        self.count["conversations"] += 1
        self.count["policy turns"] += sum(turn.finish_reason != "scripted" for turn in own)
        self.count["calls"] += sum(len(turn.tool_calls) for turn in own)
        self.count["failed"] += log.failure is not None
        self.count["with choices"] += bool(log.choices)
        self.count["with reasoning"] += any(turn.reasoning is not None for turn in own)
        self.count["with late system"] += any(turn.speaker == "system" for turn in turns)
        models = list(dict.fromkeys(message.model for message in log.messages if message.model))
        self.models.update(models or filter(None, [as_text(log.metadata.get("model"))]))
        self.metadata.update(log.metadata.keys())
        self.seen.notes += notes + log.dropped
        return records

    def _example(self, log: LogConversation, system: str, turns: Turns) -> tuple[Example, str]:
        """Return the question of a conversation, and a digest of what its samples agree on. One
        whose question or group is in another split is left out."""
        first = next((str(turn.content) for turn in turns if turn.speaker == "teacher"), "")
        hidden = plain(log.hidden)
        facts = fingerprint(log.answer, hidden)
        key = log.task or log.group or fingerprint(system or None, log.question, first)
        if not (log.task or log.group) and self.agreed.get(key, facts) != facts:
            key = fingerprint(key, facts)  # the same words, another question
        group = log.group or key
        split = normal_split(None if self.plan.split_by else log.split) or "train"
        if self.plan.split_by == "group":
            split = "test" if int(fingerprint(group), 16) % 1000 < 1000 * TESTED else "train"
        if self.split_of.get(group, split) != split:
            raise LeftOut(f"in {split}, but its question or group is in {self.split_of[group]}")
        choices = zip(LETTERS, log.choices, strict=False)
        example = Example(
            example_id=key,
            task=self.name,
            split=split,
            group_id=group,
            question=as_text(log.question) or first,
            choices=tuple(Choice(label=letter, text=text) for letter, text in choices),
            answer=log.answer,
            hidden=hidden,
        )
        return example, facts

    def _conversation(
        self, log: LogConversation, system: str, turns: Turns, key: str
    ) -> Conversation:
        split = None if normal_split(log.split) == log.split else log.split
        named = {"id": log.id, "trial": log.trial, "parent": log.parent, "split": split}
        metadata = {k: v for k, v in named.items() if v is not None} | log.metadata
        extras = [message.extra for message in log.messages]
        metadata |= {"message_fields": extras} if any(extras) else {}
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
            metadata=plain(metadata),
            stop=None if log.failure else log.stop,
            failure=Failure.from_message("HarnessError", log.failure) if log.failure else None,
            version=__version__,
            ended=self.ended,
        )

    def _reward(self, log: LogConversation, scores: dict[str, float]) -> float | None:
        """Return the reward of a conversation: of the second file, of the policy by its name, of
        the field that `names` says, or its own; None without one."""
        marks = map(str, (log.metadata.get(self.plan.key or ""), log.id, log.task))
        given = next((self.given[mark] for mark in marks if mark in self.given), None)
        self.count["matched"] += given is not None
        asked = self.plan.names.get("reward", "").rpartition(".")[2]
        own = (scores.get(name) for name in (self.plan.policy or asked, asked, "reward"))
        return next((score for score in (given, *own) if score is not None), None)

    def finish(self, source: str) -> None:
        """Split by time if that is asked for: the groups that began last go into test. Raise
        DataError if nothing was read, no row matched the file of rewards, more was left out than
        `fail_on` allows, or a group has no time."""
        plan, lines = self.plan, "; ".join(self.seen.left_out_lines()[:3])
        if not self.count["conversations"]:
            raise DataError(f"{source}: found no conversation; {lines or 'no rows'}")
        if plan.rewards and not self.count["matched"]:
            raise DataError(f"--rewards {plan.rewards}: no id of --key {plan.key} matches")
        most = as_number((plan.fail_on or "inf").removesuffix("%"))
        if plan.fail_on and most is None:
            raise DataError(f"--fail-on {plan.fail_on}: expected a number, or a percentage like 5%")
        count = self.seen.left_out.total()
        total = count + self.count["conversations"]
        share = total / 100 if (plan.fail_on or "").endswith("%") else 1
        if most is not None and count > most * share:
            raise DataError(f"{source}: {count} of {total} rows were left out: {lines}")
        if plan.split_by == "time":
            if missing := len(self.split_of) - len(self.times):
                raise DataError(
                    f"--split-by time: {missing} of {len(self.split_of)} groups have no time; "
                    "expected timestamp, created_at or the like in each; or --split-by group"
                )
            order = sorted(self.times, key=lambda group: self.times[group])
            tested = order[len(order) - round(TESTED * len(order)) :]
            self.split_of = dict.fromkeys(order, "train") | dict.fromkeys(tested, "test")


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value that any JSON reader takes: no infinite numbers, at most DEEPEST levels."""
    if isinstance(value, dict | list) and depth >= DEEPEST:
        return "[too deep]"
    if isinstance(value, dict):
        return {str(k): plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def _rewards_by_key(plan: ImportPlan) -> dict[str, float]:
    """Return the rewards of the second file by its key, the mean of several of a key. Where scores
    exceed 1 a negative one says that a reply could not be scored."""
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
    least = 0.0 if max(map(max, found.values())) > 1 else float("-inf")
    scored = {key: [n for n in numbers if n >= least] for key, numbers in found.items()}
    return {key: fmean(numbers) for key, numbers in scored.items() if numbers}
