"""Write a run as the folder of a Hub dataset."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import yaml

from convbench import __version__
from convbench.blot import told
from convbench.errors import RunError
from convbench.publish.benchmark import EVAL, eval_yaml
from convbench.publish.card import card
from convbench.publish.figures import Figures, figures
from convbench.publish.parquet import find_leaks, write_tables
from convbench.publish.portions import portions
from convbench.publish.safety import refuse_leaks, refuse_secrets
from convbench.publish.traces import write_traces
from convbench.schema import ImagePart, JudgeSpec, Noun, RunManifest
from convbench.store import Run
from convbench.store.folder_seal import names_in, seal_folder
from convbench.store.jsonl import Appender, disk_error, lines
from convbench.store.portable import ADDRESS, portable

RECORDS = ("examples.jsonl", "conversations.jsonl", "verdicts.jsonl")
"""Files of records, which `pull` restores unchanged. The journal of calls is not published."""


@dataclass
class Laid:
    """A dataset's folder that is ready to be published."""

    folder: Path
    rows: Mapping[str, Mapping[str, int]]
    """Rows by config and split."""
    judge: str | None
    """The judge whose reward is the column `reward`."""
    left_out: int = 0
    """Number of conversations left out because they contain hidden text."""
    notes: list[str] = field(default_factory=list)
    """Notes for the publisher."""


def lay_out(
    run: Run,
    repo: str,
    folder: Path,
    *,
    judge: str | None = None,
    leave_out_leaks: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Laid:
    """Write README.md, parquet tables, `specs/` and `run/` into an empty folder.

    `judge` is the one whose reward is the column `reward`; None takes the only one. Raises RunError
    if there is nothing to publish, several judges and none named, or what must not be published:
    secrets, or hidden text in `messages`.
    """
    leaks = find_leaks(run)
    if not leave_out_leaks:
        refuse_leaks([place for places in leaks.values() for place in places])
    without = frozenset(leaks)
    judge = _judge(run, judge)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _records(run, folder / "run", without)
        if next(Run.open(folder / "run").conversations(), None) is None:
            raise RunError(f"{run.path}: found no conversations; build or resume the run first")
        rows, numbers = write_set(folder / "run", repo, folder, judge)
    except OSError as error:
        raise disk_error(folder, error) from None
    refuse_secrets(folder, environment)
    about = {"repo": repo, "judge": judge, "version": __version__}
    seal_folder(folder, "set", names_in(folder), about)
    return Laid(folder, rows, judge, len(without), _notes(run, numbers, judge))


def write_set(
    records: Path, repo: str, folder: Path, judge: str | None
) -> tuple[dict[str, dict[str, int]], Figures]:
    """Write everything that is computed from a dataset's records: tables, specs, card, traces,
    `eval.yaml`. Return (tables' rows by config and split, card's figures). Equal records give equal
    files."""
    kept = Run.open(records)
    specs = kept.judge_specs()
    _specs(kept.manifest, specs, folder / "specs")
    with portions(kept, folder.parent) as parts:
        rows = write_tables(parts, folder, judge)
    numbers = figures(kept)
    text = card(repo, kept.manifest, specs, numbers, rows, judge)
    (folder / "README.md").write_text(text, encoding="utf-8")
    judges = list(dict.fromkeys(judge for judge, _ in kept.judged_by()))
    benchmark = eval_yaml(kept.manifest, judges, rows)
    if benchmark is not None:
        (folder / EVAL).write_text(benchmark, encoding="utf-8")
    write_traces(kept, folder)
    return rows, numbers


def one_judge(run: Run, names: Sequence[str], asked: str | None) -> str | None:
    """Return the judge whose reward is published: the one chosen, or the only one; None if there
    are none. Raises RunError if there are several and none is chosen, or the chosen one is unknown.
    """
    if asked is not None and asked not in names:
        raise RunError(
            f"--judge {asked}: found verdicts of {', '.join(names) or 'no judge'} in {run.path}; "
            "expected one of these"
        )
    if asked is None and len(names) > 1:
        raise RunError(
            f"{run.path}: found verdicts of {len(names)} judges ({', '.join(sorted(names))}); "
            "expected one to be named, whose reward is published; add --judge NAME"
        )
    return asked or next(iter(names), None)


def _judge(run: Run, asked: str | None) -> str | None:
    """Return the judge of the column `reward`: the one chosen, or the only one with verdicts."""
    reviewers = run.reviewers()
    scored = (judge for judge, mark in run.judged_by() if mark not in reviewers)
    names = list(dict.fromkeys(scored))
    return one_judge(run, names, asked)


def _notes(run: Run, numbers: Figures, judge: str | None) -> list[str]:
    notes = []
    if judge is None:
        notes.append("no judge has scored this run; the set has no rewards (convbench judge)")
    if run.manifest.task.licence.id == "unknown":
        notes.append(
            f"the licence of {run.manifest.task.name} is unknown; check its terms before you "
            "make the set public"
        )
    if numbers.failed:
        notes.append(f"{numbers.failed} conversations failed; they are rows with a failure")
    return notes


def _records(run: Run, folder: Path, without: frozenset[str]) -> None:
    """Copy the manifest, judges and records, without some conversations, and the images that turns
    refer to. Incomplete last lines are left out. Raises RunError for a missing image."""
    folder.mkdir()
    manifest = portable(run.manifest)
    (folder / "run.json").write_bytes(manifest.model_dump_json(indent=1).encode() + b"\n")
    kept = Run(folder, manifest)
    for fingerprint, spec in run.judge_specs().items():
        kept.keep_judge(fingerprint, portable(spec))
    for name in RECORDS:
        sources = [run.path / name] if name == RECORDS[0] else run.files(name)
        with Appender(folder / name, blotted=False) as file:  # compresses long files
            for _, line in (one for source in sources for one in lines(source)):
                if not without or orjson.loads(line).get("conversation_id") not in without:
                    file.write(_without_places(line).removesuffix(b"\n"))
    for name in sorted(_pictures(run, without)):
        if (run.media / name).is_symlink() or not (run.media / name).is_file():
            raise RunError(f"{run.media / name}: found no such image; expected a plain file")
        (folder / "media").mkdir(exist_ok=True)
        shutil.copyfile(run.media / name, folder / "media" / name)


def _without_places(line: bytes) -> bytes:
    """Return a record's line, with addresses and paths removed from the message of a failure."""
    if b'"failure":{' not in line:
        return line
    record = orjson.loads(line)
    failure = record.get("failure")
    if not isinstance(failure, dict):
        return line
    failure["message"] = ADDRESS.sub("[address]", told(str(failure.get("message"))))
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def _pictures(run: Run, without: frozenset[str]) -> set[str]:
    """Return the names of the images that published turns refer to; no others are published."""
    return {
        part.file
        for conversation in run.conversations()
        if conversation.conversation_id not in without
        for turn in conversation.turns
        if isinstance(turn.content, tuple)
        for part in turn.content
        if isinstance(part, ImagePart)
    }


def _specs(manifest: RunManifest, judges: Mapping[str, JudgeSpec], folder: Path) -> None:
    """Write the resolved specs as YAML files for readers."""
    folder.mkdir()
    named: dict[str, Noun] = {"task": manifest.task, "protocol": manifest.protocol}
    named |= {f"judge-{spec.name}-{key[:8]}": spec for key, spec in judges.items()}
    for name, spec in named.items():
        value = spec.model_dump(mode="json", exclude_defaults=True)
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
