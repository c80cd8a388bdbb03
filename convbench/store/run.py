"""Run: a directory that holds everything of one build, import or evaluation.

The folder with its files; what `run.json` in it says is the record `schema.run.RunManifest`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from convbench.errors import RunError
from convbench.schema import Conversation, Example, JudgeSpec, RunManifest, Verdict
from convbench.schema.example import SPLITS, Split
from convbench.store import index
from convbench.store.examples import read_examples
from convbench.store.index import ConversationRow, Index, VerdictRow
from convbench.store.jsonl import Appender, disk_error, placed, records, write_whole
from convbench.store.keys import Attempts, Hashes, named, superseded_ordinals
from convbench.store.locks import folder_lock, shared_folder_lock
from convbench.store.parts import files
from convbench.store.places import Records, size_of
from convbench.store.seal import seal
from convbench.store.shape import Record, checked, one_value, read_model
from convbench.store.shards import parts


class Told(NamedTuple):
    """A conversation and where its record lies."""

    path: Path
    start: int
    """First byte of its line (`store.places`)."""
    line: bytes
    conversation: Conversation


class Question(NamedTuple):
    """Where a question belongs."""

    split: Split
    group_id: str


class Run:
    """A run directory. `run.json` is written once; all else is appended."""

    def __init__(self, path: Path, manifest: RunManifest, home: Run | None = None) -> None:
        self.path = path
        self.manifest = manifest
        self.home = home
        """The run that this one is a shard of; it keeps images, judges and the lock of all."""
        self._attempts: tuple[int, Attempts] | None = None
        """Size of the conversations, and what they said."""
        self._records: dict[Path, Records[Conversation]] = {}
        self._verdicts: dict[Path, Records[Verdict]] = {}

    @classmethod
    def create(cls, path: Path, manifest: RunManifest, examples: Iterable[Example]) -> Run:
        """Make a run; `run.json` comes last, so that a directory with one is a whole run."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(path, error) from None
        with cls(path, manifest).lock():
            if (path / "run.json").exists():
                raise RunError(f"{path}: there is a run already; expected an empty directory")
            for left in files(path / "examples.jsonl"):  # of one that was killed before run.json
                left.unlink()
            with Appender(path / "examples.jsonl") as file:
                for example in examples:
                    file.write(example.model_dump_json().encode())
            return cls.complete(path, manifest)

    @classmethod
    def complete(cls, path: Path, manifest: RunManifest) -> Run:
        """Make a run of a folder that holds its records."""
        write_whole(path / "run.json", manifest.model_dump_json(indent=1).encode() + b"\n")
        return cls(path, manifest)

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open a run; anything but a run directory is a RunError."""
        if not (path / "run.json").exists():
            raise RunError(
                f"{path}: found no run.json; expected a run directory (see: convbench list runs)"
            )
        return cls(path, read_model(path / "run.json", RunManifest))

    def shards(self) -> list[Run]:
        """Return the shards that hold this run's records; none where it holds them itself."""
        if self.home is not None:
            return []
        return [Run(folder, self.manifest, self) for folder in parts(self.path).values()]

    def folders(self) -> list[Path]:
        """Return the run's folder and those of its shards."""
        return [self.path, *(shard.path for shard in self.shards())]

    def files(self, name: str) -> list[Path]:
        """Return the files of records of this name, `verdicts.jsonl` say: the run's own, then its
        shards'. Conversations lie in shards alone, where there are any."""
        own, *found = (folder / name for folder in self.folders())
        return found if found and own == self.conversations_file else [own, *found]

    @property
    def examples_file(self) -> Path:
        """The file of questions."""
        return self.path / "examples.jsonl"

    @property
    def conversations_file(self) -> Path:
        """The file of conversations, one record an attempt that ended."""
        return self.path / "conversations.jsonl"

    @property
    def verdicts_file(self) -> Path:
        """The file of verdicts."""
        return self.path / "verdicts.jsonl"

    @property
    def calls_file(self) -> Path:
        """The journal of finished model calls."""
        return self.path / "calls.jsonl"

    @property
    def media(self) -> Path:
        """Folder of images that turns refer to."""
        return (self.home or self).path / "media"

    @property
    def checkpoints(self) -> Path:
        """Folder of what was trained on this run."""
        return self.path / "checkpoints"

    @property
    def evals(self) -> Path:
        """Folder of child runs."""
        return self.path / "evals"

    @property
    def branches(self) -> Path:
        """Folder of the run of branches that left this run's conversations."""
        return self.path / "branches"

    @property
    def reports(self) -> Path:
        """Folder of reports."""
        return self.path / "reports"

    def children(self) -> list[Run]:
        """Return the child runs, by name."""
        if not self.evals.is_dir():
            return []
        paths = sorted(path for path in self.evals.iterdir() if (path / "run.json").exists())
        return [Run.open(path) for path in paths]

    @cached_property
    def examples(self) -> Mapping[str, Example]:
        """Return the run's questions by example_id; those of a large run are read as needed."""
        return read_examples(self.examples_file)

    def conversations(self) -> Iterator[Conversation]:
        """Yield the newest conversation of every key, in the order they were written.

        Raises RunError for one of no question of the run, and for two of one id.
        """
        return (told.conversation for told in self.told())

    def told(self) -> Iterator[Told]:
        """Yield what `conversations` yields, with its record."""
        files = self.files("conversations.jsonl")
        ids, examples = Hashes(), self.examples
        for path, number, start, line, found in _newest(files, Conversation, ("key",)):
            if found.example_id not in examples:
                raise RunError(
                    f"{path}:{number}: example_id: found {found.example_id!r:.80}, which is not in "
                    "examples.jsonl"
                )
            ids.add(found.conversation_id)
            yield Told(path, start, line, found)
        if twice := ids.repeated():
            _refuse_twice(files, twice)

    def heads(self) -> Iterator[ConversationRow]:
        """Yield of every newest conversation what names it and how it ended, its texts unread."""
        return Index(index.CONVERSATIONS, self.files("conversations.jsonl")).newest_rows()

    def joined_rows(self) -> Iterator[tuple[ConversationRow, Question]]:
        """Yield what `heads` yields, with its question. Raises RunError as `conversations` does
        where that can be seen without texts."""
        return self._join_questions(self.heads(), self.questions)

    def _join_questions(
        self, rows: Iterator[ConversationRow], questions: Mapping[str, Question]
    ) -> Iterator[tuple[ConversationRow, Question]]:
        ids = Hashes()
        for row in rows:
            ids.add(row.conversation_id)
            if row.example_id not in questions:
                self._walk_conversations()
                raise RunError(f"{row.path}: byte {row.start}: found no question of this one")
            yield row, questions[row.example_id]
        if ids.repeated():
            self._walk_conversations()

    @cached_property
    def questions(self) -> Mapping[str, Question]:
        """Where every question belongs, by its example_id."""
        questions: dict[str, Question] = {}
        splits = {name: name for name in SPLITS}
        rows = Index(index.EXAMPLES, [self.examples_file]).all_rows()
        for count, row in enumerate(rows, 1):
            group = row.example_id if row.group_id == row.example_id else row.group_id
            questions[row.example_id] = Question(splits[row.split], group)
            if len(questions) < count:
                len(self.examples)  # which names the line of the second one
        return questions

    def _walk_conversations(self) -> None:
        """Read all conversations, so that what is wrong with one is raised with its line."""
        for _ in self.told():
            pass

    def read_conversation(self, path: Path, start: int, length: int) -> Conversation:
        """Return the conversation of a row of the index. Raises RunError for a damaged one."""
        if path not in self._records:
            self._records[path] = Records(path, Conversation)
        try:
            return self._records[path].read(start, length)
        except RunError:
            self._walk_conversations()
            raise

    def read_verdict(self, row: VerdictRow) -> Verdict:
        """Return a row's verdict."""
        if row.path not in self._verdicts:
            self._verdicts[row.path] = Records(row.path, Verdict)
        return self._verdicts[row.path].read(row.start, row.length)

    def judged_by(self) -> dict[tuple[str, str], None]:
        """Return (judge, fingerprint) of the newest verdicts, those that came first before."""
        return dict.fromkeys((row.judge, row.fingerprint) for row in self.verdict_rows())

    def verdict_rows(self) -> Iterator[VerdictRow]:
        """Yield what each newest verdict gave, its words unread."""
        return Index(index.VERDICTS, self.files("verdicts.jsonl")).newest_rows()

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the newest verdict of every (conversation, judge)."""
        files = self.files("verdicts.jsonl")
        return (verdict for *_, verdict in _newest(files, Verdict, ("conversation_id", "judge")))

    def has_one(self) -> bool:
        """Whether a conversation ended well; looks no further than the first."""
        found = chain.from_iterable(
            records(file, "key") for file in self.files("conversations.jsonl")
        )
        return any(one.get("failure") is None for one in found)

    def attempts(self) -> Attempts:
        """Return, for every key on disk, (number of attempts, whether the newest succeeded)."""
        files = self.files("conversations.jsonl")
        size = sum(map(size_of, files))
        if self._attempts is None or self._attempts[0] != size:
            found = chain.from_iterable(records(file, "key") for file in files)
            tried = ((record["key"], record.get("failure") is None) for record in found)
            self._attempts = size, Attempts(tried)
        return self._attempts[1]

    def judge_specs(self) -> dict[str, JudgeSpec]:
        """Return the resolved spec of every judge this run was judged by, by fingerprint."""
        found = {}
        for path in sorted(((self.home or self).path / "judges").glob("*.json")):
            found[path.stem] = read_model(path, JudgeSpec)
        return found

    def reviewers(self) -> frozenset[str]:
        """Return the fingerprints of judges that review the simulated human: what they say is no
        score of a policy, and no reward."""
        specs = self.judge_specs().items()
        return frozenset(mark for mark, spec in specs if not spec.scores_policy)

    def keep_judge(self, fingerprint: str, spec: JudgeSpec) -> None:
        """Record a judge's resolved spec under its fingerprint."""
        path = (self.home or self).path / "judges" / f"{fingerprint}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_whole(path, spec.model_dump_json(indent=1).encode() + b"\n")

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Hold the run for writing, and seal what was written; a second process, and one beside a
        reader, is refused. A shard is held by its attempt already."""
        if self.home is not None:
            yield -1
            return
        with folder_lock(
            self.path, "writing to this run", ", or name another directory with --run"
        ) as held:
            try:
                yield held
            finally:
                seal(self.path)

    def reading(self, doing: str) -> AbstractContextManager[int | None]:
        """Hold the run against writers, beside other readers."""
        return shared_folder_lock(self.path, doing)


def _newest(
    files: Sequence[Path], model: type[Record], key: tuple[str, ...]
) -> Iterator[tuple[Path, int, int, bytes, Record]]:
    """Yield (file, line number, first byte, last line, the record in it) of every key, the texts of
    these fields. Two passes, so that memory holds no key but those that stand there again."""
    counts: dict[Path, int] = {}

    def read() -> Iterator[tuple[Path, int, int, bytes, tuple[str, ...]]]:
        """All lines, and later the same ones: not those written since."""
        for path in files:
            found = islice(placed(path), counts.get(path))
            counts[path] = 0
            for number, start, line in found:
                counts[path] += 1
                yield path, number, start, line, named(f"{path}:{number}", line, key)

    older = superseded_ordinals(lambda: (names for *_, names in read()))
    for ordinal, (path, number, start, line, names) in enumerate(read()):
        if ordinal not in older:
            record = checked(f"{path}:{number}", line, model)
            one_value(f"{path}:{number}", record, key, hash(names))
            yield path, number, start, line, record


def _refuse_twice(files: Sequence[Path], twice: set[int]) -> None:
    """Raise RunError for two conversations of one id, of those whose ids have these hashes."""
    seen: set[str] = set()
    for path, number, *_, found in _newest(files, Conversation, ("key",)):
        name = found.conversation_id
        if name in seen:
            raise RunError(
                f"{path}:{number}: conversation_id: found {name!r:.80} for two keys; expected one "
                "of its own"
            )
        if hash(name) in twice:
            seen.add(name)


def set_latest(run: Run) -> None:
    """Point `runs/latest` at a run that lies in `runs` and holds a conversation; one that lies
    elsewhere is named whenever it is meant."""
    link, path = Path("runs") / "latest", run.path
    if not path.resolve().is_relative_to(link.parent.resolve()):
        return
    if not run.has_one():
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
    """Raise RunError, before a run is made in `runs`, where a folder has the name of the link to
    the newest one, or would get it."""
    link = Path("runs") / "latest"
    if path.parent.resolve() != link.parent.resolve():
        return
    if path.name == link.name and not link.exists():
        raise RunError(f"{path}: is the name of the link to the newest run; expected another one")
    if link.exists() and not link.is_symlink():
        raise RunError(
            f"{link}: found {'a folder' if link.is_dir() else 'a file'}; expected a link, which "
            "convbench sets to the newest run; give it another name"
        )


def find_run(path: Path | None) -> Run:
    """Open the run given, or the newest one (`runs/latest`)."""
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
    """Return the runs under a folder, oldest first."""
    if not root.is_dir():
        return []
    paths = [path for path in root.iterdir() if not path.is_symlink()]
    runs = [Run.open(path) for path in paths if (path / "run.json").exists()]
    return sorted(runs, key=lambda run: run.manifest.created)
