"""What `status` and `cancel` print to be typed next, for batches that a build and a judge left at
their provider: each line is run to its end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.cli import Done, finish, start, until
from tests.support.batches import BatchProvider
from tests.support.exhaustive import first_of
from tests.support.next_lines import check_next, next_words

KEYS = {"OPENAI_API_KEY": "k"}
MODEL = "openai/gpt-4o-mini"
BUILD = ("build", "demo", "--tasks", "1", "--samples", "1", "--temperatures", "0.5", "--run", "run")
JUDGE = ("judge", "--judge", f"rubric@{MODEL}", "--run", "run")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchProvider]:
    with BatchProvider() as server:
        monkeypatch.setitem(KEYS, "OPENAI_BASE_URL", server.api_base)
        yield server


def run_here(folder: Path, *words: str) -> Done:
    done = finish(start(folder, *words, extra=KEYS))
    assert done.code == 0, (words, done.out + done.err)
    return done


def leave_batch(folder: Path, provider: BatchProvider, *words: str) -> None:
    """Type a command in batches, and Ctrl-C once its first lies at the provider."""
    provider.plan_batches(looks=0)
    before = provider.summary()["looks"]
    process = start(folder, *words, "--batch", extra=KEYS)
    until(lambda: provider.summary()["looks"] > before, process)
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130


@pytest.mark.parametrize("kind", first_of(["judge", "build"]))
def test_what_status_and_cancel_print_goes_on(
    kind: str, provider: BatchProvider, tmp_path: Path
) -> None:
    if kind == "judge":  # whom to ask is not what the task's own judge would be
        run_here(tmp_path, *BUILD, "--model", MODEL)
    leave_batch(tmp_path, provider, *(JUDGE if kind == "judge" else (*BUILD, "--model", MODEL)))
    go_on(kind, provider, tmp_path)


@pytest.mark.exhaustive
def test_batches_of_a_judge_at_an_address_are_found_there(
    provider: BatchProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's record has the address; neither `status` nor what it prints need be told."""
    run_here(tmp_path, *BUILD, "--model", MODEL)
    monkeypatch.setitem(KEYS, "OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    leave_batch(tmp_path, provider, *JUDGE, "--api-base", provider.api_base)
    go_on("judge", provider, tmp_path)


def test_an_address_that_status_is_told_is_that_of_the_resume(
    provider: BatchProvider, tmp_path: Path
) -> None:
    leave_batch(tmp_path, provider, *BUILD, "--model", MODEL)
    base = ("--api-base", provider.api_base)
    for words in next_words(run_here(tmp_path, "status", "run", *base).out):
        assert words[-2:] == [*base]


@pytest.mark.exhaustive
def test_batches_that_compare_are_gone_on_with_by_what_was_typed(
    provider: BatchProvider, tmp_path: Path
) -> None:
    """No line is printed that would go on with something else."""
    run_here(tmp_path, *BUILD, "--model", MODEL)
    run_here(tmp_path, *BUILD[:-1], "other", "--model", MODEL)
    words = ("judge", "--pairwise", "run", "other", "--judge", f"pairwise@{MODEL}")
    leave_batch(tmp_path, provider, *words)
    for word, printed in (("status", [["cancel", "run"]]), ("cancel", [])):
        done = run_here(tmp_path, word, "run")
        assert next_words(done.out) == printed
        said = " ".join((done.out + done.err).split())
        assert f"convbench judge --pairwise A B --judge pairwise@{MODEL} --batch" in said


def go_on(kind: str, provider: BatchProvider, folder: Path) -> None:
    """Type what `status` prints, and what `cancel` does, to the end."""
    resumed, cancels = next_words(run_here(folder, "status", "run").out)
    check_next(("status", "run"), [resumed, cancels])
    assert (resumed[0], cancels[0]) == (kind, "cancel")
    (again,) = next_words(run_here(folder, *cancels).out)
    assert again == resumed

    provider.plan_batches(looks=1)
    run_here(folder, *again)
    assert "none in progress" in run_here(folder, "cancel", "run").out
    file = folder / "run" / ("verdicts.jsonl" if kind == "judge" else "conversations.jsonl")
    assert len(file.read_text().splitlines()) == 1
