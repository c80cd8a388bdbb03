"""Run: a directory that holds everything of one build, import or evaluation.

The folder with its files; what `run.json` in it says is the record `schema.run.RunManifest`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from convbench.errors import RunError
from convbench.schema import Conversation, Example, JudgeSpec, RunManifest, Verdict
from convbench.store.jsonl import disk_error, lines, records, write_whole
from convbench.store.locks import folder_lock, shared_folder_lock
from convbench.store.shape import Record, an_object, checked, read_model


class Run:
    """A run directory. `run.json` is written once; all else is appended."""

    def __init__(self, path: Path, manifest: RunManifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(cls, path: Path, manifest: RunManifest, examples: list[Example]) -> Run:
        """Make a run; `run.json` comes last, so that a directory with one is a whole run."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(path, error) from None
        run = cls(path, manifest)
        with run.lock():
            if (path / "run.json").exists():
                raise RunError(f"{path}: there is a run already; expected an empty directory")
            body = b"".join(example.model_dump_json().encode() + b"\n" for example in examples)
            write_whole(path / "examples.jsonl", body)
            write_whole(path / "run.json", manifest.model_dump_json(indent=1).encode() + b"\n")
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open a run; anything but a run directory is a RunError."""
        if not (path / "run.json").exists():
            raise RunError(
                f"{path}: found no run.json; expected a run directory (see: convbench list runs)"
            )
        return cls(path, read_model(path / "run.json", RunManifest))

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
        return self.path / "media"

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
    def examples(self) -> dict[str, Example]:
        """Return the run's questions by example_id."""
        path = self.path / "examples.jsonl"
        found: dict[str, Example] = {}
        for number, line in lines(path):
            an_object(f"{path}:{number}", line)
            example = checked(f"{path}:{number}", line, Example)
            if example.example_id in found:
                raise RunError(
                    f"{path}:{number}: found {example.example_id!r:.80} a second time; expected "
                    "one line a question"
                )
            found[example.example_id] = example
        return found

    def conversations(self) -> Iterator[Conversation]:
        """Yield the newest conversation of every key, in the order they were written.

        Raises RunError for one of no question of the run, and for two of one id.
        """
        path = self.conversations_file
        ids: set[str] = set()
        for number, found in _newest(path, Conversation, ("key",)):
            name, why = found.conversation_id, None
            if found.example_id not in self.examples:
                why = f"example_id: found {found.example_id!r:.80}, which is not in examples.jsonl"
            elif name in ids:
                why = f"conversation_id: found {name!r:.80} for two keys; expected one of its own"
            if why:
                raise RunError(f"{path}:{number}: {why}")
            ids.add(name)
            yield found

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the newest verdict of every (conversation, judge)."""
        found = _newest(self.verdicts_file, Verdict, ("conversation_id", "judge"))
        return (verdict for _, verdict in found)

    def attempts(self) -> dict[str, tuple[int, bool]]:
        """Return, for every key on disk, (number of attempts, whether the newest succeeded)."""
        found: dict[str, tuple[int, bool]] = {}
        for record in records(self.conversations_file, "key"):
            before = found.get(record["key"], (0, False))[0]
            found[record["key"]] = (before + 1, record.get("failure") is None)
        return found

    def judge_specs(self) -> dict[str, JudgeSpec]:
        """Return the resolved spec of every judge this run was judged by, by fingerprint."""
        found = {}
        for path in sorted((self.path / "judges").glob("*.json")):
            found[path.stem] = read_model(path, JudgeSpec)
        return found

    def keep_judge(self, fingerprint: str, spec: JudgeSpec) -> None:
        """Record a judge's resolved spec under its fingerprint."""
        path = self.path / "judges" / f"{fingerprint}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_whole(path, spec.model_dump_json(indent=1).encode() + b"\n")

    def lock(self) -> AbstractContextManager[int]:
        """Hold the run for writing; a second process, and one beside a reader, is refused."""
        return folder_lock(
            self.path, "writing to this run", ", or name another directory with --run"
        )

    def reading(self, doing: str) -> AbstractContextManager[int | None]:
        """Hold the run against writers, beside other readers."""
        return shared_folder_lock(self.path, doing)


def _newest(path: Path, model: type[Record], key: tuple[str, ...]) -> Iterator[tuple[int, Record]]:
    """Yield (line, last record) of every key, the texts of these fields. Two passes, so that
    memory holds keys alone."""
    last: dict[tuple[str, ...], int] = {}
    for number, line in lines(path):
        record = an_object(f"{path}:{number}", line, key)
        last[tuple(record[name] for name in key)] = number
    wanted = set(last.values())
    for number, line in lines(path):
        if number in wanted:
            yield number, checked(f"{path}:{number}", line, model)


def set_latest(run: Run) -> None:
    """Point `runs/latest` at a run that lies in `runs` and holds a conversation; one that lies
    elsewhere is named whenever it is meant."""
    link, path = Path("runs") / "latest", run.path
    if not path.resolve().is_relative_to(link.parent.resolve()):
        return
    if not any(had for _, had in run.attempts().values()):
        return
    temporary = link.with_name(f".latest.{os.getpid()}")
    try:
        link.parent.mkdir(exist_ok=True)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(path, link.parent), target_is_directory=True)
        temporary.replace(link)
    except OSError as error:
        raise disk_error(link, error) from None


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
