"""Whatever a later step of a command needs is looked for before a run exists or a cent is spent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from convbench.errors import BudgetError, FatalModelError, PreflightError
from convbench.experiments.seal import train_rounds
from convbench.options.shared import CallOptions
from convbench.options.train import RoundsOptions
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.cli import environment
from tests.support.chat.plan import Plan
from tests.support.exhaustive import every_nth
from tests.support.provider import Provider

QUIET = CallOptions(quiet=True)
KEYLESS = "anthropic/claude-3-haiku-20240307"
"""A judge that is priced and whose key is not there."""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Provider(Plan(keep_requests=900)) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.api_base)
        yield server


def built(path: Path, **more: object) -> Run:
    """Three questions, one to test with."""
    values = {"model": "scripted:policy", "tasks": 3, **more}
    sets = ("task.sample.train=0.67",)
    return stages.build("demo", run=path, samples=1, temperatures=(0.5,), set=sets, **values)


def judged_by(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave in a run what a judge leaves in it that is no longer to be had."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    stages.judge(run.path, "hosted_vllm/judge")
    for file in [*run.path.glob("judges/*.json"), run.verdicts_file]:
        file.write_text(file.read_text().replace("hosted_vllm/judge", name))
    monkeypatch.delenv("OPENAI_API_KEY")


def test_eval_asks_nobody_where_the_judge_has_no_key(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = built(tmp_path / "run")
    judged_by(run, KEYLESS, monkeypatch)
    before = provider.stats.calls
    with pytest.raises(FatalModelError, match="ANTHROPIC_API_KEY"):
        stages.evaluate("hosted_vllm/policy", run.path)
    assert provider.stats.calls == before
    assert not run.evals_folder.exists()


def test_eval_asks_nobody_where_the_judge_has_no_price_for_the_budget(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = built(tmp_path / "run")
    stages.judge(run.path, "hosted_vllm/judge")
    before = provider.stats.calls
    with pytest.raises(BudgetError, match="hosted_vllm/judge"):
        stages.evaluate("scripted:policy", run.path, budget=1.0)
    assert provider.stats.calls == before
    assert not run.evals_folder.exists()


def test_no_judge_of_a_panel_is_asked_where_another_has_no_key(
    provider: Provider, tmp_path: Path
) -> None:
    run = built(tmp_path / "run")
    with pytest.raises(FatalModelError, match="ANTHROPIC_API_KEY"):
        stages.judge(run.path, "hosted_vllm/judge", KEYLESS)
    assert provider.stats.calls == 0
    assert not run.verdicts_file.exists()


def test_an_experiment_opens_its_judges_before_it_builds(
    provider: Provider, tmp_path: Path
) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text(json.dumps({
        "name": "mine", "title": "Mine", "tasks": ["demo"], "count": 3, "learners": ["base"],
        "model": "hosted_vllm/policy", "judges": [KEYLESS],
    }))  # fmt: skip
    with pytest.raises(PreflightError, match="ANTHROPIC_API_KEY"):
        stages.experiment(str(spec), run=tmp_path / "root")
    assert provider.stats.calls == 0
    assert not (tmp_path / "root").exists()


def test_an_experiment_asks_where_the_weights_are_before_it_builds(
    provider: Provider, tmp_path: Path
) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text(json.dumps({
        "name": "mine", "title": "Mine", "tasks": ["demo"], "count": 3, "learners": ["swift"],
        "model": "hosted_vllm/policy", "judges": ["rules"],
    }))  # fmt: skip
    with pytest.raises(PreflightError, match="weights are not recorded"):
        stages.experiment(str(spec), run=tmp_path / "root")
    assert provider.stats.calls == 0
    assert not (tmp_path / "root").exists()


def test_rounds_open_the_judge_before_they_train(provider: Provider, tmp_path: Path) -> None:
    run = built(tmp_path / "run", model="local:pocket", tasks=3)
    with pytest.raises(FatalModelError, match="ANTHROPIC_API_KEY"):
        train_rounds(RoundsOptions("swift", 2, run.path, KEYLESS, calls=QUIET))
    assert not run.checkpoints_folder.exists()
    assert not run.verdicts_file.exists()


@pytest.mark.parametrize(
    "policy", ["{run}/checkpoints/nope", "checkpoints/nope", "./nope", "/nope"]
)
def test_a_checkpoint_that_is_not_there_is_no_model_name(
    provider: Provider, tmp_path: Path, policy: str
) -> None:
    run = built(tmp_path / "run")
    (run.checkpoints_folder / "swift").mkdir(parents=True)
    (run.checkpoints_folder / "swift" / "config.json").write_text("{}")
    name = policy.format(run=run.path)
    with pytest.raises(FatalModelError, match="no such folder") as caught:
        stages.evaluate(name, run.path)
    assert ("swift" in str(caught.value)) == (name == str(run.checkpoints_folder / "nope"))
    assert not run.evals_folder.exists()


HIDDEN = """
import sys
from importlib.abc import MetaPathFinder
class Hidden(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "trl", "peft", "accelerate"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
import importlib.util as util
plain = util.find_spec
def find_spec(name, package=None):
    try:
        return plain(name, package)
    except ModuleNotFoundError:
        return None
util.find_spec = find_spec
from convbench.__main__ import main
main()
"""
"""The command line as it is where only the core is installed."""


@pytest.mark.parametrize("words", every_nth(9, [
    ["experiment", "pocket"],
    ["demo"],
    ["build", "demo", "--tasks", "3", "--model", "local:pocket"],
]), ids=lambda words: words[0])  # fmt: skip
def test_without_torch_nothing_is_begun(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, *words], cwd=tmp_path, env=environment(),
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "torch" in done.stderr
    assert "failed" not in done.stderr
    assert not (tmp_path / "runs").exists()
