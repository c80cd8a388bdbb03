"""An experiment whose policy and checkpoints are served: the interpreter named for it is started,
answers, and is gone before the next step."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from convbench.errors import PreflightError
from convbench.experiments.run import StepProgress
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.vllm import python
from tests.support.processes import gone

__all__ = ["python"]
SPEC = {
    "extends": "pocket", "title": "served", "tasks": ["demo"], "seeds": [0], "learners": ["refit"],
    "model": "vllm:pocket", "count": 6, "samples": 1, "temperatures": [0.7], "max_tokens": 16,
    "devices": {"vllm": {"policy": {"max-model-len": 512}}},
    "recipe_sets": {"all": {"fit.max_steps": 1, "fit.save": "end"}},
}  # fmt: skip


@pytest.mark.exhaustive
def test_the_interpreter_named_serves_policy_and_checkpoint(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("served.yaml").write_text(yaml.safe_dump(SPEC))
    monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", str(python))
    pids = tmp_path / "pid"

    def tell(progress: StepProgress) -> None:
        if pids.exists():
            assert all(gone(int(pid), seconds=0.1) for pid in pids.read_text().split())

    found = stages.experiment("served.yaml", run=Path("root"), tell=tell)
    assert {one.state for one in found.outcomes} == {"done"}, found.failure_lines
    cell = Run.open(tmp_path / "root" / "demo-thinking-seed0")
    [evaluated] = cell.child_runs()
    assert len(pids.read_text().split()) == 2, "one server for the build, one for the checkpoint"
    assert all(gone(int(pid)) for pid in pids.read_text().split())
    for run, name in ((cell, "vllm:pocket"), (evaluated, "vllm:")):
        policy = run.manifest.protocol.policy
        assert run.manifest.cast[policy].model.startswith(name)
        said = [t for c in run.conversations() for t in c.turns if t.speaker == policy]
        assert said
        assert all(turn.content for turn in said)
    [log] = evaluated.path.glob("vllm-*.log")
    assert "checkpoints/refit" in log.read_text()


def test_an_interpreter_without_vllm_is_missing_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("served.yaml").write_text(yaml.safe_dump(SPEC))
    monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", "/nowhere/python")
    with pytest.raises(PreflightError, match=r"found no vLLM.*found /nowhere/python"):
        stages.experiment("served.yaml", run=Path("root"))
    assert not Path("root").exists()
