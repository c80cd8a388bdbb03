"""A run is named by its place or behind `--run`, alike for every command that reads one."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from tests.helpers.typed import Typist
from tests.support.app import app

WORDS = {
    "report": (), "view": (), "judge": (), "status": (),
    "cancel": (), "show": ("demo",),
    "export": ("--to", "trl"), "train": ("swift",),
    "eval": ("scripted:echo",), "publish": ("me/set",),
    "query": ("select 1",), "gold": (),
}  # fmt: skip
"""Commands that read runs, with what else they must be told."""


def params(word: str, *more: str) -> dict[str, object]:
    """What a command is asked for by these words."""
    command = typer.main.get_command(app).commands[word]  # type: ignore[attr-defined]
    return dict(command.make_context(word, [*WORDS[word], *more]).params)


@pytest.mark.parametrize("word", sorted(set(WORDS) - {"gold"}))
def test_both_ways_ask_for_the_same(word: str) -> None:
    by_place, behind = params(word, "runs/a"), params(word, "--run", "runs/a")
    assert by_place == behind == params(word, "./runs/a", "--run", "runs/a") | by_place
    assert by_place != params(word)


@pytest.mark.parametrize("word", sorted(WORDS))
def test_two_runs_in_two_ways_are_a_usage_error(word: str, typist: Typist) -> None:
    said = typist(word, *WORDS[word], "runs/a", "--run", "runs/b")
    assert said.code == 2
    line = " ".join(said.err.replace("│", " ").split())
    assert ("error: gold: found " if word == "gold" else "value for '--run': found ") in line
    assert "runs/a" in line
    assert "runs/b" in line
    assert "one behind --run and one without; expected each run named once" in line


@pytest.mark.parametrize(
    "judge", ["openai/any", "gpt-4o", "rules", "human:labels.csv", "mine.yaml@openai/any", "x@y"]
)
def test_a_judge_in_the_place_of_a_run_is_told_how_it_is_typed(judge: str, typist: Typist) -> None:
    typist("build", "demo", "--model", "scripted:policy", "--tasks", "8", "--run", "runs/a")
    Path("mine.yaml").write_text("kind: rules\n")
    for words, more in ((), ""), (("--run", "runs/a"), " --run runs/a"):
        done = typist("judge", judge, *words)
        assert done.code == 2
        assert done.err.rstrip().endswith(f"behind --judge: convbench judge --judge {judge}{more}")
    answer = typist.json("judge", judge, "--run", "runs/a")
    assert (answer["exit_code"], "behind --judge" in answer["error"]) == (2, True)
    assert "behind --judge" not in typist("judge", "runs/nosuch").err


def test_a_run_that_is_typed_goes_before_a_files(typist: Typist) -> None:
    for name in ("a", "b"):
        typist("build", "demo", "--model", "scripted:policy", "--tasks", "8", "--samples", "1",
               "--temperatures", "0.5", "--run", f"runs/{name}")  # fmt: skip
    Path("convbench.toml").write_text('[judge]\nrun = ["runs/a"]\n[export]\nrun = "runs/a"\n')
    said = typist("judge", "--judge", "rules", "runs/b")
    assert (said.code, "runs/b" in said.out, "convbench.toml" in said.err) == (0, True, False)
    assert "runs/b/export" in typist("export", "--to", "trl", "runs/b").out
    assert "runs/a/export" in typist("export", "--to", "trl").out


def test_gold_takes_its_run_either_way(typist: Typist) -> None:
    typist("build", "demo", "--model", "scripted:policy", "--tasks", "8", "--run", "runs/a")
    said = [typist("gold", *words).out for words in (
        ("runs/a",), ("--run", "runs/a"), ("runs/a", "--run", "./runs/a"))]  # fmt: skip
    assert said[0] == said[1] == said[2] != ""
