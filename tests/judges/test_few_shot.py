"""Few-shot self-edits through every room: build, judge, train, report, view, with the real policy
of the small grids."""

from __future__ import annotations

import json

import pytest

from convbench.experiments.seal import train_rounds
from convbench.judges.few_shot.baselines import CONTROL
from convbench.options.shared import SpecOptions
from convbench.options.train import RoundsOptions
from convbench.reports.write import render_markdown
from convbench.store import Run
from convbench.tasks.arc_agi.edit import SelfEdit
from tests.helpers import few_shot_runs, stages
from tests.support.later import later

torch = later("torch")

JUDGE = """title: quick
extends: few-shot-pocket
args: {r: 8, max_rows: 4, max_tokens: 12, oracle: {tools: [], learning_rate: 1.0e-2,
                                                       num_train_epochs: 40}}
"""
SETS = (
    "fit.max_steps=2", "fit.precision=fp32", "fit.gradient_checkpointing=false", "fit.save=end",
)  # fmt: skip
GOOD = SelfEdit(frozenset({"basic"}), "train_using_output_tokens", 1e-2, 40)
BAD = SelfEdit(frozenset(), "train_using_all_tokens", 1e-6, 1)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("few-shot")
    (folder / "quick.yaml").write_text(JUDGE)
    tasks = [few_shot_runs.alike(one) for one in few_shot_runs.some_tasks(2)]
    edits = {one.example_id: [GOOD.to_json(), BAD.to_json()] for one in tasks}
    run = few_shot_runs.edits_run(folder / "run", tasks, edits)
    options = RoundsOptions(
        "seal-few-shot", None, run.path, str(folder / "quick.yaml"), in_process=True,
        specs=SpecOptions(sets=SETS), calls=few_shot_runs.QUIET,
    )  # fmt: skip
    found = train_rounds(options)
    assert found.table is not None
    kept = (run.path / "few-shot.jsonl").read_bytes()
    again = train_rounds(options)
    assert again.result.taught == found.result.taught
    assert (run.path / "few-shot.jsonl").read_bytes() == kept, "nothing is judged twice"
    return run, found.table.read_text()


@pytest.mark.exhaustive
def test_the_table_stands_beside_its_baselines(done: tuple[Run, str]) -> None:
    run, _ = done
    taught = json.loads((run.reports_folder / "self-edits.json").read_text())
    assert list(taught) == [
        "nothing", "best known settings (oracle)", CONTROL, "untrained self-edits", "round 1",
    ]  # fmt: skip
    assert taught[CONTROL] == taught["best known settings (oracle)"], (
        "the good edit of the train task"
    )
    (nothing,), (best,) = taught["nothing"], taught["best known settings (oracle)"]
    assert (nothing[1], best[1]) == (0.0, 1.0)
    assert sorted(value for _, value in taught["untrained self-edits"]) == [0.0, 1.0]
    assert len(taught["round 1"]) == 2, "written by the new policy, and learnt by it"


def test_every_right_edit_is_learnt_and_no_other(done: tuple[Run, str]) -> None:
    run, _ = done
    training = json.loads((run.checkpoints_folder / "seal-few-shot" / "training.json").read_text())
    assert training["counts"]["rows"] == 1, "the good one of the train task"
    assert training["counts"]["tokens with loss"] == 18, "the edit and its end"
    (child,) = run.child_runs()
    assert child.manifest.split == "test"
    ours, base = ({v.details["learner"] for v in one.verdicts()} for one in (child, run))
    assert len(ours) == len(base) == 1
    assert ours != base, "the new policy learns its own edits"


def test_the_report_tells_success_choices_and_the_paper(done: tuple[Run, str]) -> None:
    run, text = done
    assert "best one is chosen" not in text, "a try that is right or wrong has no finer grade"
    text = render_markdown(stages.report(run.path, paper=True).document)
    assert "best known settings (oracle)" in text
    assert CONTROL in text
    lines = [one.split("|") for one in text.splitlines() if "printed" in one]
    for value in ("0.00", "0.20", "0.72", "1.00"):  # ICL, untrained edits, SEAL, the oracle
        assert any(value in "".join(line) for line in lines), value
