"""Lines of one table are sampled by one engine where it can be; else the table says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.store.run import Run
from tests.helpers import stages, tiny
from tests.helpers.runs import write
from tests.helpers.vllm import python

__all__ = ["python"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tiny.save_model(tmp_path / "swift")


def policy_of(run: Run) -> str:
    return run.manifest.cast[run.manifest.protocol.policy].model


def evaluated(run: Run, policy: Path | str) -> Run:
    """The evaluation as it would be written."""
    return stages.evaluate_result(str(policy), run.path, dry_run=True).run


def test_a_checkpoint_is_sampled_by_the_engine_of_its_log(
    checkpoint: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny.judged_run(tmp_path / "run", f"vllm:{checkpoint}")
    monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", str(python))
    child = evaluated(run, checkpoint)
    assert policy_of(child) == f"vllm:{checkpoint}"
    member = child.manifest.cast[child.manifest.protocol.policy]
    assert member.fingerprint is not None, "`verify` knows the weights"
    assert policy_of(evaluated(run, f"local:{checkpoint}")) == f"local:{checkpoint}"
    monkeypatch.delenv("CONVBENCH_VLLM_PYTHON")
    assert policy_of(evaluated(run, checkpoint)) == f"local:{checkpoint}", "without vLLM"
    local = tiny.judged_run(tmp_path / "local", f"local:{checkpoint}")
    monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", str(python))
    assert policy_of(evaluated(local, checkpoint)) == f"local:{checkpoint}"


def test_an_evaluation_that_exists_keeps_its_engine(
    checkpoint: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny.judged_run(tmp_path / "run", f"vllm:{checkpoint}")
    child = evaluated(run, checkpoint)
    assert policy_of(child) == f"local:{checkpoint}"
    write(child.path, child.manifest, run.examples.values())
    monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", str(python))
    again = evaluated(run, checkpoint)
    assert policy_of(again) == f"local:{checkpoint}"
