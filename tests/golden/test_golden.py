"""What the program makes of the same input is what it made before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.judges import (
    ASKING,
    asked_run,
    grader_prompts,
    requests,
    simulated_run,
    verdicts,
)
from tests.golden.logs import FORMATS, imported
from tests.golden.outputs import (
    EXPORTS,
    card,
    compared_run,
    exported,
    published,
    published_rows,
    published_traces,
    query_lines,
    statistics,
)
from tests.golden.plays import asked_again, demo_figures, local_replies
from tests.golden.record import GOLDEN, Recorder
from tests.golden.run import make_run
from tests.golden.tasks import TASKS, draws, prompts
from tests.helpers.excerpts import EXCERPTS, written


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Excerpts of public sets as parquet."""
    return written(EXCERPTS / "hub", tmp_path_factory.mktemp("golden-hub"))


@pytest.mark.parametrize("task", TASKS)
def test_prompts_of_every_call(golden: Recorder, hub: Path, task: str) -> None:
    golden.compare(f"prompts/{task}.jsonl", prompts(task, hub))


def test_draws(golden: Recorder, hub: Path) -> None:
    golden.compare("draws.jsonl", [line for task in TASKS for line in draws(task, hub)])


@pytest.fixture(scope="session")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that judges are asked about."""
    return asked_run(tmp_path_factory.mktemp("golden-asked"))


@pytest.mark.parametrize("judge", ASKING)
def test_what_a_judge_sends(golden: Recorder, asked: Path, judge: str) -> None:
    golden.compare(f"judges/{judge}.jsonl", requests(judge, asked))


def test_what_a_reviewer_of_simulated_humans_sends(golden: Recorder, tmp_path: Path) -> None:
    golden.compare("judges/simulator.jsonl", requests("simulator", simulated_run(tmp_path)))


def test_what_a_grader_of_answers_is_sent(golden: Recorder) -> None:
    golden.compare("judges/adaptation-grader.jsonl", grader_prompts())


@pytest.mark.parametrize("judge", ["rules", "answer"])
def test_what_a_judge_without_a_model_finds(golden: Recorder, tmp_path: Path, judge: str) -> None:
    golden.compare(f"judges/{judge}.jsonl", verdicts(judge, make_run(tmp_path / "run")))


@pytest.mark.parametrize("name", EXPORTS)
def test_exports(golden: Recorder, golden_run: Path, tmp_path: Path, name: str) -> None:
    golden.compare(f"exports/{name}.jsonl", exported(name, golden_run, tmp_path / "out"))


@pytest.fixture(scope="session")
def published_set(golden_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that would be published of the run."""
    return published(golden_run, tmp_path_factory.mktemp("golden-set") / "set")


@pytest.mark.parametrize("table", ["conversations", "turns", "verdicts", "examples"])
def test_published_tables(golden: Recorder, published_set: Path, table: str) -> None:
    golden.compare(f"published/{table}.jsonl", published_rows(table, published_set))


def test_published_traces_and_card(golden: Recorder, published_set: Path) -> None:
    golden.compare("published/traces.jsonl", published_traces(published_set))
    golden.compare("published/card.json", [card(published_set)])


def test_queries(golden: Recorder, golden_run: Path) -> None:
    golden.compare("queries.jsonl", query_lines(golden_run))


def test_statistics(golden: Recorder, tmp_path: Path) -> None:
    found = statistics(compared_run(tmp_path))
    golden.compare("statistics.jsonl", found, digits=12, relative=1e-9)


@pytest.mark.parametrize("name", FORMATS)
def test_imports(golden: Recorder, tmp_path: Path, name: str) -> None:
    golden.compare(f"imports/{name}.json", [imported(name, tmp_path)])


def test_local_replies(golden: Recorder, tmp_path: Path) -> None:
    golden.compare("local.jsonl", local_replies(tmp_path))


def test_keys_that_a_resumed_run_asks_again(golden: Recorder, tmp_path: Path) -> None:
    golden.compare("resume.jsonl", asked_again(tmp_path))


@pytest.mark.exhaustive
def test_figures_of_the_demo(
    golden: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    golden.compare("demo.json", [demo_figures(tmp_path)], relative=1e-3)


def test_no_golden_is_left_over() -> None:
    expected = {
        "prompts": TASKS,
        "judges": [*ASKING, "simulator", "adaptation-grader", "rules", "answer"],
        "exports": EXPORTS,
        "imports": FORMATS,
    }
    for folder, names in expected.items():
        assert {file.stem for file in (GOLDEN / folder).iterdir()} == set(names), folder
