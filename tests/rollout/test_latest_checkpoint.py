"""What an evaluation records of a checkpoint that was named through `runs/latest`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import convbench
from tests.helpers.typed import Typist

WEIGHTS = Path(convbench.__file__).parent / "pocket" / "weights"
BUILD = ("build", "pocket", "--tasks", "4", "--samples", "1", "--temperatures", "0.5",
         "--model", "scripted:policy")  # fmt: skip


def test_it_is_the_run_that_the_link_named(typist: Typist) -> None:
    assert typist(*BUILD, "--run", "runs/first").code == 0
    checkpoint = Path("runs/first/checkpoints/tuned")
    shutil.copytree(WEIGHTS, checkpoint)
    typed = ("eval", "runs/latest/checkpoints/tuned")
    assert typist(*typed).code == 0
    manifest = Path("runs/first/evals/tuned/run.json")
    record = json.loads(manifest.read_text())
    assert record["cast"]["assistant"]["model"] == f"local:{checkpoint}"
    assert record["checkpoint"] == str(checkpoint)
    assert "runs/latest" not in manifest.read_text()
    assert "runs/latest" not in manifest.with_name("calls.jsonl").read_text()
    # One that an older version recorded by the link goes on, by either name.
    manifest.write_text(
        manifest.read_text().replace(
            f'"local:{checkpoint}"', '"local:runs/latest/checkpoints/tuned"'
        )
    )
    for policy in ("runs/latest/checkpoints/tuned", str(checkpoint)):
        assert typist("eval", policy).code == 0
