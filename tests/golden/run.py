"""A run of 24 conversations with imported rewards, the same on every day and machine.

Eight questions of three samples, six groups, three splits. One attempt failed, one final answer
cannot be read, one was cut, one weighs with tools, one thinks in a channel of its own and one in
tags, one has no reward; rewards are numbers, sums over turns, and named ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from convbench.formats.importing import import_logs

LOG = Path(__file__).with_name("log.jsonl")
CUT = "golden-000003"
"""The conversation whose last turn was cut."""
FAILED = "golden-failed"
"""The conversation that failed: the third sample of question q0."""
Record = dict[str, Any]


def make_run(folder: Path, log: Path = LOG) -> Path:
    """Import the log as a run in `folder`, which must not exist, and return the folder.

    Conversations are `golden-000000` and on, in the log's order; those of another log than the
    default neither fail nor are cut.
    """
    import_logs(str(log), folder, "golden", "golden")
    without_seals(folder)
    rewrite(folder / "run.json", timeless, lines=False)
    rewrite(folder / "verdicts.jsonl", timeless)
    rewrite(folder / "conversations.jsonl", timeless)
    if log == LOG:
        rewrite(folder / "conversations.jsonl", _cut)
        with (folder / "conversations.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(_failed(folder)) + "\n")
    return folder


def add_policy(run: Path, name: str, say: Callable[[Record, Record], str]) -> Path:
    """Write the evaluation of a policy on the run's test questions and return its folder.

    `say` returns, from a conversation of the run and its example, what the policy says last in its
    stead; all else is as in the run.
    """
    child = run / "evals" / name
    child.mkdir(parents=True)
    tested = {row["example_id"]: row for row in records(run / "examples.jsonl")}
    tested = {key: row for key, row in tested.items() if row["split"] == "test"}
    talks = [row for row in records(run / "conversations.jsonl") if row["example_id"] in tested]
    for talk in talks:
        talk["turns"][-1]["content"] = say(talk, tested[talk["example_id"]])
        talk["conversation_id"] = f"{name}-{talk['conversation_id']}"
    write(child / "examples.jsonl", list(tested.values()))
    write(child / "conversations.jsonl", talks)
    (manifest,) = records(run / "run.json", lines=False)
    manifest |= {
        "id": f"golden-{name}",
        "kind": "eval",
        "parent": "golden",
        "checkpoint": f"checkpoints/{name}",
        "split": "test",
    }
    manifest["cast"]["assistant"]["model"] = f"local:{name}"
    write(child / "run.json", [manifest])
    return child


def add_verdicts(run: Path, judge: str, score: Callable[[Record], float]) -> None:
    """Write a verdict of people on every conversation of a run, by their metric `overall` alone."""
    (run / "judges").mkdir(exist_ok=True)
    spec = {
        "name": judge,
        "title": judge,
        "kind": "human",
        "metrics": [{"name": "overall", "label": "Overall"}],
        "reward": {"metric": "overall", "scale": 1.0},
    }
    mark = f"{sum(judge.encode()):016x}"
    write(run / "judges" / f"{mark}.json", [spec])
    with (run / "verdicts.jsonl").open("a", encoding="utf-8") as file:
        for talk in records(run / "conversations.jsonl"):
            verdict = {
                "conversation_id": talk["conversation_id"],
                "judge": judge,
                "fingerprint": mark,
                "scores": {"overall": score(talk)},
                "reward": score(talk),
                "ended": talk["ended"],
            }
            file.write(json.dumps(verdict) + "\n")


def records(file: Path, *, lines: bool = True) -> list[Record]:
    """Return the records of a file, a JSON object a line or one in all."""
    text = file.read_text(encoding="utf-8")
    return [json.loads(line) for line in (text.splitlines() if lines else [text])]


def write(file: Path, rows: Sequence[Record]) -> None:
    """Write records, one a line."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rewrite(file: Path, change: Callable[[Record], Record], *, lines: bool = True) -> None:
    """Replace each record of a file by what `change` returns for it."""
    write(file, [change(row) for row in records(file, lines=lines)])


def timeless(row: Record) -> Record:
    """Return a record as if written on another day, by another version."""
    fixed = {"ended": "2026-01-01T00:00:00+00:00", "created": "2026-01-01T00:00:00+00:00"}
    return row | {key: value for key, value in (fixed | {"version": "0"}).items() if key in row}


def without_seals(folder: Path) -> None:
    """Take away the digests of what this module changes."""
    (folder / "seals.jsonl").unlink(missing_ok=True)


def _cut(talk: Record) -> Record:
    if talk["conversation_id"] == CUT:
        talk["turns"][-1]["finish_reason"] = "length"
    return talk


def _failed(run: Path) -> Record:
    sample = records(run / "conversations.jsonl")[1]
    return sample | {
        "key": "q0/2",
        "conversation_id": FAILED,
        "sample": 2,
        "temperature": 1.0,
        "turns": sample["turns"][:1],
        "stop": None,
        "failure": {"kind": "TransientModelError", "message": "the server was busy"},
    }
