"""Write a run as the folder of a Hub dataset."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import yaml

from convbench import __version__
from convbench.blot import redact_error
from convbench.errors import RunError
from convbench.publish.benchmark import EVAL, eval_yaml
from convbench.publish.card import dataset_card
from convbench.publish.figures import CardFigures, card_figures
from convbench.publish.parquet import find_leaks, write_tables
from convbench.publish.portions import open_portions
from convbench.publish.safety import refuse_leaks, refuse_secrets
from convbench.publish.traces import write_traces
from convbench.schema import FrozenModel, ImagePart, JudgeSpec, RunManifest
from convbench.store import Run
from convbench.store.folder_seal import names_in, seal_folder
from convbench.store.jsonl import Appender, disk_error, numbered_lines
from convbench.store.portable import ADDRESS, make_portable

RECORDS = ("examples.jsonl", "conversations.jsonl", "verdicts.jsonl")
"""Files of records, which `pull` restores unchanged. The journal of calls is not published."""


@dataclass
class DatasetFolder:
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


def write_dataset_folder(
    run: Run,
    repo: str,
    folder: Path,
    *,
    judge: str | None = None,
    leave_out_leaks: bool = False,
    environment: Mapping[str, str] | None = None,
) -> DatasetFolder:
    """Write README.md, parquet tables, `specs/` and `run/` into an empty folder.

    `judge` is the one whose reward is the column `reward`; None takes the only one. Raises RunError
    if there is nothing to publish, several judges and none named, or what must not be published:
    secrets, or hidden text in `messages`.
    """
    leaks = find_leaks(run)
    if not leave_out_leaks:
        refuse_leaks([leak for conversation_leaks in leaks.values() for leak in conversation_leaks])
    without = frozenset(leaks)
    judge = _column_judge(run, judge)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _copy_records(run, folder / "run", without)
        if next(Run.open(folder / "run").conversations(), None) is None:
            raise RunError(f"{run.path}: found no conversations; build or resume the run first")
        rows, numbers = write_dataset(folder / "run", repo, folder, judge)
    except OSError as error:
        raise disk_error(folder, error) from None
    refuse_secrets(folder, environment)
    about = {"repo": repo, "judge": judge, "version": __version__}
    seal_folder(folder, "set", names_in(folder), about)
    return DatasetFolder(folder, rows, judge, len(without), _dataset_notes(run, numbers, judge))


def write_dataset(
    records: Path, repo: str, folder: Path, judge: str | None
) -> tuple[dict[str, dict[str, int]], CardFigures]:
    """Write everything that is computed from a dataset's records: tables, specs, card, traces,
    `eval.yaml`. Return (tables' rows by config and split, card's figures). Equal records give equal
    files."""
    run = Run.open(records)
    specs = run.judge_specs()
    _write_specs(run.manifest, specs, folder / "specs")
    with open_portions(run, folder.parent) as parts:
        rows = write_tables(parts, folder, judge)
    numbers = card_figures(run)
    text = dataset_card(repo, run.manifest, specs, numbers, rows, judge)
    (folder / "README.md").write_text(text, encoding="utf-8")
    judges = list(dict.fromkeys(judge for judge, _ in run.judge_fingerprints()))
    benchmark = eval_yaml(run.manifest, judges, rows)
    if benchmark is not None:
        (folder / EVAL).write_text(benchmark, encoding="utf-8")
    write_traces(run, folder)
    return rows, numbers


def single_judge(run: Run, names: Sequence[str], chosen: str | None) -> str | None:
    """Return the judge whose reward is published: the one chosen, or the only one; None if there
    are none. Raises RunError if there are several and none is chosen, or the chosen one is unknown.
    """
    if chosen is not None and chosen not in names:
        raise RunError(
            f"--judge {chosen}: found verdicts of {', '.join(names) or 'no judge'} in {run.path}; "
            "expected one of these"
        )
    if chosen is None and len(names) > 1:
        raise RunError(
            f"{run.path}: found verdicts of {len(names)} judges ({', '.join(sorted(names))}); "
            "expected one to be named, whose reward is published; add --judge NAME"
        )
    return chosen or next(iter(names), None)


def _column_judge(run: Run, chosen: str | None) -> str | None:
    """Return the judge of the column `reward`: the one chosen, or the only one with verdicts."""
    reviewers = run.reviewer_fingerprints()
    scored = (judge for judge, mark in run.judge_fingerprints() if mark not in reviewers)
    names = list(dict.fromkeys(scored))
    return single_judge(run, names, chosen)


def _dataset_notes(run: Run, numbers: CardFigures, judge: str | None) -> list[str]:
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


def _copy_records(run: Run, folder: Path, without: frozenset[str]) -> None:
    """Copy the manifest, judges and records, without some conversations, and the images that turns
    refer to. Incomplete last lines are left out. Raises RunError for a missing image."""
    folder.mkdir()
    manifest = make_portable(run.manifest)
    (folder / "run.json").write_bytes(manifest.model_dump_json(indent=1).encode() + b"\n")
    copied = Run(folder, manifest)
    for fingerprint, spec in run.judge_specs().items():
        copied.store_judge(fingerprint, make_portable(spec))
    for name in RECORDS:
        sources = [run.path / name] if name == RECORDS[0] else run.record_files(name)
        with Appender(folder / name, redacted=False) as file:  # compresses long files
            for _, line in (entry for source in sources for entry in numbered_lines(source)):
                if not without or orjson.loads(line).get("conversation_id") not in without:
                    file.write(_redact_failure(line).removesuffix(b"\n"))
    for name in sorted(_picture_files(run, without)):
        if (run.media_folder / name).is_symlink() or not (run.media_folder / name).is_file():
            raise RunError(f"{run.media_folder / name}: found no such image; expected a plain file")
        (folder / "media").mkdir(exist_ok=True)
        shutil.copyfile(run.media_folder / name, folder / "media" / name)


def _redact_failure(line: bytes) -> bytes:
    """Return a record's line, with addresses and paths removed from the message of a failure."""
    if b'"failure":{' not in line:
        return line
    record = orjson.loads(line)
    failure = record.get("failure")
    if not isinstance(failure, dict):
        return line
    failure["message"] = ADDRESS.sub("[address]", redact_error(str(failure.get("message"))))
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def _picture_files(run: Run, without: frozenset[str]) -> set[str]:
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


def _write_specs(manifest: RunManifest, judges: Mapping[str, JudgeSpec], folder: Path) -> None:
    """Write the resolved specs as YAML files for readers."""
    folder.mkdir()
    named: dict[str, FrozenModel] = {"task": manifest.task, "protocol": manifest.protocol}
    named |= {f"judge-{spec.name}-{key[:8]}": spec for key, spec in judges.items()}
    for name, spec in named.items():
        value = spec.model_dump(mode="json", exclude_defaults=True)
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
