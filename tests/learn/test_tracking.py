"""What a tracker is told, read back from a real one; and what it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import MissingDependency, SpecError
from convbench.store.run import Run
from tests.helpers import stages
from tests.learn import tiny

KEY = "sk-0123456789abcdefghijklmnop"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A judged run of a tiny model."""
    folder = tmp_path_factory.mktemp("very-private-folder")
    return tiny.judged_run(folder / "run", f"local:{tiny.save_model(folder / 'model')}")


def do(run: Run, out: Path, *sets: str, **more: Any) -> Path:
    """Train two steps."""
    quick = ("fit.max_steps=2", "fit.gradient_checkpointing=false", "fit.log_every=1",
             "fit.save=end", "data.unit=conversation", "launch=none")  # fmt: skip
    result = stages.train("swift", run.path, out=out, in_process=True, set=(*quick, *sets), **more)
    assert result.path is not None
    return result.path


def test_tensorboard_gets_the_numbers_and_the_recipe_and_no_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("SOME_API_KEY", KEY)
    path = do(run, tmp_path / "out", f"args={{note: {KEY}}}", track="tensorboard")
    events = EventAccumulator(str(path / "tracking"))
    events.Reload()
    log = json.loads((path / "training.json").read_text())["log"]
    for name in ("loss", "grad_norm", "log_pi_positive"):
        told = [(one.step, one.value) for one in events.Scalars(f"train/{name}")]
        wanted = [(one["step"], one[name]) for one in log if name in one]
        assert told == [(step, pytest.approx(value, rel=1e-5)) for step, value in wanted]
    said = events.Tensors("recipe/text_summary")[0].tensor_proto.string_val[0].decode()
    assert f"{run.manifest.id}/swift" in said
    assert "| fit.max_steps | 2 |" in said
    assert "| model | model |" in said
    raw = b"".join(file.read_bytes() for file in (path / "tracking").iterdir())
    for secret in (KEY, "very-private-folder", str(tmp_path)):
        assert secret.encode() not in raw


def test_trackio_gets_the_same_and_neither_user_nor_machine(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the package itself; it wants an older pillow than the constraints have."""
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "trackio")
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio")
    path = do(run, tmp_path / "out", track="trackio")
    log = json.loads((path / "training.json").read_text())["log"]
    name = f"{run.manifest.id}/swift"
    told = SQLiteStorage.get_logs("convbench", name)
    assert [one["loss"] for one in told if "loss" in one] == [e["loss"] for e in log if "loss" in e]
    config = SQLiteStorage.get_run_config("convbench", name)
    assert (config["fit.max_steps"], config["model"]) == (2, "model")
    assert config["_Username"] is None
    assert not SQLiteStorage.get_system_logs("convbench", name)
    raw = b"".join(file.read_bytes() for file in (tmp_path / "trackio").rglob("*.db*"))
    assert b"very-private-folder" not in raw


def test_a_package_that_is_missing_is_one_line_before_anything_is_trained(
    run: Run, tmp_path: Path
) -> None:
    with pytest.raises(MissingDependency, match=r"--track wandb.*pip install wandb"):
        do(run, tmp_path / "out", track="wandb")
    assert not (tmp_path / "out").exists()
    with pytest.raises(SpecError, match=r"fit.trackers"):
        do(run, tmp_path / "out", "fit.trackers=[clearml]")
