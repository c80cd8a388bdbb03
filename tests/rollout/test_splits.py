"""From a source's own files to what is trained on and what is evaluated: the splits hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import DataError, PreflightError
from convbench.experiments.seal import run_seal
from convbench.options.shared import CallOptions
from convbench.options.train import RoundsOptions
from convbench.schema import Example, TaskSpec
from convbench.store import Run
from convbench.tasks.draw import HELD_OUT_REASON, question_words
from convbench.tasks.load import LoadResult, load_examples
from tests.helpers import seal_runs, stages
from tests.helpers.cli import convbench
from tests.helpers.excerpts import Source

QUIET = CallOptions(quiet=True)


def files(folder: Path, **splits: Iterable[dict[str, Any]]) -> Path:
    """Write one file a split, as a copy of a repository has them."""
    folder.mkdir()
    for name, rows in splits.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def function(name: str) -> dict[str, Any]:
    """A ColBench row."""
    text = f"def {name}(x): return x"
    return {"problem_description": f"Write {name}.", "ground_truth": text, "test_cases": "{}"}


def context(number: int, questions: int = 2) -> list[dict[str, Any]]:
    """SQuAD's rows of one passage."""
    return [
        {
            "title": "A_Town", "context": f"Town {number} has {number} gates.",
            "question": f"q{n}?", "answers": {"text": [str(number)], "answer_start": [0]},
        }
        for n in range(questions)
    ]  # fmt: skip


def contexts(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [row for number in numbers for row in context(number)]


def loaded(name: str, place: Path, seed: int = 0, **sets: Any) -> LoadResult:
    chosen = {key.replace("__", "."): value for key, value in sets.items()}
    task = catalog.load_spec(TaskSpec, "tasks", name, sets={"source.file": str(place), **chosen})
    return load_examples(task, seed)


def sizes(examples: Iterable[Example]) -> dict[str, int]:
    return dict(Counter(example.split for example in examples))


@pytest.mark.parametrize("name", ["colbench-backend", "colbench-frontend"])
@pytest.mark.parametrize("seed", [0, 1])
def test_colbench_trains_on_its_train_file_and_tests_on_its_test_file(
    tmp_path: Path, name: str, seed: int
) -> None:
    place = files(
        tmp_path / "rows",
        train=[function(f"learn_{n}") for n in range(300)],
        test=[function(f"held_{n}") for n in range(100)],
    )
    found = loaded(name, place, seed, sample__count=100)
    assert sizes(found.examples) == {"train": 80, "test": 20}
    assert all(("held" in e.question) == (e.split == "test") for e in found.examples)


def test_a_question_of_both_files_is_a_test_question_alone_and_counted(tmp_path: Path) -> None:
    twice = {**function("both"), "problem_description": "write  BOTH"}
    place = files(
        tmp_path / "rows",
        train=[function("both"), *(function(f"learn_{n}") for n in range(9))],
        test=[twice, *(function(f"held_{n}") for n in range(2))],
    )
    found = loaded("colbench-backend", place, sample__count="all")
    assert sizes(found.examples) == {"train": 9, "test": 3}
    assert found.rejected == {HELD_OUT_REASON: 1}


def test_too_few_of_one_official_split_says_which(tmp_path: Path) -> None:
    place = files(
        tmp_path / "rows",
        train=[function(f"learn_{n}") for n in range(99)],
        test=[function("held")],
    )
    with pytest.raises(DataError, match=r"found 1 questions of split test; expected 10 of 50"):
        loaded("colbench-backend", place, sample__count=50)


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_copy_of_one_file_is_split_by_fraction(tmp_path: Path, name: str) -> None:
    place = files(tmp_path / "rows", **{name: [function(f"f_{n}") for n in range(50)]})
    for source in (place, place / f"{name}.jsonl"):
        found = loaded("colbench-backend", source, sample__count=50)
        assert sizes(found.examples) == {"train": 40, "test": 10}


def test_squads_validation_passages_are_its_test_split(tmp_path: Path) -> None:
    place = files(tmp_path / "rows", train=contexts(range(20)), validation=contexts(range(20, 35)))
    found = loaded("squad", place, sample__count=20)
    assert sizes(found.examples) == {"train": 10, "test": 10}
    for example in found.examples:
        number = int(example.inputs["passage"].split()[1])
        assert (number >= 20) == (example.split == "test")
    rows = loaded("squad", place, sample__split="rows", sample__count="all")
    assert sizes(rows.examples) == {"train": 20, "test": 15}


POOLED = {
    "arc": "allenai__ai2_arc/ARC-Challenge",
    "openbookqa": "allenai__openbookqa/main",
    "sciqa": "derek-thomas__ScienceQA/default",
    "mathdial": "eth-nlped__mathdial/default",
}


@pytest.mark.parametrize("name", POOLED)
def test_no_question_is_asked_in_two_splits(name: str, hub_rows: Source) -> None:
    """Mukherjee et al. pool and split by chance: then the same words go to the same split."""
    found = loaded(name, hub_rows.place / POOLED[name], sample__count="all").examples
    places: dict[str, set[str]] = {}
    for example in found:
        places.setdefault(example.group_id, set()).add(example.split)
        places.setdefault(question_words(example), set()).add(example.split)
    assert [text for text, splits in places.items() if len(splits) > 1] == []
    assert len(places) < 2 * len(found), "some share their words or their group"
    assert abs(sizes(found)["test"] - 0.2 * len(found)) <= max(1, 0.005 * len(found))


@pytest.mark.parametrize("dry", [True, False])
def test_build_says_how_many_questions_each_split_has(tmp_path: Path, dry: bool) -> None:
    done = convbench(
        tmp_path, "build", "demo", "--model", "scripted:policy", "--tasks", "10", "--samples",
        "1", "--split", "test", "--run", "run", *(["--dry-run"] if dry else []),
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "questions      8 train, 2 test" in done.out


@pytest.fixture
def untested(tmp_path: Path) -> Run:
    """A run of self-edits with train passages alone."""
    examples = [e.model_copy(update={"split": "train"}) for e in seal_runs.some_examples(2)]
    return seal_runs.edits_run(tmp_path / "run", examples, {examples[0].example_id: ["a", "b"]})


LACKS = r"no question of split test \(2 train\); expected some to evaluate on"


def test_eval_refuses_a_run_without_test_questions(untested: Run) -> None:
    with pytest.raises(DataError, match=LACKS):
        stages.evaluate("local:pocket", untested.path)
    assert untested.child_runs() == []


def test_seal_refuses_a_run_without_test_passages_before_any_round(untested: Run) -> None:
    before = sorted(untested.path.rglob("*"))
    with pytest.raises(DataError, match=LACKS):
        run_seal(RoundsOptions("seal", None, untested.path, "adaptation", calls=QUIET))
    assert sorted(untested.path.rglob("*")) == before


def test_seals_dry_run_refuses_it_too(untested: Run) -> None:
    done = convbench(untested.path.parent, "train", "seal", "--run", "run", "--dry-run")
    assert done.code == 1
    assert "no question of split test (2 train)" in done.err


def test_rounds_refuse_a_run_without_train_questions(tmp_path: Path) -> None:
    examples = [e.model_copy(update={"split": "test"}) for e in seal_runs.some_examples(2)]
    run = seal_runs.edits_run(tmp_path / "run", examples, {})
    with pytest.raises(DataError, match=r"no question of split train \(2 test\)"):
        run_seal(RoundsOptions("seal", None, run.path, "adaptation", calls=QUIET))


@pytest.mark.parametrize("dry", [True, False])
def test_an_experiment_refuses_a_task_without_test_questions(tmp_path: Path, dry: bool) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(
        "title: small\ntasks: [demo]\nmodes: [standard]\nmodel: scripted:policy\n"
        "judges: [rules]\nlearners: [base]\ncount: 4\nsets: {task.sample.train: 1}\n"
    )
    wanted = (
        r"no question of split test \(4 train\).*--set per_task.demo.sets.task.sample.train=0.8"
    )
    asked = {"name": str(file), "run": tmp_path / "root", "dry_run": dry}
    if dry:
        (line,) = stages.experiment(**asked).plan.missing
        assert re.search(wanted, line)
    else:
        with pytest.raises(PreflightError, match=wanted):
            stages.experiment(**asked)
    assert not (tmp_path / "root").exists()


def test_training_without_test_questions_says_so(tmp_path: Path) -> None:
    stages.build(
        "demo", tasks=4, model="scripted:policy", run=tmp_path / "run", set=("task.sample.train=1",)
    )
    stages.judge(tmp_path / "run", "rules")
    result = stages.train("swift", tmp_path / "run", model="local:pocket", dry_run=True)
    assert "no question of split test (4 train): nothing to evaluate on" in result.notes
