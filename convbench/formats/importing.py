"""Import a file of logged conversations and rewards as a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, pairwise
from pathlib import Path

from convbench import __version__
from convbench.errors import DataError, RunError
from convbench.formats.chats import LoggedChat, LoggedDialogue, read_chat
from convbench.formats.questions import Questions, example_of
from convbench.formats.rows import HUB, Row, logged_rows
from convbench.formats.shapes import (
    FIELDS,
    MissingField,
    Unusable,
    chats_of,
    refuse_deep,
    rename_fields,
)
from convbench.schema import (
    Conversation,
    FinishReason,
    JudgeSpec,
    Loop,
    Metric,
    Mode,
    ModelConfig,
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
)
from convbench.schema.protocol import Turns
from convbench.schema.task import Answer, Source
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error
from convbench.store.scratch import make_workspace

SHOWN = 12
"""Most keys of metadata that a note names."""
JUDGE = "imported"
"""Name of the judge whose verdicts are the file's rewards."""
POLICY = "imported"
MOST_WRONG = 20
"""Most invalid rows that are reported at once."""


@dataclass(frozen=True)
class ImportResult:
    """An imported run, with its counts and notes."""

    run: Run
    conversations: int
    rewards: int
    """Number of conversations with a reward."""
    examples: int
    notes: list[str] = field(default_factory=list)


@dataclass
class ImportCounts:
    """Counts over the rows of a file, updated while they are read."""

    rows: int = 0
    rewards: int = 0
    least: float = 0.0
    most: float = 1.0
    """Ends of the scale of rewards and scores: 0 to 1, extended to include all of them."""
    with_split: int = 0
    """Rows with a split."""
    repeated_roles: int = 0
    """Rows with successive messages of one role."""
    late_system: int = 0
    """Rows with a system message after others."""
    unanswered: int = 0
    """Rows whose last message is not a reply."""
    calls_alone: int = 0
    """Rows with tool calls that no message of the assistant follows."""
    pictures: int = 0
    with_choices: int = 0
    """Rows with choices."""
    has_thinking: bool = False
    turns: int = 0
    """Largest number of replies in a row."""
    temperatures: dict[int, set[float]] = field(default_factory=dict)
    """Temperatures by sample number, at most two each."""
    hidden: Counter[str] = field(default_factory=Counter)
    metadata_keys: Counter[str] = field(default_factory=Counter)
    """Rows by key of metadata."""
    message_keys: Counter[str] = field(default_factory=Counter)
    """Messages by key that is stored in the metadata."""

    def add_chat(self, chat: LoggedChat, conversation: Conversation) -> None:
        """Add a row and its conversation to these counts."""
        dialogue = chat.dialogue
        replies = sum(role == "assistant" for role, _ in dialogue.messages)
        self.rows += 1
        if chat.reward is not None:
            self.rewards += 1
            scores = (chat.reward, *chat.scores.values())
            self.least, self.most = min(self.least, *scores), max(self.most, *scores)
        self.with_split += chat.split is not None
        self.repeated_roles += any(
            message[0] == next_message[0] for message, next_message in pairwise(dialogue.messages)
        )
        self.late_system += any(role == "system" for role, _ in dialogue.messages)
        self.unanswered += dialogue.messages[-1][0] != "assistant"
        self.calls_alone += bool(dialogue.calls_alone)
        self.pictures += dialogue.pictures
        self.with_choices += bool(chat.choices)
        self.has_thinking = self.has_thinking or any(
            "<thinking" in text for _, text in dialogue.messages
        )
        self.turns = max(self.turns, replies)
        temperatures = self.temperatures.setdefault(conversation.sample, set())
        if len(temperatures) < 2:  # only whether there are several is used
            temperatures.add(conversation.temperature)
        self.hidden.update(chat.hidden.keys())
        self.metadata_keys.update(key for key in chat.metadata if key != FIELDS)
        self.message_keys.update(key for item in chat.metadata.get(FIELDS, ()) for key in item)


def read_chats(
    rows: Iterable[Row], names: Mapping[str, str] | None = None, left_out: list[str] | None = None
) -> Iterator[LoggedChat]:
    """Yield the conversations of rows in order, up to the first invalid row; the rest is read only
    to find more invalid rows.

    `names` maps our keys to the rows' keys. Unusable rows are appended to `left_out` as `PLACE:
    REASON`; without such a list they count as invalid. Raise DataError at the end that names the
    first invalid row, with up to MOST_WRONG - 1 more as its notes; of those without a field that
    `names` names, only the first is listed.
    """
    wrong: list[DataError] = []
    count = 0
    mappings: Counter[str] = Counter()
    for row in rows:
        try:
            chats = list(_row_chats(row, names, left_out))
        except DataError as error:
            count += 1
            if isinstance(error, MissingField):
                mappings[error.mapping] += 1
                if mappings[error.mapping] > 1:
                    continue
            if len(wrong) < MOST_WRONG:
                wrong.append(error)
        else:
            if not wrong:
                yield from chats
    if wrong:
        raise _unreadable_rows(wrong, count, mappings)


def _unreadable_rows(
    wrong: Sequence[DataError], count: int, mappings: Mapping[str, int]
) -> DataError:
    """Return the error for `count` invalid rows, of which `wrong` are listed: of the rows without a
    field of `--map` the first, with their number by `mappings` if other rows are wrong too."""
    first, *more = (_with_count(error, count, mappings) for error in wrong)
    error = DataError(first if count == 1 else f"{count} rows cannot be read, the first: {first}")
    unlisted = count - len(wrong) - sum(mappings.values()) + len(mappings)
    if unlisted > 0:
        more.append(f"and {unlisted} more")
    for line in more:
        error.add_note(line)
    return error


def _with_count(error: DataError, count: int, mappings: Mapping[str, int]) -> str:
    rows = mappings[error.mapping] if isinstance(error, MissingField) else 1
    return f"{error} ({rows} rows)" if 1 < rows < count else str(error)


def _row_chats(
    numbered_row: Row, names: Mapping[str, str] | None, left_out: list[str] | None
) -> Iterator[LoggedChat]:
    where, number, row = numbered_row
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, dict):
        read_chat(row, where, number)  # raises an error that says what is expected
    refuse_deep(row, where)
    named = rename_fields(row, names, where) if names else row
    for chat in chats_of(named, where):
        try:
            yield read_chat(chat, where, number)
        except Unusable as error:
            if left_out is None:
                raise
            left_out.append(f"{where}: {error.reason}")


def import_file(
    path: str | Path,
    target: Path,
    run_id: str,
    name: str = "imported",
    names: Mapping[str, str] | None = None,
) -> ImportResult:
    """Import a file of conversations (`formats.rows`), or a dataset on the Hub, as run `target`
    with the unique id `run_id`, and return it with its counts and notes.

    Rows with one `example_id` (without it one `group`; without either the same system prompt,
    question and first user message) are samples of one question. A row without a `split` is in
    train. An error leaves nothing behind. Memory does not depend on the number of rows. Raise
    DataError (the file), HubError or RunError (the directory is not empty).
    """
    _refuse_taken(target)
    left_out: list[str] = []
    rows, digest = logged_rows(str(path), left_out)
    chats = read_chats(rows, names, left_out)
    first = next(chats, None)
    if first is None:
        reasons = f"; {_left_out_text(left_out)}" if left_out else ""
        raise DataError(f"{path}: found no rows; expected one conversation a line{reasons}")
    source = Path(str(path).removeprefix(HUB))
    seen, mark = ImportCounts(), fingerprint(_reward_judge())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            make_workspace(target.parent, ".import-") as space,
            Questions.open_database(str(source)) as questions,
        ):
            folder = space / "run"
            folder.mkdir()
            _write_records(folder, chain([first], chats), seen, questions, run_id, name, mark)
            manifest = _build_manifest(source, name, run_id, seen, questions.most_samples(), digest)
            run = Run.write_manifest(folder, manifest)
            run.store_judge(mark, _reward_judge(seen.least, seen.most))
            _read_again(run, str(path))
            question_count = len(questions)
            run.path.replace(target)
    except OSError as error:
        _refuse_taken(target)
        raise disk_error(target, error) from None
    notes = _import_notes(seen, question_count)
    if left_out:
        notes.append(f"of {len(left_out) + seen.rows} rows {_left_out_text(left_out)}")
    return ImportResult(Run.open(target), seen.rows, seen.rewards, question_count, notes)


def _read_again(run: Run, path: str) -> None:
    """Read all records that were written, so that no unreadable run is kept. Raises DataError."""
    try:
        for _ in chain(Run.open(run.path).conversations(), run.verdicts()):
            pass
    except RunError as error:
        message = str(error).replace(f"{run.path}/", "")
        raise DataError(
            f"{path}: was not imported, because it could not be read back: {message}"
        ) from None


def _left_out_text(left_out: Sequence[str]) -> str:
    """Return how many rows were left out, with the main reasons and the place of the first."""
    counts = Counter(line.rpartition(": ")[2] for line in left_out)
    listed = ", ".join(f"{count}: {reason}" for reason, count in counts.most_common(3))
    return f"{len(left_out)} left out ({listed}); the first: {left_out[0]}"


def _write_records(
    folder: Path,
    chats: Iterable[LoggedChat],
    seen: ImportCounts,
    questions: Questions,
    run_id: str,
    name: str,
    judge: str,
) -> None:
    """Write the records of every row, and update the counts and questions."""
    files = ("examples", "conversations", "verdicts")
    with ExitStack() as stack:
        examples, conversations, verdicts = (
            stack.enter_context(Appender(folder / f"{stem}.jsonl")) for stem in files
        )
        for chat in chats:
            example = example_of(name, chat)
            sample = questions.add_row(chat.line, example)
            if sample == 0:
                examples.write(example.model_dump_json().encode())
            conversation = _build_conversation(run_id, seen.rows, chat, example.example_id, sample)
            conversations.write(conversation.model_dump_json().encode())
            if chat.reward is not None:
                verdict = _build_verdict(chat, conversation, judge)
                verdicts.write(verdict.model_dump_json().encode())
            seen.add_chat(chat, conversation)


def _refuse_taken(target: Path) -> None:
    """Raise RunError if the target is not an empty folder, also after another import filled it."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target}: already exists and is not empty; choose another with --run DIR")


SPEAKERS = {
    "assistant": ("assistant", "reply"),
    "user": ("teacher", "say"),
    "system": ("system", "note"),
}
"""(speaker, step) of a logged message, by its role."""


def _dialogue_turns(dialogue: LoggedDialogue) -> Iterator[Turn]:
    for index, (role, text) in enumerate(dialogue.messages):
        speaker, step = SPEAKERS[role]
        reason: FinishReason = "stop" if role == "assistant" else "scripted"
        yield Turn(
            speaker=speaker,
            step=step,
            content=text,
            finish_reason="tool_calls" if index in dialogue.calls_alone else reason,
            reasoning=dialogue.thoughts.get(index),
            rounds=dialogue.rounds.get(index, ()),
        )


def _build_conversation(
    run_id: str, number: int, chat: LoggedChat, key: str, sample: int
) -> Conversation:
    return Conversation(
        key=f"{key}/{sample}",
        conversation_id=f"{run_id}-{number:06d}",
        example_id=key,
        sample=sample,
        temperature=1.0 if chat.temperature is None else chat.temperature,
        systems={} if chat.dialogue.system is None else {"assistant": chat.dialogue.system},
        metadata=dict(chat.metadata),
        turns=tuple(_dialogue_turns(chat.dialogue)),
        stop="complete",
        version=__version__,
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _build_verdict(chat: LoggedChat, conversation: Conversation, judge: str) -> Verdict:
    assert chat.reward is not None
    return Verdict(
        conversation_id=conversation.conversation_id,
        judge=JUDGE,
        fingerprint=judge,
        scores={**chat.scores, "overall": chat.reward},
        reward=chat.reward,
        ended=conversation.ended,
    )


def _reward_judge(least: float = 0.0, most: float = 10.0) -> JudgeSpec:
    """Return the judge of imported rewards, which takes the file's reward unchanged. Its
    fingerprint is that of the default scale, so that several logs can be trained on as one."""
    return JudgeSpec(
        name=JUDGE,
        title="rewards that came with imported conversations",
        kind="human",
        metrics=(Metric(name="overall", label="reward"),),
        lowest=least,
        highest=most,
        reward=Reward(metric="overall", scale=1.0),
    )


def _build_manifest(
    path: Path, name: str, run_id: str, seen: ImportCounts, samples: int, digest: str
) -> RunManifest:
    task, protocol = _build_task(path, name, seen), _build_protocol(seen)
    mode: Mode = "thinking" if seen.has_thinking else "standard"
    regular = all(len(values) == 1 for values in seen.temperatures.values())
    temperatures = tuple(min(seen.temperatures[s]) for s in range(samples)) if regular else (1.0,)
    cast = {
        "assistant": ModelConfig(model=POLICY, sampling=Sampling()),
        "teacher": ModelConfig(model="script"),
    }
    marks = {
        "task": fingerprint(task),
        "protocol": fingerprint(protocol),
        "cast": fingerprint({who: member.model for who, member in cast.items()}),
    }
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
        samples=samples,
        temperatures=temperatures,
        seed=0,
        cast=cast,
        source_revision=digest,
        fingerprints=marks,
        extra={"imported": path.name},
    )


def _build_task(path: Path, name: str, seen: ImportCounts) -> TaskSpec:
    letters = seen.with_choices == seen.rows
    return TaskSpec(
        name=name,
        title=f"conversations imported from {path.name}",
        source=Source(file=path.name),
        answer=Answer(kind="choice" if letters else "none"),
        protocol="imported",
        judge=JUDGE,
    )


def _build_protocol(seen: ImportCounts) -> ProtocolSpec:
    steps = [Step(id="say", speaker="teacher"), Step(id="reply", speaker="assistant")]
    speakers = {"assistant": Speaker(policy=True), "teacher": Speaker()}
    if seen.late_system:
        speakers["system"] = Speaker(role="system")
        steps.append(Step(id="note", speaker="system", say=""))
    return ProtocolSpec(
        name="imported",
        title="conversations held elsewhere, as they were logged",
        turns=Turns(default=seen.turns, min=1, max=seen.turns),
        speakers=speakers,
        steps=(Loop(loop=tuple(steps), times="turns"),),
    )


def _import_notes(seen: ImportCounts, questions: int) -> list[str]:
    notes = []
    without = seen.rows - seen.rewards
    if without:
        notes.append(
            f"{without} of {seen.rows} rows have no reward; score them: convbench judge --judge "
            "RUBRIC@MODEL (convbench init judge RUBRIC begins a rubric of yours)"
        )
    if not seen.with_split:
        notes.append("no row names a split, so all are in train; eval needs a test split")
    if seen.repeated_roles:
        notes.append(
            f"{seen.repeated_roles} rows have consecutive messages of the same role, which are "
            "merged into one"
        )
    if seen.unanswered:
        notes.append(
            f"{seen.unanswered} rows end with a message that has no reply; it is used as context "
            "only"
        )
    if seen.calls_alone:
        notes.append(
            f"{seen.calls_alone} rows have tool calls that are not followed by a message of the "
            "assistant"
        )
    if seen.late_system:
        notes.append(
            f"{seen.late_system} rows have system messages after other messages; they are used as "
            "context only"
        )
    if seen.pictures:
        notes.append(
            f"pictures: {seen.pictures}, each replaced by [image]; their content is not stored"
        )
    if seen.hidden:
        fields = ", ".join(f"{name} ({count})" for name, count in seen.hidden.most_common())
        notes.append(f"hidden fields, visible to critics and judges, not to the policy: {fields}")
    notes += _metadata_notes(seen)
    if questions == seen.rows:
        notes.append(
            "every question has one sample; `train swift` needs several (give example_id or group)"
        )
    return notes


def _metadata_notes(seen: ImportCounts) -> Iterator[str]:
    """Yield a note on the keys stored as metadata, which neither judges nor trainers see."""
    listed = [f"{key} ({count})" for key, count in seen.metadata_keys.most_common()]
    listed += [f"of messages {key} ({count})" for key, count in seen.message_keys.most_common()]
    if listed:
        more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        yield (
            f"stored as metadata, which neither judges nor trainers see: "
            f"{', '.join(listed[:SHOWN])}{more}"
        )
