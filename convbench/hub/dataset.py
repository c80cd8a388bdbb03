"""Make the folder of a published set: tables, traces, specs, card; then send it.

Conversations as session traces, which the Hub's viewer shows turn by turn.

Source: the Hub's documentation, "Session Traces Format" (huggingface.co/docs/hub/
session-traces-format): a JSONL file a session, a header, then one message a line. The Hub renders
some known harnesses specially, and others in a generic way.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import yaml

from convbench.errors import RunError
from convbench.hub.benchmark import EVAL, eval_yaml
from convbench.hub.card import dataset_card
from convbench.hub.figures import CardFigures, card_figures
from convbench.hub.repo import UploadResult, check_name, upload_folder
from convbench.hub.safety import refuse_secrets
from convbench.hub.tables import (
    CALLS,
    THOUGHT,
    open_portions,
    policy_view,
    write_tables,
)
from convbench.schema import FrozenModel, ImagePart, JudgeSpec, RunManifest
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error, numbered_lines
from convbench.store.portable import ADDRESS, make_portable
from convbench.store.scratch import make_workspace
from convbench.util.redact import redact_error

FOLDER, FIRST = "traces", "traces/00001.jsonl"
HARNESS = "convbench"
MOST = 100
"""Most traces of one dataset. Each is a file, and the Hub recommends folders with few files."""


def write_traces(run: Run, folder: Path) -> None:
    """Write the first 100 completed conversations as `traces/00001.jsonl` and so on, as the policy
    saw them.

    A file has a header line, then a line for each message. Without completed conversations nothing
    is written.
    """
    protocol = run.manifest.protocol
    policy = run.manifest.policy_member.model
    ended = (talk for talk in run.conversations() if talk.failure is None)
    for number, talk in enumerate(islice(ended, MOST), 1):
        header = _trace_header(run, talk.conversation_id)
        lines = [header, *(_trace_line(message, policy) for message in policy_view(protocol, talk))]
        file = folder / FOLDER / f"{number:05}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def _trace_header(run: Run, name: str) -> dict[str, Any]:
    title = f"{run.manifest.task.name}, {run.manifest.protocol.name}"
    return {"type": "session", "harness": HARNESS, "id": name, "name": title}


def _trace_line(message: Mapping[str, Any], policy: str) -> dict[str, Any]:
    return {"type": "message", "message": dict(_trace_fields(message, policy))}


def _trace_fields(message: Mapping[str, Any], policy: str) -> Iterator[tuple[str, Any]]:
    yield "role", message["role"]
    yield "content", message["content"] or ""
    if message.get(THOUGHT):
        yield "reasoningContent", message[THOUGHT]
    if message.get(CALLS):
        yield (
            "toolCalls",
            [{"id": call["id"], "function": dict(call["function"])} for call in message[CALLS]],
        )
    if message.get("tool_call_id"):
        yield "toolCallId", message["tool_call_id"]
    if message["role"] == "assistant":
        yield "model", policy


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
    figures: CardFigures
    """The numbers of its card."""
    notes: list[str] = field(default_factory=list)
    """Notes for the publisher."""


def write_dataset_folder(
    run: Run,
    repo: str,
    folder: Path,
    *,
    judge: str | None = None,
) -> DatasetFolder:
    """Write README.md, parquet tables, `specs/`, `traces/`, `eval.yaml`, the records (`run/`) and a
    seal into a new or empty folder.

    `judge` is the one whose reward is the column `reward`; None takes the only one. Raise RunError
    without conversations, with several judges of which none is named, or for secrets.
    """
    judge = _column_judge(run, judge)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _copy_records(run, folder / "run")
        if next(Run.open(folder / "run").conversations(), None) is None:
            raise RunError(f"{run.path}: found no conversations; build or resume the run first")
        rows, numbers = write_dataset(folder / "run", repo, folder, judge)
    except OSError as error:
        raise disk_error(folder, error) from None
    refuse_secrets(folder)
    notes = _dataset_notes(run, numbers, judge)
    return DatasetFolder(folder, rows, judge, numbers, notes)


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


def _copy_records(run: Run, folder: Path) -> None:
    """Copy the manifest, judges and records, and the images that turns refer to. Incomplete last
    lines are left out. Raises RunError for a missing image."""
    folder.mkdir()
    manifest = make_portable(run.manifest)
    (folder / "run.json").write_bytes(manifest.model_dump_json(indent=1).encode() + b"\n")
    copied = Run(folder, manifest)
    for fingerprint, spec in run.judge_specs().items():
        copied.store_judge(fingerprint, make_portable(spec))
    for name in RECORDS:
        source = run.path / name
        with Appender(folder / name, redacted=False) as file:  # compresses long files
            for _, line in numbered_lines(source):
                file.write(_redact_failure(line).removesuffix(b"\n"))
    for name in sorted(_picture_files(run)):
        if (run.media_folder / name).is_symlink() or not (run.media_folder / name).is_file():
            raise RunError(
                f"{run.media_folder / name}: found no such image; expected a regular file"
            )
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


def _picture_files(run: Run) -> set[str]:
    """Return the names of the images that published turns refer to; no others are published."""
    return {
        part.file
        for conversation in run.conversations()
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


@dataclass(frozen=True)
class PublishedDataset:
    """A published dataset, or the folder that a dry run wrote."""

    dataset: DatasetFolder
    uploaded: UploadResult | None
    """None on a dry run, which keeps the folder."""


def publish_dataset(
    run: Run,
    repo: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    folder: Path | None = None,
    judge: str | None = None,
) -> PublishedDataset:
    """Publish a run as dataset `repo` in one commit, while no one else can write the run.

    A dry run writes `folder` (RUN/publish) and sends nothing; an earlier dry run there is replaced.
    Raise RunError (nothing to publish, secrets, a run being written, a foreign folder) or
    HubError.
    """
    check_name(repo)
    target = folder or run.path / "publish"
    if dry_run:
        refuse_foreign_folder(target, "run/run.json")
    parent = target.parent if dry_run else Path(tempfile.gettempdir())
    with run.lock(), make_workspace(parent, ".publish-") as space:
        staging = space / "set"
        dataset = write_dataset_folder(run, repo, staging, judge=judge)
        if dry_run:
            replace_folder(staging, target)
            dataset.folder = target
            return PublishedDataset(dataset, None)
        return PublishedDataset(dataset, upload_folder(repo, staging, private=private))


def refuse_foreign_folder(target: Path, marker: str) -> None:
    """Raise RunError if `target` exists without the file `marker`, and is not an empty folder; else
    return None."""
    if not target.exists() or (target / marker).exists():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise RunError(
            f"{target}: found a folder that no dry run made; remove it, or choose another"
        )


def replace_folder(source: Path, target: Path) -> None:
    """Move a folder to `target`; a folder there is deleted first. Raise RunError if this fails."""
    try:
        if target.exists():
            shutil.rmtree(target)
        source.replace(target)
    except OSError as error:
        raise disk_error(target, error) from None
