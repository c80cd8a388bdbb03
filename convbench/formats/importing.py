"""Turn a file of logged conversations and rewards into a run."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from convbench import __version__
from convbench.errors import DataError, RunError
from convbench.formats.chats import Chat, read_chat
from convbench.formats.extra import FIELDS
from convbench.formats.rows import HUB, logged_rows
from convbench.formats.shapes import chats_of, renamed
from convbench.schema import (
    Choice,
    Conversation,
    Example,
    JudgeSpec,
    Loop,
    Member,
    Metric,
    Mode,
    ProtocolSpec,
    Reward,
    RunManifest,
    Sampling,
    Speaker,
    Step,
    TaskSpec,
    Turn,
    Verdict,
    fingerprint,
    text_of,
)
from convbench.schema.protocol import Turns
from convbench.schema.run import MOST
from convbench.schema.task import Answer, Source
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error
from convbench.store.token_probs import FILE as PROBS
from convbench.store.token_probs import ProbsFile, call_key

SHOWN = 12
"""Keys of metadata that a note names."""
JUDGE = "imported"
"""Name of the judge whose verdicts are the file's rewards."""
POLICY = "imported"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Imported:
    """What was imported."""

    run: Run
    conversations: int
    rewards: int
    """Conversations with a reward."""
    examples: int
    notes: list[str] = field(default_factory=list)


def read_chats(place: str, names: Mapping[str, str] | None = None) -> tuple[list[Chat], str]:
    """Return (the conversations of a file or a set, its hash or commit). `names` maps the names
    known here to those of the rows. Raises DataError naming the line."""
    rows, digest = logged_rows(place)
    chats = []
    for where, number, row in rows:
        if not isinstance(row, dict):
            read_chat(row, where, number)  # which says what is expected
        named = renamed(row, names, where) if names else row
        chats += [read_chat(one, where, number) for one in chats_of(named, where)]
    if not chats:
        raise DataError(f"{place}: found no rows; expected one conversation a line")
    return chats, digest


def import_file(
    path: str | Path,
    target: Path,
    run_id: str,
    name: str = "imported",
    names: Mapping[str, str] | None = None,
) -> Imported:
    """Make run `target` of a file of conversations (see `formats.rows`), or of a set on the Hub;
    `run_id` is unique. Nothing is half-written. `names`: see `read_chats`.

    Rows of one `example_id` (or, without one, of one `group`; without either, with the same
    system prompt and first user message) are samples of one question. Without a `split` a row is
    in train. Raises DataError (the file) or RunError (the directory).
    """
    _refuse_taken(target)
    chats, digest = read_chats(str(path), names)
    path = Path(str(path).removeprefix(HUB))
    keys = [_key(chat) for chat in chats]
    key, samples = Counter(keys).most_common(1)[0]
    if samples > MOST:
        raise DataError(
            f"{path}: found {samples:,} conversations about {key!r:.80}; expected at most {MOST:,} "
            "about one question; give rows an example_id"
        )
    examples = _examples(path, name, chats, keys)
    conversations = _conversations(run_id, chats, keys)
    manifest = _manifest(path, name, run_id, chats, conversations, digest)
    spec = _judge()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".import-", dir=target.parent) as space:
            run = Run.create(Path(space) / "run", manifest, examples)
            run.keep_judge(fingerprint(spec), spec)
            with Appender(run.conversations_file) as file:
                for conversation in conversations:
                    file.write(conversation.model_dump_json().encode())
            probs = _write_probs(run, chats, conversations)
            rewards = _write_verdicts(run, chats, conversations, fingerprint(spec))
            run.path.replace(target)
    except OSError as error:
        _refuse_taken(target)
        raise disk_error(target, error) from None
    notes = _notes(chats, keys)
    said = sum(role == "assistant" for chat in chats for role, _ in chat.messages)
    if probs:
        notes.append(f"log-probabilities of {probs} of {said} replies are kept beside the run")
    return Imported(Run.open(target), len(chats), rewards, len(examples), notes)


def _refuse_taken(target: Path) -> None:
    """Refuse a folder that holds something, also where another import has just filled it."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target}: there is something there already; name another with --run DIR")


def _key(chat: Chat) -> str:
    """Return the id of the question a conversation belongs to."""
    if chat.example is not None:
        return chat.example
    if chat.group is not None:
        return chat.group
    first = next((text for role, text in chat.messages if role == "user"), "")
    return fingerprint(chat.system, chat.question, first)


def _examples(path: Path, name: str, chats: Sequence[Chat], keys: Sequence[str]) -> list[Example]:
    """Return one example a key; rows of it that disagree on its split or group are an error."""
    found: dict[str, tuple[Chat, Example]] = {}
    for chat, key in zip(chats, keys, strict=True):
        example = _example(name, chat, key)
        first = found.setdefault(key, (chat, example))
        for field_name in ("split", "group_id", "answer", "hidden"):
            one, other = getattr(first[1], field_name), getattr(example, field_name)
            if one != other:
                raise DataError(
                    f"{path}:{chat.line}: {field_name} {other!r:.200}, but line {first[0].line} "
                    f"has {one!r:.200} for the same question {key!r}; expected one for all its "
                    "samples"
                )
    _one_split_a_group(path, list(found.values()))
    return [example for _, example in found.values()]


def _one_split_a_group(path: Path, found: Sequence[tuple[Chat, Example]]) -> None:
    split_of: dict[str, tuple[int, str]] = {}
    for chat, example in found:
        line, split = split_of.setdefault(example.group_id, (chat.line, example.split))
        if split != example.split:
            raise DataError(
                f"{path}:{chat.line}: group {example.group_id!r} is in {example.split}, but in "
                f"{split} on line {line}; expected a group in one split"
            )


def _example(name: str, chat: Chat, key: str) -> Example:
    first = next((text for role, text in chat.messages if role == "user"), "")
    choices = tuple(
        Choice(label=label, text=text) for label, text in zip(LETTERS, chat.choices, strict=False)
    )
    return Example(
        example_id=key,
        task=name,
        split=chat.split or "train",
        group_id=chat.group or key,
        question=chat.question or first,
        choices=choices,
        answer=chat.answer,
        hidden=dict(chat.hidden),
    )


def _conversations(run_id: str, chats: Sequence[Chat], keys: Sequence[str]) -> list[Conversation]:
    samples: dict[str, int] = {}
    out = []
    for number, (chat, key) in enumerate(zip(chats, keys, strict=True)):
        sample = samples.get(key, 0)
        samples[key] = sample + 1
        turns = tuple(
            Turn(
                speaker="assistant" if role == "assistant" else "teacher",
                step="reply" if role == "assistant" else "say",
                content=text,
                finish_reason="stop" if role == "assistant" else "scripted",
                reasoning=chat.thoughts.get(place),
                rounds=chat.rounds.get(place, ()),
            )
            for place, (role, text) in enumerate(chat.messages)
        )
        out.append(
            Conversation(
                key=f"{key}/{sample}",
                conversation_id=f"{run_id}-{number:06d}",
                example_id=key,
                sample=sample,
                temperature=1.0 if chat.temperature is None else chat.temperature,
                systems={} if chat.system is None else {"assistant": chat.system},
                metadata=dict(chat.metadata),
                turns=turns,
                stop="complete",
                version=__version__,
                ended=datetime.now(UTC).isoformat(timespec="seconds"),
            )
        )
    return out


def _write_probs(run: Run, chats: Sequence[Chat], conversations: Sequence[Conversation]) -> int:
    """Write the log-probabilities that the file has; return of how many replies."""
    file = ProbsFile(run.path / PROBS)
    try:
        for chat, conversation in zip(chats, conversations, strict=True):
            for place, probs in chat.probs.items():
                text = text_of(conversation.turns[place].content)
                file.append(call_key(conversation, place), text, probs)
    finally:
        file.close()
    return sum(len(chat.probs) for chat in chats)


def _write_verdicts(
    run: Run, chats: Sequence[Chat], conversations: Sequence[Conversation], judge: str
) -> int:
    count = 0
    with Appender(run.verdicts_file) as file:
        for chat, conversation in zip(chats, conversations, strict=True):
            if chat.reward is None:
                continue
            verdict = Verdict(
                conversation_id=conversation.conversation_id,
                judge=JUDGE,
                fingerprint=judge,
                scores={**chat.scores, "overall": chat.reward},
                reward=chat.reward,
                ended=conversation.ended,
            )
            file.write(verdict.model_dump_json().encode())
            count += 1
    return count


def _judge() -> JudgeSpec:
    """The judge of imported rewards: what the file says is the reward, as it stands."""
    return JudgeSpec(
        name=JUDGE,
        title="rewards that came with imported conversations",
        kind="human",
        metrics=(Metric(name="overall", label="reward"),),
        reward=Reward(metric="overall", scale=1.0),
    )


def _manifest(
    path: Path,
    name: str,
    run_id: str,
    chats: Sequence[Chat],
    conversations: Sequence[Conversation],
    digest: str,
) -> RunManifest:
    task, protocol = _task(path, name, chats), _protocol(conversations)
    thinks = any("<thinking" in t.content for c in conversations for t in c.turns
                 if isinstance(t.content, str))  # fmt: skip
    mode: Mode = "thinking" if thinks else "standard"
    by_sample: dict[int, set[float]] = {}
    for conversation in conversations:
        by_sample.setdefault(conversation.sample, set()).add(conversation.temperature)
    regular = all(len(temperatures) == 1 for temperatures in by_sample.values())
    temperatures = tuple(min(by_sample[s]) for s in sorted(by_sample)) if regular else (1.0,)
    cast = {
        "assistant": Member(model=POLICY, sampling=Sampling()),
        "teacher": Member(model="script"),
    }
    marks = {"task": fingerprint(task), "protocol": fingerprint(protocol),
             "cast": fingerprint({who: member.model for who, member in cast.items()})}  # fmt: skip
    marks["specs"] = fingerprint(marks, digest)
    return RunManifest(
        id=run_id,
        kind="import",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        task=task,
        protocol=protocol,
        mode=mode,
        turns=protocol.turns.max,
        samples=max(by_sample) + 1,
        temperatures=temperatures,
        seed=0,
        cast=cast,
        source_revision=digest,
        fingerprints=marks,
        extra={"imported": path.name},
    )


def _task(path: Path, name: str, chats: Sequence[Chat]) -> TaskSpec:
    letters = all(chat.choices for chat in chats)
    return TaskSpec(
        name=name,
        title=f"conversations imported from {path.name}",
        source=Source(file=path.name),
        answer=Answer(kind="choice" if letters else "none"),
        protocol="imported",
        judge=JUDGE,
    )


def _protocol(conversations: Sequence[Conversation]) -> ProtocolSpec:
    most = max(sum(t.speaker == "assistant" for t in c.turns) for c in conversations)
    steps = (Step(id="say", speaker="teacher"), Step(id="reply", speaker="assistant"))
    return ProtocolSpec(
        name="imported",
        title="conversations had elsewhere, as they were logged",
        turns=Turns(default=most, min=1, max=most),
        speakers={"assistant": Speaker(policy=True), "teacher": Speaker()},
        steps=(Loop(loop=steps, times="turns"),),
    )


def _notes(chats: Sequence[Chat], keys: Sequence[str]) -> list[str]:
    notes = []
    without = sum(chat.reward is None for chat in chats)
    if without:
        notes.append(f"{without} of {len(chats)} rows have no reward; score them: convbench judge")
    if all(chat.split is None for chat in chats):
        notes.append("no row names a split, so all are in train; eval needs a test split")
    joined = sum(any(one[0] == two[0] for one, two in pairwise(chat.messages)) for chat in chats)
    if joined:
        notes.append(f"{joined} rows have messages of one role in a row; they count as one message")
    hidden = Counter(name for chat in chats for name in chat.hidden)
    if hidden:
        told = ", ".join(f"{name} ({count})" for name, count in hidden.most_common())
        notes.append(f"hidden fields, which critics and judges may see and the policy not: {told}")
    notes += _kept(chats)
    if len(set(keys)) == len(keys):
        notes.append(
            "every question has one sample; `train swift` needs several (give example_id or group)"
        )
    return notes


def _kept(chats: Sequence[Chat]) -> Iterator[str]:
    """Yield what was kept as metadata, which no command here uses."""
    keys = Counter(key for chat in chats for key in chat.metadata if key != FIELDS)
    said = Counter(key for chat in chats for item in chat.metadata.get(FIELDS, ()) for key in item)
    listed = [f"{key} ({count})" for key, count in keys.most_common()]
    listed += [f"of messages {key} ({count})" for key, count in said.most_common()]
    if listed:
        more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        yield (
            f"kept as metadata, which neither judges nor trainers see: "
            f"{', '.join(listed[:SHOWN])}{more}"
        )
