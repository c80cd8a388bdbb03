"""Run folders of the wrong shape: one line that names the file, exit code 1, and no traceback."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from convbench.errors import ConvbenchError, RunError
from convbench.schema import ModelConfig
from convbench.store import Run
from convbench.store.query import run_query
from convbench.store.shape import read_model
from tests.helpers.files import BORNE, REFUSED
from tests.helpers.runs import write_run
from tests.support.app import app
from tests.support.exhaustive import every_nth, exhaustive

EVERYTHING = (
    "select * from conversations join verdicts using (conversation_id) join turns using "
    "(conversation_id) join examples using (example_id)"
)
COMMANDS = {
    "list": ["list", "runs"],
    "show": ["show", "run-q0-0", "--run", "runs/run"],
    "query": ["query", EVERYTHING, "--run", "runs/run"],
    "report": ["report", "runs/run", "--split", "all"],
    "judge": ["judge", "--judge", "rules", "--run", "runs/run", "--quiet"],
    "judge --dry-run": ["judge", "--judge", "gpt-4o", "--run", "runs/run", "--dry-run"],
    "export": ["export", "--to", "openai", "--recipe", "refit", "--run", "runs/run"],
    "train": ["train", "refit", "--run", "runs/run", "--dry-run", "--model", "local:pocket"],
    "build --dry-run": ["build", "--run", "runs/run", "--dry-run"],
    "build": ["build", "--run", "runs/run", "--quiet"],
    "eval": ["eval", "rule:tests.helpers.files:says", "--run", "runs/run", "--quiet"],
    "view": ["view", "runs/run", "--static", "site"],
    "publish": ["publish", "a/b", "--run", "runs/run", "--dry-run"],
    "publish --checkpoint": ["publish", "a/b", "--checkpoint", "runs/run/checkpoints/refit",
                             "--dry-run"],
    "judge human": ["judge", "--judge", "human:runs/run/labels.jsonl", "--run", "runs/run"],
    "report comparisons": ["report", "runs/run", "--split", "all"],
    "eval CHECKPOINT": ["eval", "runs/run/checkpoints/refit", "--quiet"],
}  # fmt: skip
EVERY = tuple(COMMANDS)[: list(COMMANDS).index("publish --checkpoint")]
READERS = {
    "run.json": set(EVERY) - {"list"},
    "examples.jsonl": set(EVERY) - {"list"},
    "conversations.jsonl": set(EVERY) - {"list", "build --dry-run", "eval"},
    "verdicts.jsonl": {"show", "query", "report", "judge", "judge --dry-run", "export", "train",
                       "view", "publish"},
}  # fmt: skip
"""Commands that read all of a file, and so refuse what is wrong in it."""
SOME = {
    "run.json": ("is b'[1, 2]\\n'", "samples 1000000000", "is a pipe", "is holes"),
    "examples.jsonl": ("is b'5\\n'", "example_id missing", "is a pipe", "is holes"),
    "conversations.jsonl": ('has a line {"a": [[[[[[', "turns [1]", "is a pipe", "is holes"),
    "verdicts.jsonl": ("has a line {}", "scores 'x'", "is a pipe", "is holes"),
}
"""Damages that go through every command; the others go through the readers that they call."""
LATE = {"calls.jsonl": "build", "labels.jsonl": "judge human",
        "comparisons.jsonl": "report comparisons",
        "judges/f00d.json": "eval", "published.json": "publish --checkpoint",
        "reports/seal.json": "report", "evals/refit/run.json": "report",
        "evals/refit/conversations.jsonl": "report",
        "checkpoints/refit/training.json": "publish --checkpoint",
        "checkpoints/refit/recipe.yaml": "eval CHECKPOINT"}  # fmt: skip
"""A command that reads what other commands do not; the usual one reads the rest of the files."""
USUAL = "report"
TABLES = {
    "run.json": "runs",
    "examples.jsonl": "examples",
    "conversations.jsonl": "conversations",
    "verdicts.jsonl": "verdicts",
}
"""What a query reads of a file."""


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with one file of every kind."""
    cast = {
        "assistant": ModelConfig(model="rule:tests.helpers.files:says"),
        "teacher": ModelConfig(model="script"),
    }
    run = write_run(tmp_path_factory.mktemp("whole") / "run", cast=cast)
    write_run(
        run.evals_folder / "refit",
        parent=run.manifest.id,
        kind="eval",
        id="child",
        cast=cast,
        checkpoint="checkpoints/refit",
        conversations=[],
        verdicts=[],
    )
    call = {"key": "q0/0/1", "hash": "0" * 16, "content": "yes", "finish_reason": "stop",
            "prompt_tokens": 1, "completion_tokens": 1, "cost_usd": 0.1, "model": None}  # fmt: skip
    label = {"conversation_id": "run-q0-0", "rater": "a", "overall": 5}
    pair = {"first": "run-q0-0", "second": "run-q0-1", "judge": "j", "fingerprint": "f00d",
            "group_id": "g", "preferred": 0.5, "scores": {"preference": 1.5}}  # fmt: skip
    files = {
        "checkpoints/refit/training.json": json.dumps({"run": run.manifest.id, "recipe": "refit"}),
        "checkpoints/refit/recipe.yaml": yaml.safe_dump({"name": "refit", "run": "../.."}),
        "checkpoints/refit/config.json": "{}",
        "checkpoints/refit/model.safetensors": "",
        "calls.jsonl": json.dumps(call) + "\n",
        "labels.jsonl": json.dumps(label) + "\n",
        "comparisons.jsonl": json.dumps(pair) + "\n",
        "published.json": '{"repo": "a/b"}',
        "reports/seal.json": "{}",
    }
    for name, text in files.items():
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_text(text)
    return run.path


@pytest.fixture
def run(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as `runs/run` of the working directory."""
    shutil.copytree(whole, tmp_path / "runs" / "run")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")  # a dry run says so where there is none
    return tmp_path / "runs" / "run"


def said(command: str) -> str | None:
    """Return the one line in which a command ends; None where it succeeds."""
    return outcome(COMMANDS[command])


def outcome(words: list[str]) -> str | None:
    """Return the one line in which what is typed ends; None where it succeeds."""
    found = CliRunner().invoke(app, words)
    if found.exit_code == 0:
        return None
    if not isinstance(found.exception, ConvbenchError | SystemExit):
        raise AssertionError(words) from found.exception
    line = " ".join(str(found.exception).split())
    assert len(line) < 2000, words
    return line


def everything(path: Path) -> None:
    """Read a run as the library does."""
    run = Run.open(path)
    list(run.examples.values())
    list(run.conversations())
    list(run.verdicts())
    run.judge_specs()


def refusal(path: Path) -> str:
    """Return why the library refuses a run; empty where it does not."""
    try:
        everything(path)
    except RunError as error:
        return str(error)
    return ""


def by_query(path: Path, statement: str = EVERYTHING) -> None:
    """Read a run as DuckDB does."""
    run_query(statement, [Run.open(path)])


def mend(run: Path, whole: Path, file: str) -> None:
    """Put a file back that was damaged, and nothing else that reading it left."""
    path = run / file
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.copy(whole / file, path)


def test_every_command_reads_the_whole_run(run: Path) -> None:
    assert {name: said(name) for name in EVERY} == dict.fromkeys(EVERY)


def test_damages_are_not_fewer() -> None:
    """Of files that are refused, of files that are borne, of those that go through every command:
    more may come."""
    refused, borne, some = (sum(map(len, each.values())) for each in (REFUSED, BORNE, SOME))
    assert (refused >= 244, borne >= 254, some >= 16) == (True, True, True)
    assert sum(map(len, READERS.values())) >= 43
    assert all(set(SOME[file]) <= set(REFUSED[file]) for file in SOME)


@pytest.mark.parametrize("file", REFUSED)
def test_a_file_of_the_wrong_shape_is_refused_by_name(file: str, whole: Path, run: Path) -> None:
    for damage, do in REFUSED[file].items():
        do(run)
        why = refusal(run)
        assert f"{run / file}:" in why, damage
        assert len(why) < 1000, damage
        mend(run, whole, file)


@pytest.mark.parametrize("every", [False, exhaustive(True)])
@pytest.mark.parametrize("file", REFUSED)
def test_a_query_takes_or_refuses_it(file: str, every: bool, whole: Path, run: Path) -> None:
    """DuckDB may turn a value into a text; no damage ends in another error."""
    for damage in REFUSED[file] if every else SOME[file]:
        REFUSED[file][damage](run)
        with suppress(RunError):
            by_query(run, f"select * from {TABLES[file]}")
        mend(run, whole, file)


@pytest.mark.parametrize("every", [False, exhaustive(True)])
@pytest.mark.parametrize(
    ("file", "command"), [(file, command) for file in READERS for command in sorted(READERS[file])]
)
def test_every_command_refuses_it(
    file: str, command: str, every: bool, whole: Path, run: Path
) -> None:
    """By turns, one damage a command; all of them in `make test-all`."""
    turn = list(COMMANDS).index(command) % len(SOME[file])
    for damage in SOME[file] if every else SOME[file][turn : turn + 1]:
        REFUSED[file][damage](run)
        assert Path(file).name in str(said(command)), damage
        mend(run, whole, file)


@pytest.mark.parametrize("every", [False, exhaustive(True)])
@pytest.mark.parametrize("file", ["run.json", "conversations.jsonl", "verdicts.jsonl"])
def test_a_list_of_runs_tells_of_it_and_goes_on(
    file: str, every: bool, whole: Path, run: Path
) -> None:
    shutil.copytree(run, run.with_name("whole"))
    for name in REFUSED[file] if every else SOME[file]:
        REFUSED[file][name](run)
        found = CliRunner().invoke(app, ["list", "runs"])
        assert found.exit_code == 0, name
        assert "runs/whole" in found.output, name
        assert name not in SOME[file] or file in found.output or "runs/run " in found.output, name
        mend(run, whole, file)


@pytest.mark.parametrize("file", every_nth(2, BORNE))
def test_an_odd_file_breaks_nothing(file: str, whole: Path, run: Path) -> None:
    for damage, do in BORNE[file].items():
        do(run)
        try:
            if file in TABLES:
                outcome(["query", f"select * from {TABLES[file]}", "--run", "runs/run"])
            said(LATE.get(file, USUAL))
        except Exception as error:
            raise AssertionError(damage) from error
        shutil.rmtree(run)  # a build goes on with what there is
        shutil.copytree(whole, run)


def test_a_torn_last_line_is_still_passed_over(run: Path) -> None:
    for name in ("examples", "conversations", "verdicts"):
        with (run / f"{name}.jsonl").open("a") as file:
            file.write('{"key": "q9/0", "conver')
    everything(run)
    by_query(run)
    assert read_model(run / "run.json", type(Run.open(run).manifest)) == Run.open(run).manifest
