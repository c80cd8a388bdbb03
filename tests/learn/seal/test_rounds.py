"""The outer loop: rounds, resumed where they stopped, and the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from convbench.engine.session import Session
from convbench.errors import DataError, RunError, SpecError
from convbench.experiments.rounds import (
    RoundsResult,
    examples_of,
    unseen_examples,
)
from convbench.experiments.seal import run_seal, train_rounds
from convbench.experiments.seal_report import as_markdown
from convbench.judges.adaptation.passages import (
    measure_forgetting,
    pretraining_accuracies,
)
from convbench.judges.run import judges_of
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.train import RoundsOptions
from convbench.reports.selfedits import Lessons, forgetting_table
from convbench.store import Run
from tests.helpers import seal_runs, stages
from tests.helpers.self_edits import good
from tests.support.later import later

torch = later("torch")

SETS = (
    "fit.max_steps=2", "fit.batch_size=4", "fit.accumulation=1", "fit.precision=fp32",
    "fit.gradient_checkpointing=false", "fit.save=end", "lora.r=4", "fresh=true",
)  # fmt: skip
QUIET = CallOptions(quiet=True)
JUDGE = """title: quick
extends: adaptation
args: {inner: {r: 8, alpha: 16, epochs: 8, batch_size: 3, seeds: 1, max_tokens: 12,
  learning_rate: 0.005}}
"""


def options(run: Run, specs: Path, *sets: str) -> RoundsOptions:
    return RoundsOptions(
        "seal", None, run.path, str(specs), in_process=True,
        specs=SpecOptions(sets=(*SETS, *sets)), calls=QUIET,
    )  # fmt: skip


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of everything that work leaves behind."""
    names = ("*.jsonl", "training.json", "*.safetensors", "run.json")
    files = [path for name in names for path in folder.rglob(name) if path.name != "calls.jsonl"]
    return {str(f.relative_to(folder)): (f.stat().st_size, f.stat().st_mtime_ns) for f in files}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, RoundsResult]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("rounds")
    (folder / "quick.yaml").write_text(JUDGE)
    examples = seal_runs.some_examples(4)
    edits = {}
    for number, example in enumerate(examples):
        (first, *_), title = example.hidden["questions"], example.inputs["title"]
        *_, prop, _, name = first["question"].rstrip("?").split()
        line = f"- {name} has {prop} {first['answer']}."
        edits[example.example_id] = [good(example), f"- {title}" if number else line]
    run = seal_runs.edits_run(folder / "run", examples, edits)
    result = train_rounds(options(run, folder / "quick.yaml")).result
    assert list(result.taught) == [
        "nothing", "passage only", "untrained self-edits", "round 1", "round 2",
    ]  # fmt: skip
    assert as_markdown(result.taught) == (run.reports_folder / "seal.md").read_text()
    return run, folder / "quick.yaml", result.rounds


@pytest.mark.exhaustive
def test_each_round_learns_from_its_own_policy(done: tuple[Run, Path, RoundsResult]) -> None:
    run, _, result = done
    first, second = result.rounds
    assert first.run.path == run.path
    assert second.run.path == run.path / "rounds" / "seal" / "2"
    policy = second.run.manifest.cast["assistant"].model
    assert Path(policy.removeprefix("local:")) == first.checkpoint.resolve()
    base = json.loads((second.checkpoint / "training.json").read_text())["base"]
    assert Path(base) == first.checkpoint.resolve()
    asked = {c.example_id for c in second.run.conversations()}
    assert len(asked) == sum(e.split == "train" for e in run.examples.values())
    assert not asked & run.examples.keys(), "the recipe's `fresh`: passages that nobody saw"
    learners = {v.details["learner"] for v in second.run.verdicts() if v.failure is None}
    before = {v.details["learner"] for v in run.verdicts() if v.failure is None}
    assert len(learners) == len(before) == 1
    assert learners != before, "round 2 adapts the policy of round 1"
    for one in result.rounds:
        assert one.evaluated is not None
        assert one.evaluated.path == run.evals_folder / f"seal-round-{one.number}"
        splits = {run.examples[c.example_id].split for c in one.evaluated.conversations()}
        assert splits == {"test"}


@pytest.mark.exhaustive
def test_what_is_done_is_not_done_again(done: tuple[Run, Path, RoundsResult]) -> None:
    run, judge, _ = done
    before = state(run.path)
    run_seal(options(run, judge))
    assert state(run.path) == before


@pytest.mark.exhaustive
def test_a_round_that_was_cut_short_goes_on(done: tuple[Run, Path, RoundsResult]) -> None:
    """Verdicts of round 2 are lost: they come back from the kept adaptations, unchanged."""
    run, judge, result = done
    file = result.rounds[1].run.verdicts_file
    whole = {v.conversation_id: v.scores for v in result.rounds[1].run.verdicts()}
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-2]) + lines[-1][:20])
    kept = result.rounds[1].run.path / "adaptations.jsonl"
    size = kept.stat().st_size
    run_seal(options(run, judge), baselines=False)
    assert {v.conversation_id: v.scores for v in result.rounds[1].run.verdicts()} == whole
    assert kept.stat().st_size == size


@pytest.mark.exhaustive
def test_new_passages_are_none_of_the_old_and_too_few_are_said(
    done: tuple[Run, Path, RoundsResult],
) -> None:
    run, judge, result = done
    held = {e.group_id for e in run.examples.values()}
    more = unseen_examples(run, [result.rounds[1].run], 2)
    seen = held | {e.group_id for e in result.rounds[1].run.examples.values()}
    assert len(more) == 4
    assert {e.split for e in more} == {"train"}
    assert not seen & {e.group_id for e in more}
    again = {e.example_id for e in examples_of(run, 2, options(run, judge, "fresh=false"))}
    assert again == run.examples.keys()
    with pytest.raises(DataError, match=r"more train questions in task pocket-notes; expected 198"):
        run_seal(replace(options(run, judge), rounds=100))


@pytest.mark.exhaustive
def test_an_unknown_filter_is_said(done: tuple[Run, Path, RoundsResult]) -> None:
    run, judge, _ = done
    with pytest.raises(SpecError, match=r"filter: .*'best-of-k'"):
        run_seal(options(run, judge, "filter=most"))


@pytest.mark.exhaustive
def test_many_passages(done: tuple[Run, Path, RoundsResult]) -> None:
    run, _, _ = done
    (judge,) = judges_of(run)
    passages = {e.group_id for e in run.examples.values() if e.split == "test"}
    for alone in (False, True):
        values = pretraining_accuracies(run, judge, QUIET, Session(), edits=2, alone=alone)
        assert {name for name, _ in values} == passages
        assert all(0 <= value <= 1 for _, value in values)
    (found,) = measure_forgetting(run, judge, QUIET, Session(), sequences=1, length=2)
    assert [len(row) for row in found.after] == [1, 2]
    table = forgetting_table("edits", [Lessons(found.after, found.base)])
    assert len(table.rows) == 3, "two edits, and before them"
    kept = (run.path / "sequences.jsonl").read_bytes()
    assert measure_forgetting(run, judge, QUIET, Session(), sequences=1, length=2) == [found]
    assert (run.path / "sequences.jsonl").read_bytes() == kept, "nothing anew"
    with pytest.raises(RunError, match="test with a self-edit; expected 3"):
        measure_forgetting(run, judge, QUIET, Session(), sequences=1, length=3)


@pytest.mark.exhaustive
def test_measurements_are_added_afterwards(done: tuple[Run, Path, RoundsResult]) -> None:
    """Of finished rounds, as fields of the recipe: tables on the page and in the report."""
    run, judge, _ = done
    trained = {f: m for f, m in state(run.path).items() if f.endswith("training.json")}
    with pytest.raises(RunError, match="found 2 passages of split test; expected 8"):
        run_seal(options(run, judge, "args.sequences=1"))
    more = ("args.pretraining=1", "args.sequences=1", "args.length=2")
    file = train_rounds(options(run, judge, *more)).table
    assert file is not None
    text = file.read_text()
    assert text.count("| passage only |") == 2, "one passage at a time, and all at once"
    assert text.count("| after edit |") == 3
    after = {f: m for f, m in state(run.path).items() if f.endswith("training.json")}
    assert after == trained
    report = stages.report(run.path).document
    captions = [table.caption for part in report.parts for table in part.tables]
    for name in ("passage only", "untrained self-edits", "SEAL round 2"):
        assert f"One passage after the other: {name}" in captions
    at_once = next(part for part in report.parts if "continued pre-training" in part.title)
    names = {str(row.cells[0]) for row in at_once.tables[0].rows}
    assert {"passage only", "untrained self-edits", "SEAL round 2"} <= names


def test_the_page_of_self_edits_has_a_row_for_each_kind() -> None:
    text = as_markdown({
        "untrained self-edits": [("a", 0.0), ("a", 0.5), ("b", 0.25)],
        "round 1": [("a", 0.5), ("b", 0.5), ("c", 1.0)],
    })  # fmt: skip
    (found,) = (line for line in text.splitlines() if line.startswith("| round 1"))
    assert found == "| round 1 | 0.667 ±0.167 | 3 | 3 |"
