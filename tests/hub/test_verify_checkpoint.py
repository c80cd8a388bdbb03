"""`verify`: a checkpoint or an evaluation that was changed, and its folder sealed again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from convbench.hub.verify import verify_target
from convbench.learn.checkpoint_seal import seal_checkpoint
from convbench.reports.verification import misplaced_evaluations
from convbench.store import Run
from tests.helpers import stages
from tests.reports.synthetic import make, questions


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two policies that were trained in it, and their evaluations."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("trained") / "run"
    shape = {"mode": "thinking", "max_tokens": 32, "samples": 2, "temperatures": (0.7,)}
    stages.build("pocket", tasks=20, model="local:pocket", run=folder, **shape)
    stages.judge(folder, "rules")
    for recipe in ("refit", "star-gate"):
        done = stages.train(
            recipe, folder, set=("fit.max_steps=2", "fit.epochs=1"), in_process=True
        )
        stages.evaluate(str(done.path), folder)
    return folder


def flip_a_weight(run: Path) -> None:
    """Change one bit in the middle of the weights."""
    file = run / "checkpoints" / "refit" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    seal_checkpoint(file.parent)


def change_the_rate(run: Path) -> None:
    """Say another learning rate than was trained with."""
    file = run / "checkpoints" / "refit" / "recipe.yaml"
    lines = file.read_text().splitlines()
    said = [f"{line}1" if line.lstrip().startswith("learning_rate:") else line for line in lines]
    assert said != lines
    file.write_text("\n".join(said) + "\n")
    seal_checkpoint(file.parent)


def change_the_rate_unevaluated(run: Path) -> None:
    """The same where no evaluation has seen the checkpoint."""
    change_the_rate(run)
    shutil.rmtree(run / "evals" / "refit")


def swap_two_evaluations(run: Path) -> None:
    """Give each evaluation the other's name."""
    evals = run / "evals"
    (evals / "refit").rename(evals / "other")
    (evals / "star-gate").rename(evals / "refit")
    (evals / "other").rename(evals / "star-gate")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (flip_a_weight, "refit: evaluated a checkpoint of fingerprint"),
        (change_the_rate, "refit: evaluated a checkpoint of fingerprint"),
        (change_the_rate_unevaluated, "recipe.yaml: fit.learning_rate: says"),
        (swap_two_evaluations, "was made as star-gate; its folder is named refit"),
    ],
)
def test_what_was_changed_and_sealed_again_is_found(
    trained: Path, tmp_path: Path, change: Callable[[Path], None], says: str
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "moved"))
    assert verify_target(str(run)).problems == []
    change(run)
    found = verify_target(str(run)).problems
    assert any(says in text for text in found), found


def test_swapped_evaluations_are_told_by_their_checkpoints_too(tmp_path: Path) -> None:
    """Where their names were not written down when they were made."""
    run = make(tmp_path / "run", questions(2), lambda q, k: "A")
    for name in ("swift", "dpo"):
        make(run.evals_folder / name, questions(2), lambda q, k: "A", parent=run.manifest.id,
             checkpoint=f"x/checkpoints/{name}")  # fmt: skip
    assert list(misplaced_evaluations(run)) == []
    swap = run.evals_folder / "swap"
    (run.evals_folder / "swift").rename(swap)
    (run.evals_folder / "dpo").rename(run.evals_folder / "swift")
    swap.rename(run.evals_folder / "dpo")
    found = {child.path.name: text for child, text in misplaced_evaluations(Run.open(run.path))}
    assert found == {
        "swift": "was made as dpo; its folder is named swift",
        "dpo": "was made as swift; its folder is named dpo",
    }
