"""What goes out of a run: exports, a published set, tables of `query`, statistics of a report."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import convbench
from convbench.__main__ import main
from convbench.reports.frame import read_settings
from convbench.reports.metrics import ACCURACY, UNREAD, metrics_of
from convbench.reports.tables import differences
from convbench.store import Run
from tests.golden.run import Record, add_policy, add_verdicts, make_run, records

EXPORTS = {
    "trl": (),
    "openai": (),
    "sharegpt": (),
    "ms-swift": (),
    "trl-swift": ("--recipe", "swift"),
    "trl-refit": ("--recipe", "refit"),
    "trl-star-gate": ("--recipe", "star-gate"),
    "trl-dpo": ("--recipe", "dpo"),
    "trl-step-dpo": ("--recipe", "step-dpo"),
    "openai-dpo": ("--recipe", "dpo"),
    "openai-refit-3": ("--recipe", "refit", "--scale", "3"),
    "sharegpt-rft": ("--recipe", "rft", "--scale", "1"),
    "ms-swift-swift": ("--recipe", "swift"),
    "ms-swift-dpo": ("--recipe", "dpo"),
}
"""Name of an export, which begins with its format, and how it is asked for."""
FORMATS = ("ms-swift", "openai", "sharegpt", "trl")
NAMES = {"swift": "SWiFt", "refit": "ReFit"}
"""Labels of the learners whose evaluations are compared."""


def type_command(*words: str) -> None:
    """Type a command of convbench in this process. Fails if it does not end well."""
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["convbench", *words])
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert not code, words


def exported(name: str, run: Path, folder: Path) -> list[Record]:
    """Return the rows of an export, each under its split."""
    target = next(target for target in FORMATS if name.startswith(target))
    asked = EXPORTS[name]
    judge = ("--judge", "imported") if asked else ()
    type_command("export", "--run", str(run), "--to", target, "--out", str(folder), *asked, *judge)
    return [{file.stem: row} for file in sorted(folder.iterdir()) for row in records(file)]


def published(run: Path, folder: Path) -> Path:
    """Write the set that would be published of a run and return its folder."""
    convbench.publish("me/golden", str(run), dry_run=True, folder=folder)
    return folder


def published_rows(table: str, folder: Path) -> Iterator[Record]:
    """Yield the columns of a published table and their types, then its rows, each under its split,
    without empty cells."""
    import pyarrow.parquet as pq

    for file in sorted((folder / table).glob("*.parquet")):
        rows = pq.read_table(file)
        if file.stem.startswith("test"):
            yield {"columns": {field.name: str(field.type) for field in rows.schema}}
        split = file.stem.partition("-")[0]
        yield from ({split: filled(row)} for row in rows.to_pylist())


def filled(row: Any) -> Any:
    """Return a row without its empty cells."""
    if isinstance(row, Mapping):
        return {key: filled(value) for key, value in row.items() if value not in (None, [], {})}
    return [filled(value) for value in row] if isinstance(row, list) else row


def published_traces(folder: Path) -> Iterator[Record]:
    """Yield the lines of the traces that the Hub shows, in the order of their files."""
    for file in sorted((folder / "traces").iterdir()):
        yield {file.stem: records(file)}


MARK = re.compile(r"\b[0-9a-f]{8,16}\b")
"""The fingerprint of a judge, in a file's name."""


def card(folder: Path) -> Record:
    """Return the front matter of a set's card, the names of all its files, and the tasks that
    results refer to."""
    _, front, _ = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {
        "front": yaml.safe_load(front),
        "files": [MARK.sub("⟨MARK⟩", file.relative_to(folder).as_posix()) for file in files],
        "eval": yaml.safe_load((folder / "eval.yaml").read_text(encoding="utf-8"))["tasks"],
    }


VIEWS = ("conversations", "turns", "verdicts", "examples", "comparisons", "runs")
STATEMENTS = (
    "select policy, split, avg(correct::int) as accuracy, count(*) as n, sum(words) as words "
    "from conversations group by all order by all",
    "select judge, count(*) as n, avg(reward) as reward, count(failure) as failed from verdicts "
    "group by all order by all",
    "select conversation_id, answer, correct, thinking, n_turns, stop, failure, cut_turns, "
    "metadata from conversations order by conversation_id",
    "select conversation_id, turn_index, speaker, left(content, 20) as said, reasoning, "
    "finish_reason, tool_calls, tool_results from turns order by all",
)


def query_lines(run: Path) -> Iterator[Record]:
    """Yield the columns of every view, then the rows of each statement, without empty cells."""
    for view in VIEWS:
        columns = convbench.query(f"describe {view}", str(run), frame="arrow").to_pylist()
        yield {view: {column["column_name"]: column["column_type"] for column in columns}}
    for number, statement in enumerate(STATEMENTS):
        for row in convbench.query(statement, str(run), frame="arrow").to_pylist():
            yield {f"statement {number}": filled(row)}


def compared_run(folder: Path) -> Path:
    """Return a new run of 20 test questions in 8 groups, with the evaluations of two learners, and
    two people's verdicts on all."""
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in _log_rows()), encoding="utf-8")
    run = make_run(folder / "run", log)
    add_policy(run, "swift", lambda talk, example: _said(talk, example, 3))
    add_policy(run, "refit", lambda talk, example: _said(talk, example, 6))
    for shift, child in enumerate((run, run / "evals" / "swift", run / "evals" / "refit")):
        add_verdicts(child, "ada", lambda talk, shift=shift: _score(talk, 7 + shift))
        add_verdicts(child, "bob", lambda talk, shift=shift: _score(talk, 11 - shift))
    return run


def _log_rows() -> Iterator[Record]:
    for number in range(20):
        for sample in range(3):
            talk = {"example_id": f"q{number}", "sample": sample}
            answer = "ABCD"[number % 4]
            said = _said(talk, {"answer": answer}, 5)
            yield {
                "example_id": f"q{number}",
                "group": f"group-{number * number % 11}",
                "split": "test",
                "temperature": (0.3, 0.7, 1.0)[sample],
                "question": f"Which is number {number}?",
                "choices": ["ash", "oak", "elm", "fir"],
                "answer": answer,
                "messages": [
                    {"role": "user", "content": f"Which is number {number}?"},
                    {"role": "assistant", "content": said},
                ],
            }


def _said(talk: Record, example: Record, step: int) -> str:
    """Return the right answer, a wrong one or none, as number and sample fall."""
    number = int(talk["example_id"][1:]) * 7 + talk["sample"] * step
    if number % 9 == step % 4:
        return "I cannot say."
    right = number * step % 10 < 4 + step // 2
    letter = example["answer"] if right else "ABCD"["BCDA".index(example["answer"])]
    return f"{'So it is. ' * (number % 3)}The answer is {letter}."


def _score(talk: Record, step: int) -> float:
    number = int(talk["example_id"][1:]) * 3 + talk["sample"]
    return number * step % 10 + 0.25 * (step % 4)


def statistics(run: Path) -> Iterator[Record]:
    """Yield accuracy, share unread and each judge's score of every policy with both kinds of
    error, and the paired differences to Base."""
    settings = {
        kind: read_settings([Run.open(run)], "test", kind=kind)[0]
        for kind in ("clustered", "naive")
    }
    setting = settings["clustered"]
    policies = {NAMES.get(policy.name, policy.name): policy for policy in setting.policies}
    metrics = {"accuracy": ACCURACY, "unread": UNREAD} | {
        f"{metric.judge} r_{metric.key.partition('/')[2]}": metric
        for metric in metrics_of(setting)
        if metric.judge
    }
    for name, metric in metrics.items():
        for kind, setting in settings.items():
            of = f"{name}, {kind}: "
            for label in ("SWiFt", "ReFit", "Base"):
                mean = setting.mean(policies[label], metric.key)
                yield {"of": of + label} | _numbers(mean)
            table = differences(setting)
            place = [column.key for column in table.columns].index(metric.key)
            for row in sorted(table.rows, key=lambda row: row.cells[0], reverse=True):
                change = row.cells[place]
                numbers = _numbers(change.estimate) | {"holm": change.adjusted}
                yield {"of": f"{of}{NAMES[row.cells[0]]} - Base"} | numbers


def _numbers(estimate: Any) -> Record:
    return dataclasses.asdict(estimate) | {"interval": estimate.interval, "p": estimate.p}
