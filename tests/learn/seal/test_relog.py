"""`--rounds` of any recipe: the next round is logged with the policy that came out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from convbench.engine.session import Session
from convbench.experiments.rounds import log_round, run_rounds
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.train import RoundsOptions
from tests.helpers import stages
from tests.support.later import later

torch = later("torch")

QUIET = CallOptions(quiet=True)
SETS = (
    "fit.max_steps=1", "fit.batch_size=8", "fit.accumulation=1", "fit.precision=fp32",
    "fit.gradient_checkpointing=false", "fit.save=end", "fit.learning_rate=1.0e-4",
)  # fmt: skip


@pytest.mark.exhaustive
def test_swift_logs_again_with_its_own_policy(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    folder = tmp_path / "run"
    stages.build("pocket", tasks=10, model="local:pocket", run=folder, samples=3, max_tokens=48)
    asked = RoundsOptions(
        "swift", 2, folder, "rules", evaluate=False, in_process=True,
        specs=SpecOptions(sets=SETS), calls=QUIET,
    )  # fmt: skip
    found = run_rounds(asked)
    first, second = found.rounds
    assert found.judge == "rules"
    base = json.loads((second.checkpoint / "training.json").read_text())["base"]
    assert Path(base) == first.checkpoint.resolve()
    manifest = second.run.manifest
    assert manifest.parent == first.run.manifest.id
    assert (manifest.split, manifest.samples) == ("train", 3)
    asked_about = {c.example_id for c in second.run.conversations()}
    examples = first.run.examples.values()
    assert asked_about == {e.example_id for e in examples if e.split == "train"}
    assert {v.judge for v in second.run.verdicts()} == {"rules"}
    again = run_rounds(asked)
    assert [one.checkpoint for one in again.rounds] == [one.checkpoint for one in found.rounds]
    assert not list((folder / "checkpoints").glob("swift-2"))
    assert second.run.path == folder / "rounds" / "swift" / "2"

    older = second.run.path.rename(folder / "rounds" / "2")  # as older versions laid it
    written = (older / "checkpoints" / "swift" / "training.json").stat().st_mtime_ns
    assert run_rounds(asked).rounds[1].run.path == older
    assert (older / "checkpoints" / "swift" / "training.json").stat().st_mtime_ns == written
    policy = shutil.copytree(first.checkpoint, folder / "checkpoints" / "refit")
    other = log_round(first.run, policy, 2, replace(asked, recipe="refit"), Session())
    assert other.path == folder / "rounds" / "refit" / "2", "another recipe's logs"
    logged_by = Path(other.manifest.cast["assistant"].model.removeprefix("local:"))
    assert logged_by == policy.resolve()
