"""Off-policy evaluation from a recorded log to the line that a user reads, or to its refusal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.estimate import PolicyEstimate, estimate_policy
from convbench.options.estimate import EstimateOptions
from convbench.store.run import Run
from tests.helpers import stages, tiny

SETS = (
    "launch=none", "data.unit=conversation", "fit.gradient_checkpointing=false", "fit.save=end",
    "fit.precision=fp32", "fit.max_steps=3", "fit.accumulation=1", "lora=null",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A judged log of the embedded policy, its log-probabilities recorded, 36 test questions."""
    path = tmp_path_factory.mktemp("log") / "run"
    shape = {"max_tokens": 96, "samples": 2, "temperatures": (0.7, 1.0)}
    sets = ("task.sample.split=fraction", "task.sample.train=0.25")
    stages.build(
        "pocket", tasks=48, model="local:pocket", run=path, logprobs=True, **shape, set=sets
    )
    stages.judge(path, "rules")
    return Run.open(path)


@pytest.fixture(scope="module")
def policy(run: Run) -> Path:
    """A policy some steps away."""
    done = stages.train("refit", run.path, set=(*SETS, "fit.learning_rate=2e-5"), in_process=True)
    assert done.path is not None
    return done.path


def asked(run: Run, policy: Path | str, **more: Any) -> PolicyEstimate:
    return estimate_policy(EstimateOptions(str(policy), run.path, **more))


@pytest.mark.exhaustive
def test_a_near_policy_is_valued_by_either_source_of_probabilities(run: Run, policy: Path) -> None:
    """Computed with the log's own weights, and as they were recorded when it was sampled."""
    told, recorded = asked(run, policy), asked(run, policy, pi_0="recorded")
    assert told.unknown == recorded.unknown == []
    assert set(told.values) == {"snips", "doubly robust", "gain"}
    for name, value in told.values.items():
        assert value.mean == pytest.approx(recorded.values[name].mean, abs=2e-3)
        assert value.interval is not None
    own = told.logged
    assert own is not None
    assert told.values["gain"].mean == pytest.approx(told.values["snips"].mean - own.mean)
    assert told.conversations == 72
    same = asked(run, "local:pocket")
    assert same.values["snips"].mean == pytest.approx(own.mean, abs=1e-6)


@pytest.mark.exhaustive
def test_a_reward_model_gives_the_direct_value_and_sharpens_the_robust_one(
    run: Run, policy: Path
) -> None:
    with pytest.raises(TrainError, match=r"convbench eval .* --run"):
        asked(run, policy, model_judge="rules")
    child = stages.evaluate(str(policy), run.path)
    found = asked(run, policy, model_judge="rules").values
    rewards = [v.reward for v in child.verdicts() if v.reward is not None]
    assert found["direct"].mean == pytest.approx(fmean(rewards))
    robust, direct = found["doubly robust"], found["direct"]  # the model is right everywhere
    assert (robust.mean, robust.error) == (pytest.approx(direct.mean), pytest.approx(direct.error))
    with pytest.raises(TrainError, match="found no verdicts of gpt-4o"):
        asked(run, policy, model_judge="gpt-4o")


def manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        told = json.loads((path / "run.json").read_text())
        change(told)
        (path / "run.json").write_text(json.dumps(told))

    return apply


def speaker(told: dict[str, Any]) -> str:
    """The policy's name."""
    return next(name for name, one in told["protocol"]["speakers"].items() if one.get("policy"))


def nucleus(told: dict[str, Any]) -> None:
    told["cast"][speaker(told)]["sampling"]["top_p"] = 0.9


def served(told: dict[str, Any], **more: Any) -> None:
    """By a server, under a name whose weights lie in a folder here."""
    folder = Path(told["id"]).absolute()
    folder.mkdir()
    (folder / "generation_config.json").write_text('{"top_p": 0.9, "top_k": 50}')
    member = told["cast"][speaker(told)]
    member |= {"model": "openai/served", "weights": str(folder), **more}


def recorded(told: dict[str, Any]) -> None:
    told["cast"][speaker(told)]["own_sampling"] = {"top_k": 20}


def elsewhere(told: dict[str, Any]) -> None:
    told["cast"][speaker(told)]["model"] = "openai/gpt-4o"


def greedy(path: Path) -> None:
    file = path / "conversations.jsonl"
    file.write_text(file.read_text().replace('"temperature":0.7', '"temperature":0.0'))


def unrecorded(path: Path) -> None:
    (path / "logprobs.bin").unlink()


@pytest.mark.parametrize(("change", "more", "why"), [
    (None, {"split": "train"}, "trained on the train questions"),
    (manifest(nucleus), {}, "top_p 0.9, which gives all other tokens probability 0"),
    (manifest(served), {}, "draws with top_p 0.9 by its own configuration.*build --top-p 1"),
    (manifest(recorded), {}, "draws with top_k 20 by its own configuration"),
    (manifest(elsewhere), {}, "'openai/gpt-4o', whose weights are not recorded.*--logprobs"),
    (greedy, {}, "36 of 72 conversations were sampled at temperature 0"),
    (unrecorded, {"pi_0": "recorded"}, "no log-probabilities of this model's tokens for 36 of 36"),
])  # fmt: skip
def test_what_cannot_be_known_is_not_estimated(
    run: Run,
    policy: Path,
    tmp_path: Path,
    change: Any,
    more: dict[str, Any],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    log = run
    if change is not None:
        shutil.copytree(run.path, tmp_path / "log", ignore=shutil.ignore_patterns("checkpoints"))
        change(tmp_path / "log")
        log = Run.open(tmp_path / "log")
    told = asked(log, policy, **more)
    assert told.values == {}
    with pytest.raises(TrainError, match=why):
        raise TrainError("; ".join(told.unknown))


@pytest.mark.exhaustive
def test_a_policy_of_other_tokens_or_far_away_is_refused(run: Run, tmp_path: Path) -> None:
    other = tiny.save_model(tmp_path / "other")
    assert "tokenises the log differently" in asked(run, other).unknown[0]
    told = asked(
        run,
        str(
            stages.train(
                "refit",
                run.path,
                out=tmp_path / "far",
                set=(*SETS, "fit.learning_rate=1e-3"),
                in_process=True,
            ).path
        ),
    )
    assert told.values == {}
    assert "expected at least 30" in told.unknown[0]


def test_a_log_of_the_whole_distribution_says_so(
    run: Run, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy whose own configuration cuts it, asked for top_p 1 all the same."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run.path, tmp_path / "log", ignore=shutil.ignore_patterns("checkpoints"))

    def whole(told: dict[str, Any]) -> None:
        member = told["cast"][speaker(told)]
        member["own_sampling"] = {"top_p": 0.9}
        member["sampling"]["top_p"] = 1.0

    manifest(whole)(tmp_path / "log")
    assert asked(Run.open(tmp_path / "log"), policy).unknown == []
