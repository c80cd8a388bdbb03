"""From a run and its evaluations to a whole table: `judge` covers both, and a report that lacks
something says what to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import convbench
from convbench.store import Run
from tests.helpers.typed import Said, Typist


def nexts(said: Said) -> list[list[str]]:
    """The commands that a reader is told to type."""
    lines = [line for line in said.out.splitlines() if line.startswith("next: convbench ")]
    return [shlex.split(line.removeprefix("next: convbench ").split("   ")[0]) for line in lines]


def won_by(report: str) -> set[str]:
    """The judges in the table of win rates of a report."""
    table = report.partition("\nWin rates\n")[2].partition("\n\n")[0]
    return set(re.findall(r"^.+ over .+?  +(\S+) +[01]\.\d{3} ", table, re.MULTILINE))


@pytest.fixture
def run(typist: Typist) -> Path:
    """A run with two evaluations, of which nothing is judged."""
    path = Path("runs") / "my run"
    build = ("build", "demo", "--model", "scripted:policy", "--tasks", "8", "--run", str(path))
    assert typist(*build).code == 0
    for name in ("one", "two"):
        said = typist("eval", "scripted:echo", "--name", name, "--run", str(path))
        assert said.code == 0, said.err
        assert "scores it and its evaluations" in said.err
    return path


def scored(path: Path) -> list[int]:
    """Verdicts of a run and of its evaluations."""
    run = Run.open(path)
    return [sum(1 for _ in one.verdicts()) for one in (run, *run.child_runs())]


def test_a_report_that_lacks_verdicts_ends_with_what_to_type(typist: Typist, run: Path) -> None:
    report = typist("report", str(run))
    command = next(words for words in nexts(report) if words[0] == "judge")
    assert command == ["judge", "--judge", "rules"]
    assert typist(*command).code == 0
    assert scored(run) == [24, 6, 6]
    assert not any(words[0] == "judge" for words in nexts(typist("report", str(run))))
    (run / "evals" / "two" / "verdicts.jsonl").unlink()
    report = typist("report", str(run))
    assert ["judge", "--judge", "rules"] in nexts(report)
    assert typist.json("report", str(run))["next"][0].split()[1:] == ["judge", "--judge", "rules"]


def test_a_report_that_lacks_conversations_says_what_builds_them(typist: Typist, run: Path) -> None:
    file = run / "evals" / "one" / "conversations.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-2]))
    command = next(words for words in nexts(typist("report", str(run))) if words[0] == "build")
    assert command == ["build", "--run", str(run / "evals" / "one")]
    assert typist(*command).code == 0
    assert not any(words[0] == "build" for words in nexts(typist("report", str(run))))


def test_one_evaluation_can_be_judged_alone_and_labels_are_of_the_run(
    typist: Typist, run: Path
) -> None:
    assert typist("judge", "--judge", "rules", "--run", str(run / "evals" / "one")).code == 0
    assert scored(run) == [0, 6, 0]
    ids = [talk.conversation_id for talk in Run.open(run).conversations()]
    Path("labels.csv").write_text("conversation_id,overall\n" + "".join(f"{i},5\n" for i in ids))
    assert typist("judge", "--judge", "human:labels.csv", "--run", str(run)).code == 0
    assert scored(run) == [24, 6, 0]


def test_a_dry_run_tells_of_each(typist: Typist, run: Path) -> None:
    found = typist.json("judge", "--judge", "rules", "--run", str(run), "--dry-run")["result"]
    assert [one["estimate"]["rules"]["conversations"] for one in found["runs"]] == [24, 6, 6]
    assert [one["run"] for one in found["runs"]] == [
        "runs/my run", "runs/my run/evals/one", "runs/my run/evals/two",
    ]  # fmt: skip


def test_python_covers_evaluations_too(run: Path) -> None:
    convbench.judge(run, "rules", quiet=True)
    assert scored(run) == [24, 6, 6]


@pytest.mark.parametrize("sides", [("runs/a", "runs/b"), ("base", "two")])
def test_the_line_after_pairwise_is_a_command_that_works(
    typist: Typist, run: Path, sides: tuple[str, str]
) -> None:
    for name, model in (("a", "scripted:policy"), ("b", "scripted:echo")):
        typist("build", "demo", "--model", model, "--tasks", "8", "--run", f"runs/{name}")
    typist("build", "demo", "--model", "scripted:policy", "--tasks", "2", "--run", "runs/newest")
    said = typist("judge", "--pairwise", *sides, "--judge", "pairwise-rules", "--run", str(run))
    assert said.code == 0, said.err
    (command,) = nexts(said)
    report = typist(*command)
    assert report.code == 0, report.err
    assert won_by(report.out) == {"pairwise-rules"}


def test_runs_without_test_questions_are_compared_and_reported_all_the_same(
    typist: Typist,
) -> None:
    build = ("build", "demo", "--model", "scripted:policy", "--tasks", "6", "--split", "train")
    for name in ("a", "b"):
        typist(*build, "--run", f"runs/{name}")
    done = typist("judge", "--pairwise", "runs/a", "runs/b", "--judge", "pairwise-rules")
    assert done.code == 0, done.err
    (command,) = nexts(done)
    report = typist(*command)
    assert report.code == 0, report.err
    assert won_by(report.out) == {"pairwise-rules"}


def test_runs_of_other_samples_are_compared_and_reported_all_the_same(typist: Typist) -> None:
    for name, samples in (("a", "2"), ("b", "1")):
        build = ("build", "demo", "--model", "scripted:policy", "--tasks", "8")
        typist(*build, "--samples", samples, "--temperatures", "0.5", "--run", f"runs/{name}")
    done = typist("judge", "--pairwise", "runs/a", "runs/b", "--judge", "pairwise-rules")
    assert done.code == 0, done.err
    (command,) = nexts(done)
    assert command == ["report", "runs/a", "runs/b", "--allow-incomparable"]
    report = typist(*command)
    assert report.code == 0, report.err
    assert won_by(report.out) == {"pairwise-rules"}
