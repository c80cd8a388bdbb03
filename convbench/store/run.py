"""A run: the directory of one build, import or evaluation, with its files and records.

`run.json` in it holds the `schema.run.RunManifest`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from convbench.errors import RunError
from convbench.schema import Conversation, Example, JudgeSpec, RunManifest, Verdict
from convbench.schema.task import SPLITS, Split
from convbench.store import index
from convbench.store.byte_offsets import RecordReader, size_of
from convbench.store.examples import read_examples
from convbench.store.index import ConversationRow, Index, VerdictRow
from convbench.store.jsonl import (
    Appender,
    disk_error,
    lines_with_offsets,
    read_records,
    write_atomic,
)
from convbench.store.keys import AttemptCounts, Hashes, read_key_fields, superseded_ordinals
from convbench.store.locks import folder_lock, shared_folder_lock
from convbench.store.run_format import parse_manifest
from convbench.store.shape import (
    Record,
    assert_single_keys,
    parse_record,
    read_bytes,
    read_model,
)


class StoredConversation(NamedTuple):
    """A conversation with its record: file, byte offset and line."""

    path: Path
    start: int
    """Byte offset of the line in the file."""
    line: bytes
    conversation: Conversation


class QuestionSplit(NamedTuple):
    """Split and group of a question."""

    split: Split
    group_id: str


class Run:
    """A run directory. `run.json` is written once; records are appended."""

    def __init__(self, path: Path, manifest: RunManifest) -> None:
        self.path = path
        self.manifest = manifest
        self._attempts: tuple[int, AttemptCounts] | None = None
        """Bytes of the conversations when they were counted, and the counts."""
        self._records: dict[Path, RecordReader[Conversation]] = {}
        self._verdicts: dict[Path, RecordReader[Verdict]] = {}

    @classmethod
    def create(cls, path: Path, manifest: RunManifest, examples: Iterable[Example]) -> Run:
        """Create a run of these questions and return it; missing folders are made.

        `run.json` is written last, so that a directory with one is complete; questions left by a
        killed process are replaced. Raises RunError if the directory holds a run or cannot be
        written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(path, error) from None
        with cls(path, manifest).lock():
            if (path / "run.json").exists():
                raise RunError(f"{path}: already holds a run; expected an empty directory")
            # from a process killed before run.json
            (path / "examples.jsonl").unlink(missing_ok=True)
            with Appender(path / "examples.jsonl") as file:
                for example in examples:
                    file.write(example.model_dump_json().encode())
            return cls.write_manifest(path, manifest)

    @classmethod
    def write_manifest(cls, path: Path, manifest: RunManifest) -> Run:
        """Write `run.json` into an existing folder, in place of an earlier one, and return its run.

        Raises RunError if it cannot be written.
        """
        write_atomic(path / "run.json", manifest.model_dump_json(indent=1).encode() + b"\n")
        return cls(path, manifest)

    @classmethod
    def open(cls, path: Path) -> Run:
        """Return the run in a directory.

        Raises RunError if it holds none, a damaged one, or one of a newer format.
        """
        if not (path / "run.json").exists():
            raise RunError(
                f"{path}: found no run.json; expected a run directory (see: convbench list runs)"
            )
        file = path / "run.json"
        return cls(path, parse_manifest(str(file), read_bytes(file)))

    @property
    def examples_file(self) -> Path:
        """Return the path of the file of questions, `examples.jsonl`."""
        return self.path / "examples.jsonl"

    @property
    def conversations_file(self) -> Path:
        """Return the path of `conversations.jsonl`: one record for each attempt that ended."""
        return self.path / "conversations.jsonl"

    @property
    def verdicts_file(self) -> Path:
        """Return the path of `verdicts.jsonl`."""
        return self.path / "verdicts.jsonl"

    @property
    def calls_file(self) -> Path:
        """Return the path of the journal of finished model calls, `calls.jsonl`."""
        return self.path / "calls.jsonl"

    @property
    def media_folder(self) -> Path:
        """Return the folder `media` of the images that turns refer to; for a shard that of the
        whole run."""
        return self.path / "media"

    @property
    def checkpoints_folder(self) -> Path:
        """Return the folder `checkpoints`, with those trained on this run. It need not exist."""
        return self.path / "checkpoints"

    @property
    def evals_folder(self) -> Path:
        """Return the folder `evals` of child runs, which are evaluations. It need not exist."""
        return self.path / "evals"

    @property
    def reports_folder(self) -> Path:
        """Return the folder `reports`. It need not exist."""
        return self.path / "reports"

    def child_runs(self) -> list[Run]:
        """Return the runs directly in `evals`, sorted by folder name; empty if there is none.

        Folders without `run.json` are skipped. Raises RunError for a damaged one.
        """
        if not self.evals_folder.is_dir():
            return []
        paths = sorted(path for path in self.evals_folder.iterdir() if (path / "run.json").exists())
        return [Run.open(path) for path in paths]

    @cached_property
    def examples(self) -> Mapping[str, Example]:
        """Return the questions by example_id, read once; those of a file of more than 8 MiB when
        looked up.

        Raises RunError for a damaged line and for an id that occurs twice.
        """
        return read_examples(self.examples_file)

    def conversations(self) -> Iterator[Conversation]:
        """Yield the newest conversation of every key, failed ones too, in the order of the files.

        Raises RunError for a damaged line, for a conversation about no question of the run, and,
        after the last one, for an id that two of them have.
        """
        return (stored.conversation for stored in self.iter_stored())

    def iter_stored(self) -> Iterator[StoredConversation]:
        """Yield the same conversations as `conversations`, each with its record."""
        files = [self.path / "conversations.jsonl"]
        ids, examples = Hashes(), self.examples
        for path, number, start, line, conversation in _newest_records(
            files, Conversation, ("key",)
        ):
            if conversation.example_id not in examples:
                raise RunError(
                    f"{path}:{number}: example_id: found {conversation.example_id!r:.80}, which "
                    "is not in "
                    "examples.jsonl"
                )
            ids.add(conversation.conversation_id)
            yield StoredConversation(path, start, line, conversation)
        if repeated := ids.find_repeated():
            _refuse_duplicate_ids(files, repeated)

    def conversation_rows(self) -> Iterator[ConversationRow]:
        """Yield the index row of the newest conversation of every key, in the order of the files.

        Failed ones are included. Texts are not read. Raises RunError for a damaged line.
        """
        return Index(index.CONVERSATIONS, [self.path / "conversations.jsonl"]).newest_rows()

    def joined_rows(self) -> Iterator[tuple[ConversationRow, QuestionSplit]]:
        """Yield (index row, split and group of its question) of the newest conversation of every
        key.

        They come in the order of the files, failed ones included. Raises RunError as
        `conversations` does.
        """
        return self._join_questions(self.conversation_rows(), self.questions)

    def _join_questions(
        self, rows: Iterator[ConversationRow], questions: Mapping[str, QuestionSplit]
    ) -> Iterator[tuple[ConversationRow, QuestionSplit]]:
        ids = Hashes()
        for row in rows:
            ids.add(row.conversation_id)
            if row.example_id not in questions:
                self._walk_conversations()
                raise RunError(
                    f"{row.path}: byte {row.start}: "
                    "the question of this conversation is not in examples.jsonl"
                )
            yield row, questions[row.example_id]
        if ids.find_repeated():
            self._walk_conversations()

    @cached_property
    def questions(self) -> Mapping[str, QuestionSplit]:
        """Return the split and group of every question by example_id, read once from the index.

        Raises RunError for a damaged line and for an id that occurs twice.
        """
        questions: dict[str, QuestionSplit] = {}
        splits = {name: name for name in SPLITS}
        rows = Index(index.EXAMPLES, [self.examples_file]).all_rows()
        for count, row in enumerate(rows, 1):
            group = row.example_id if row.group_id == row.example_id else row.group_id
            questions[row.example_id] = QuestionSplit(splits[row.split], group)
            if len(questions) < count:
                len(self.examples)  # raises naming the line of the second one
        return questions

    def _walk_conversations(self) -> None:
        """Read all conversations, so that an error is raised with its line number."""
        for _ in self.iter_stored():
            pass

    def read_conversation(self, path: Path, start: int, length: int) -> Conversation:
        """Return the conversation at a byte offset of a file, as its index row gives file, offset
        and length.

        Raises RunError for a damaged record.
        """
        if path not in self._records:
            self._records[path] = RecordReader(path, Conversation)
        try:
            return self._records[path].read_record(start, length)
        except RunError:
            self._walk_conversations()
            raise

    def read_verdict(self, row: VerdictRow) -> Verdict:
        """Return the verdict of an index row. Raises RunError for a damaged record."""
        if row.path not in self._verdicts:
            self._verdicts[row.path] = RecordReader(row.path, Verdict)
        return self._verdicts[row.path].read_record(row.start, row.length)

    def judge_fingerprints(self) -> dict[tuple[str, str], None]:
        """Return the (judge, fingerprint) pairs of the newest verdicts as the keys of a dict, with
        None as values.

        They are in the order of first occurrence; failed verdicts count too.
        """
        return dict.fromkeys((row.judge, row.fingerprint) for row in self.verdict_rows())

    def verdict_rows(self) -> Iterator[VerdictRow]:
        """Yield the index row of the newest verdict of every (conversation, judge), failures
        included.

        They come in the order of the files, without justifications. Raises RunError for a damaged
        line.
        """
        return Index(index.VERDICTS, [self.path / "verdicts.jsonl"]).newest_rows()

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the newest verdict of every (conversation, judge), failures included, in the order
        of the files.

        Raises RunError for a damaged line.
        """
        files = [self.path / "verdicts.jsonl"]
        return (
            verdict for *_, verdict in _newest_records(files, Verdict, ("conversation_id", "judge"))
        )

    def has_completed(self) -> bool:
        """Return True if any recorded attempt at a conversation completed; reading stops at the
        first one."""
        all_records = chain.from_iterable(
            read_records(file, "key") for file in [self.path / "conversations.jsonl"]
        )
        return any(record.get("failure") is None for record in all_records)

    def attempts(self) -> AttemptCounts:
        """Return the counts of attempts by key: `get(key)` gives (number of attempts, whether the
        newest succeeded).

        The files are counted again only if their size has changed. Raises RunError for a damaged
        line.
        """
        files = [self.path / "conversations.jsonl"]
        size = sum(map(size_of, files))
        if self._attempts is None or self._attempts[0] != size:
            all_records = chain.from_iterable(read_records(file, "key") for file in files)
            tried = ((record["key"], record.get("failure") is None) for record in all_records)
            self._attempts = size, AttemptCounts(tried)
        return self._attempts[1]

    def judge_specs(self) -> dict[str, JudgeSpec]:
        """Return the resolved specs in the run's folder `judges` by fingerprint, sorted by it;
        empty if none.

        Raises RunError for a damaged file.
        """
        specs = {}
        for path in sorted((self.path / "judges").glob("*.json")):
            specs[path.stem] = read_model(path, JudgeSpec)
        return specs

    def reviewer_fingerprints(self) -> frozenset[str]:
        """Return the fingerprints of the judges that review the simulated human, empty if none.

        Their verdicts are neither scores of the policy nor rewards.
        """
        specs = self.judge_specs().items()
        return frozenset(mark for mark, spec in specs if not spec.scores_policy)

    def store_judge(self, fingerprint: str, spec: JudgeSpec) -> None:
        """Write the resolved spec of a judge to `judges/FINGERPRINT.json`, unless that file
        exists."""
        path = self.path / "judges" / f"{fingerprint}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, spec.model_dump_json(indent=1).encode() + b"\n")

    def lock(self) -> AbstractContextManager[int]:
        """Return a context manager that locks the run for writing and gives the lock's descriptor.

        Entering it raises RunError if another process writes or reads under a lock.
        """
        return folder_lock(
            self.path, "writing to this run", ", or name another directory with --run"
        )

    def read_lock(self, doing: str) -> AbstractContextManager[int | None]:
        """Return a context manager that locks the run against writers, together with other readers.

        Entering it gives the lock's descriptor, or None, without a lock, where the folder cannot be
        written. It raises RunError if the run is being written.
        """
        return shared_folder_lock(self.path, doing)


def _newest_records(
    files: Sequence[Path], model: type[Record], key: tuple[str, ...]
) -> Iterator[tuple[Path, int, int, bytes, Record]]:
    """Yield (file, line number, byte offset, line, record) of the last record of every key; `key`
    names its fields. Reads twice, so that memory holds only keys that occur again."""
    counts: dict[Path, int] = {}

    def iter_lines() -> Iterator[tuple[Path, int, int, bytes, tuple[str, ...]]]:
        """Yield all lines; on the second pass not those written since the first."""
        for path in files:
            offset_lines = islice(lines_with_offsets(path), counts.get(path))
            counts[path] = 0
            for number, start, line in offset_lines:
                counts[path] += 1
                yield path, number, start, line, read_key_fields(f"{path}:{number}", line, key)

    older = superseded_ordinals(lambda: (names for *_, names in iter_lines()))
    for ordinal, (path, number, start, line, names) in enumerate(iter_lines()):
        if ordinal not in older:
            record = parse_record(f"{path}:{number}", line, model)
            assert_single_keys(f"{path}:{number}", record, key, hash(names))
            yield path, number, start, line, record


def _refuse_duplicate_ids(files: Sequence[Path], repeated: set[int]) -> None:
    """Raise RunError if two conversations have the same id, of those with the hashes `repeated`."""
    seen: set[str] = set()
    for path, number, *_, conversation in _newest_records(files, Conversation, ("key",)):
        name = conversation.conversation_id
        if name in seen:
            raise RunError(
                f"{path}:{number}: conversation_id: {name!r:.80} belongs to two conversations; "
                "expected a unique id"
            )
        if hash(name) in repeated:
            seen.add(name)


def set_latest(run: Run) -> None:
    """Point the link `runs/latest` of the working directory at a run in `runs` that has a completed
    conversation.

    Do nothing for other runs. Raises RunError if something other than a link has that name, or if
    the link cannot be written.
    """
    link, path = Path("runs") / "latest", run.path
    if not path.resolve().is_relative_to(link.parent.resolve()):
        return
    if not run.has_completed():
        return
    temporary = link.with_name(f".latest.{os.getpid()}")
    refuse_latest(path)
    try:
        link.parent.mkdir(exist_ok=True)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(path, link.parent), target_is_directory=True)
        temporary.replace(link)
    except OSError as error:
        raise disk_error(link, error) from None


def refuse_latest(path: Path) -> None:
    """Raise RunError if a run here would itself be named `runs/latest`, or if that name is no link.

    A path that is an existing link of that name passes, and so does one that is not directly in
    `runs` of the working directory. It is called before the run is created.
    """
    link = Path("runs") / "latest"
    if path.parent.resolve() != link.parent.resolve():
        return
    if path.name == link.name and not link.exists():
        raise RunError(f"{path}: is reserved for the link to the newest run; choose another name")
    if link.exists() and not link.is_symlink():
        raise RunError(
            f"{link}: found {'a folder' if link.is_dir() else 'a file'}; expected a link, which "
            "convbench sets to the newest run; give it another name"
        )


def find_run(path: Path | None) -> Run:
    """Return the run at a path, or the one that `runs/latest` of the working directory points to
    for None.

    Raises RunError if there is none or it is damaged.
    """
    if path is not None:
        return Run.open(path)
    latest = Path("runs") / "latest"
    if not (latest / "run.json").exists():
        raise RunError(
            "found no run here (runs/latest); expected one: make it with "
            "`convbench build TASK`, or name one with --run DIR"
        )
    return Run.open(latest.resolve())


def all_runs(root: Path = Path("runs")) -> list[Run]:
    """Return the runs directly in a folder, oldest first; empty if the folder is missing.

    Links, such as `latest`, and folders without `run.json` are skipped. Raises RunError for a
    damaged `run.json`.
    """
    if not root.is_dir():
        return []
    paths = [path for path in root.iterdir() if not path.is_symlink()]
    runs = [Run.open(path) for path in paths if (path / "run.json").exists()]
    return sorted(runs, key=lambda run: run.manifest.created)
