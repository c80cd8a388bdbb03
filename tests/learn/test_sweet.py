"""SWEET: equations (2) to (4) by hand, pairs, and all stages through `train sweet`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.pairs import Reply
from convbench.learn.rows import Chats
from convbench.learn.select import select
from convbench.learn.sweet import SweetArgs, candidate_pairs, trajectory_material, trajectory_pairs
from convbench.learn.train import TrainResult, train
from convbench.options.shared import CallOptions, SpecOptions
from convbench.schema.recipe import Data, Recipe
from convbench.store.notes import turn_advantages
from convbench.store.run import Run
from convbench.views import own_turns
from tests.helpers import tiny
from tests.helpers.collaboration import SENTINEL, judged_run
from tests.support.later import later

torch = later("torch")
critic = later("trainers.critic")

VOCABULARY = 50
SHORT = ([[1, 2, 3, 5]], [[-1, -1, -1, 0]])
LONG = ([[1, 2, *[7] * 100, 4, 6, 6]], [[-1, -1, *[0] * 100, -1, 1, 1]])


def uniform(bias: Sequence[float]) -> Callable[..., Any]:
    """A model in which log pi of token k is log softmax(bias)[k] everywhere: known by hand."""
    known = torch.tensor(bias, dtype=torch.float64).log_softmax(-1)

    class Out:
        log_probs: Any

    def model(input_ids: Any, labels: Any, **_: Any) -> Any:
        out = Out()
        shifted = labels[:, 1:]
        out.log_probs = torch.where(shifted != -100, known[shifted.clamp(min=0)], 0.0)
        return out

    return model


def biased() -> tuple[Callable[..., Any], float]:
    """A model that prefers tokens 5, 6 and 7 by 1, 2 and -1, and the log of its normaliser."""
    bias = [0.0] * VOCABULARY
    bias[5], bias[6], bias[7] = 1.0, 2.0, -1.0
    return uniform(bias), math.log(47 + math.e + math.e**2 + math.e**-1)


def test_turn_log_probs_are_means_sums_and_shares_of_a_trajectory_by_hand() -> None:
    model, total = biased()
    batch = critic.pad_trajectories([SHORT, LONG])
    assert batch["owner"].tolist() == [0, 1, 1]
    mean = critic.turn_log_probs(model, batch, "turn").tolist()
    assert mean == pytest.approx([1 - total, -1 - total, 2 - total], abs=1e-9)
    summed = critic.turn_log_probs(model, batch, False).tolist()
    assert summed == pytest.approx([1 - total, 100 * (-1 - total), 2 * (2 - total)], abs=1e-9)
    shared = critic.turn_log_probs(model, batch, "trajectory").tolist()
    wanted = [1 - total, 100 * (-1 - total) / 102, 2 * (2 - total) / 102]
    assert shared == pytest.approx(wanted, abs=1e-9)


def test_pair_loss_is_equations_2_and_3_by_hand() -> None:
    (model, total), base = biased(), -math.log(VOCABULARY)
    batch = critic.pad_trajectories([SHORT, LONG])
    gains = critic.turn_log_probs(model, batch, "turn") - critic.turn_log_probs(
        uniform([0.0] * VOCABULARY), batch, "turn"
    )
    sums = critic.sum_by_trajectory(gains, batch["owner"], 2)
    wanted = [1 - total - base, (-1 - total - base) + (2 - total - base)]
    assert sums.tolist() == pytest.approx(wanted, abs=1e-9)
    loss = critic.pair_loss(sums[:1], sums[1:], 0.1).item()
    assert loss == pytest.approx(math.log1p(math.exp(-0.1 * (wanted[0] - wanted[1]))), abs=1e-9)


def test_candidate_pairs_take_one_of_each_half(tmp_path: Path) -> None:
    selection = select(
        [judged_run(tmp_path / "run", [("q0", ["a"], 1.0), ("q0", ["b"], 0)])], Data()
    )
    place = (selection.logged[0].id, 1, 0)
    for count, wanted in ((5, {"3", "4"}), (1, set())):
        candidates = [(float(gain), Reply(str(gain), False)) for gain in range(count)]
        pairs = candidate_pairs(selection, {place: candidates}, SweetArgs(pairs=200), 0).items
        assert {pair.chosen.text for pair in pairs} == wanted
        assert {pair.rejected.text for pair in pairs} == ({"0", "1"} if wanted else set())


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base") / "base")


def asked(folder: Path, base: Path) -> Run:
    """Four questions, of each a right and a wrong conversation of two turns."""
    told = [
        (f"q{i}", [f"which {word}?", "I WANT TO ANSWER: x"], reward)
        for i in range(4)
        for word, reward in (("colour", 1.0), ("mood", 0.0))
    ]
    return judged_run(folder, told, f"local:{base}")


def recipe_of(**args: Any) -> Recipe:
    return Recipe.model_validate({"name": "s", "title": "s", "trainer": "sweet", "args": args})


def test_trajectory_pairs_by_best_and_by_gap(tmp_path: Path) -> None:
    told = [("q0", ["a"], 1.0), ("q0", ["b"], 0.5), ("q0", ["c"], 0.0), ("q1", ["d"], 0.4),
            ("q1", ["e"], 0.2)]  # fmt: skip
    selection = select([judged_run(tmp_path / "run", told)], Data())

    def rewards(**args: Any) -> list[tuple[float, float]]:
        recipe = recipe_of(held_out=0.0, **args)
        pairs, _ = trajectory_pairs(selection, SweetArgs.from_recipe(recipe), recipe)
        return [(better.reward, worse.reward) for better, worse, _ in pairs]

    assert rewards() == [(1.0, 0.5), (1.0, 0.0)]
    assert rewards(top=0.4) == [(1.0, 0.5), (1.0, 0.0), (0.4, 0.2)]
    assert rewards(select="gap", gap=0.5) == [(1.0, 0.5), (1.0, 0.0), (0.5, 0.0)]
    with pytest.raises(TrainError, match="no pair of conversations"):
        rewards(top=2.0)
    with pytest.raises(TrainError, match="no hidden field 'key'"):
        rewards(hidden=["key"])


def test_a_trajectory_without_a_policy_token_is_left_out_with_its_pair(
    tmp_path: Path, base: Path
) -> None:
    """It cannot shift the sums of other pairs."""
    told = [("q0", ["a"], 1.0), ("q0", ["b"], 0.0), ("q1", ["c"], 1.0), ("q1", [""], 0.0)]
    run = judged_run(tmp_path / "run", told)
    lines = [json.loads(line) for line in run.conversations_file.read_text().splitlines()]
    lines[3]["turns"][1]["finish_reason"] = "length"
    run.conversations_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    from collections import Counter

    material = trajectory_material(
        recipe_of(held_out=0.0), [Run.open(run.path)], Chats(str(base), "loss"), None
    )
    counts: Counter[str] = Counter()
    rows = list(material.tokenise(material.items, counts))
    assert [row["task"] for row in rows] == ["q0"]
    assert counts["pairs left out: of a conversation without a token of the policy"] == 1


SETS = {
    "args.candidates": 4, "args.share": 1, "args.held_out": 0, "args.conversations": 1,
    "args.critic": {"epochs": 2, "learning_rate": 1e-3}, "fit.epochs": 1, "fit.batch": 4,
    "fit.batch_size": 4, "fit.log_every": 1, "fit.learning_rate": 1e-3, "fit.save": "end",
    "fit.gradient_checkpointing": False, "fit.arguments": {},
}  # fmt: skip


def sweet(run: Run, **sets: Any) -> TrainResult:
    pairs = tuple(f"{name}={json.dumps(value)}" for name, value in {**SETS, **sets}.items())
    specs = SpecOptions(sets=pairs)
    return train("sweet", [run], specs=specs, calls=CallOptions(quiet=True), in_process=True)


@pytest.mark.slow
def test_train_sweet_goes_through_its_stages_and_does_none_twice(
    tmp_path: Path, base: Path
) -> None:
    from datasets import load_from_disk

    run = asked(tmp_path / "run", base)
    done = sweet(run)
    folder = done.path
    assert folder == run.checkpoints_folder / "sweet"
    for stage in (folder / "critic", folder):
        made = json.loads((stage / "training.json").read_text())
        # log 2, and in stage 2 0.01 of the chosen replies' mean negative log-likelihood
        assert made["log"][0]["loss"] == pytest.approx(math.log(2), abs=0.1)
    assert made["items"] == 4 * 2 * 4
    decode = tiny.tokenizer().decode
    for row in load_from_disk(str(folder / "critic" / "rows")):
        for side in (*row["chosen_ids"], *row["rejected_ids"]):
            assert decode(side).count(SENTINEL) == 1, "the critic sees what is hidden"
    for row in load_from_disk(str(folder / "rows")):
        for name in ("prompt_ids", "chosen_ids", "rejected_ids"):
            assert SENTINEL not in decode(row[name]), "the policy does not"
    credit = turn_advantages(run)
    turns = {c.conversation_id: own_turns(run.manifest.protocol, c) for c in run.conversations()}
    assert {name: sorted(by_turn) for name, by_turn in credit.items()} == turns
    assert any(value for by_turn in credit.values() for value in by_turn.values())

    weights = folder / "critic" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    (folder / "training.json").unlink()
    assert sweet(run).path == folder
    assert weights.stat().st_mtime_ns == before


def test_dry_run_of_sweet_says_what_each_stage_does(tmp_path: Path, base: Path) -> None:
    run = asked(tmp_path / "run", base)
    result = train(
        "sweet", [run], dry_run=True,
        specs=SpecOptions(sets=("args.held_out=0", "args.share=1")),
    )  # fmt: skip
    text = "\n".join(result.preview)
    assert "stage 1: 4 pairs of conversations, 0 held out" in text
    assert "16 candidates each" in text
