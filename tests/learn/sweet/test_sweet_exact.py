"""Equations (2) to (4) on a tiny model, to 1e-6 and by hand."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.job import Job
from convbench.learn.select import select
from convbench.learn.sweet.pairs import CriticRow, SweetArgs, trajectory_pairs
from convbench.models.weights_path import weights_fingerprint
from convbench.schema.recipe import Lora
from tests.helpers import stages
from tests.helpers.collaboration import SENTINEL, Trained
from tests.helpers.tiny import save_model, tokenizer
from tests.support.later import later

torch = later("torch")
sweet_critic = later("convbench.learn.sweet.critic")

VOCABULARY = 50
ALL = SweetArgs(held_out=0)


def uniform(bias: list[float]) -> Any:
    """Return a model in which log pi of token k is log softmax(bias)[k] everywhere: known by
    hand."""

    class Uniform(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.tensor(bias, dtype=torch.float64))
            self.device = torch.device("cpu")

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            class Out:
                logits = self.bias.expand(*input_ids.shape, -1)

            return Out

    return Uniform()


def row(*stretches: tuple[int, list[int]]) -> CriticRow:
    ids = [t for _, tokens in stretches for t in tokens]
    turns = [mark for mark, tokens in stretches for _ in tokens]
    return CriticRow(tuple(ids), tuple(turns))


SHORT = row((-1, [1, 2, 3]), (0, [5]))
LONG = row((-1, [1, 2]), (0, [7] * 100), (-1, [4]), (1, [6, 6]))


def test_batches_keep_a_budget_of_tokens_longest_first() -> None:
    lengths = [3, 10, 4, 10, 1, 30]
    rows = [[row((0, [5] * n))] for n in lengths]
    found = list(sweet_critic.budget_batches(rows, 20))
    assert found == [[5], [1, 3], [2, 0, 4]], "a trajectory beyond it goes alone"
    assert list(sweet_critic.budget_batches([], 20)) == []
    one, many = (
        sweet_critic.score_turns(uniform([0.1] * VOCABULARY), rows, 0, mean=True, tokens=t)
        for t in (1, 10**6)
    )
    assert [a.tolist() for a in one] == [b.tolist() for b in many]


def test_a_centred_advantage_is_0_on_average_under_the_reference() -> None:
    """Over the whole vocabulary at one place; a critic that lowers alike all that is likely
    there credits nobody for it, and raw log-ratios blame everybody."""
    reference = uniform([0.5, -1.0, 2.0, 0.0, -30.0])
    critic = uniform([1.5, -2.0, 0.1, 0.3, 1.0])
    rows = [[row((-1, [0, 1]), (0, [token]))] for token in range(5)]
    found = torch.cat(sweet_critic.centred_advantages(critic, reference, rows, 0, mean=True))
    chances = reference.bias.detach().softmax(-1)
    assert float((chances * found).sum()) == pytest.approx(0, abs=1e-6)
    now, then = (sweet_critic.score_turns(one, rows, 0, mean=True) for one in (critic, reference))
    raw = torch.cat(now) - torch.cat(then)
    assert torch.allclose(raw - found, (raw - found)[:1].expand(5), atol=1e-5), "one shift a place"
    lower = uniform([0.5, -1.0, 2.0, 0.0, 4.0])
    ratios = torch.cat(sweet_critic.score_turns(lower, rows, 0, mean=True)) - torch.cat(then)
    assert all(float(ratio) < -1 for ratio in ratios[:4])
    gone = torch.cat(sweet_critic.centred_advantages(lower, reference, rows, 0, mean=True))
    assert gone[:4].abs().max() < 1e-6
    both = [[row((-1, [0]), (0, [1, 2]), (-1, [3]), (1, [4]))]]
    (turns,) = sweet_critic.centred_advantages(critic, reference, both, 0, mean=True)
    assert turns.tolist() == pytest.approx([float(found[1:3].mean()), float(found[4])], abs=1e-6)
    (sums,) = sweet_critic.centred_advantages(critic, reference, both, 0, mean=False)
    assert sums.tolist() == pytest.approx([float(found[1:3].sum()), float(found[4])], abs=1e-6)


def test_over_all_tokens_of_the_trajectory_by_hand() -> None:
    """The turns' values add up to the mean over all tokens, as the released trainer has it."""
    bias = [0.0] * VOCABULARY
    bias[6], bias[7] = 2.0, -1.0
    model = uniform(bias)
    total = math.log(48 + math.e**2 + math.e**-1)
    batch = sweet_critic.pad_trajectories([[LONG]], 0)
    values = sweet_critic.turn_log_probs(model, batch, mean="trajectory").tolist()
    wanted = [100 * (-1 - total) / 102, 2 * (2 - total) / 102]
    assert values == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("beside", [[], [row((-1, [1]), (0, [9] * 300))]])
def test_turns_of_1_and_100_tokens_give_the_hand_values(beside: list[CriticRow]) -> None:
    bias = [0.0] * VOCABULARY
    bias[5], bias[6], bias[7] = 1.0, 2.0, -1.0
    total = math.log(47 + math.e + math.e**2 + math.e**-1)
    model = uniform(bias)
    batch = sweet_critic.pad_trajectories([[SHORT], [LONG], *([r] for r in beside)], 0)
    mean = sweet_critic.turn_log_probs(model, batch, mean=True)[:3].tolist()
    assert mean == pytest.approx([1 - total, -1 - total, 2 - total], abs=1e-9)
    summed = sweet_critic.turn_log_probs(model, batch, mean=False)[:3].tolist()
    assert summed == pytest.approx([1 - total, 100 * (-1 - total), 2 * (2 - total)], abs=1e-9)
    reference = sweet_critic.turn_log_probs(uniform([0.0] * VOCABULARY), batch, mean=True)
    owner = batch["owner"]
    assert owner[:3].tolist() == [0, 1, 1]
    sums = sweet_critic.sum_advantages(
        sweet_critic.turn_log_probs(model, batch, mean=True), reference, owner
    )
    base = -math.log(VOCABULARY)
    wanted = [1 - total - base, (-1 - total - base) + (2 - total - base)]
    assert sums[:2].tolist() == pytest.approx(wanted, abs=1e-9)
    loss = sweet_critic.pair_loss(sums[:1], sums[1:2], 0.1).item()
    assert loss == pytest.approx(math.log1p(math.exp(-0.1 * (wanted[0] - wanted[1]))), abs=1e-9)


def test_at_the_start_the_advantage_is_0_and_the_loss_log_2(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(save_model(tmp_path), dtype=torch.float64)
    rows = [[SHORT], [LONG], [LONG, row((-1, [3]), (2, [8, 9]))]]
    reference = sweet_critic.score_turns(model, rows, 0, mean=True)
    assert [len(r) for r in reference] == [1, 2, 3]
    batch = sweet_critic.pad_trajectories(rows, 0)
    now = sweet_critic.turn_log_probs(model, batch, mean=True)
    sums = sweet_critic.sum_advantages(now, torch.cat(reference), batch["owner"])
    assert sums.abs().max().item() < 1e-12
    assert sweet_critic.pair_loss(sums[:1], sums[1:2], 0.1).item() == pytest.approx(
        math.log(2), abs=1e-9
    )
    alone = sweet_critic.turn_log_probs(
        model, sweet_critic.pad_trajectories([[SHORT]], 0), mean=True
    )
    assert alone.item() == pytest.approx(now[0].item(), abs=1e-9), "padding changes nothing"


def log_probs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """log pi of every token after the first, one row alone and without padding."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0, :-1].double()
    return logits.log_softmax(-1)[range(len(ids) - 1), list(ids)[1:]]


def digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """A hash of names and values."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode() + tensors[name].detach().double().numpy().tobytes())
    return found.hexdigest()


def start(trained: Trained) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(trained.base, dtype=torch.float64)


@pytest.mark.slow
def test_both_losses_start_at_log_2(trained: Trained) -> None:
    for stage in (trained.folder / "critic", trained.folder):
        made = json.loads((stage / "training.json").read_text())
        assert made["log"][0]["loss"] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.slow
def test_the_critic_s_loss_is_equations_2_and_3(trained: Trained) -> None:
    """On the trained critic, turn by turn and row by row, against one batch of the trainer."""
    trainer, base = trained.critic, start(trained)
    pairs = trainer.train_dataset[:3]
    trainer.settings = trainer.settings.model_copy(update={"critic_nll": 0.01})
    losses, said = [], []
    for pair in pairs:
        sums = []
        for side, place in enumerate(pair):
            [row] = trainer.rows[place]
            now, then = log_probs(trainer.model, row.ids), log_probs(base, row.ids)
            turns = [torch.tensor(row.turns[1:]) == t for t in range(max(row.turns) + 1)]
            assert len(turns) == 2
            sums.append(sum(float((now[on] - then[on]).mean()) for on in turns))
            said += [float(now[on].mean()) for on in turns] if side == 0 else []
        losses.append(math.log1p(math.exp(-0.1 * (sums[0] - sums[1]))))
    wanted = sum(losses) / 3 - 0.01 * sum(said) / len(said)
    with torch.no_grad():
        found = trainer.compute_loss(trainer.model, trainer._collate_pairs(pairs)).item()
    assert abs(sum(losses) / 3 - math.log(2)) > 1e-3, "an untrained critic would show nothing"
    assert found == pytest.approx(wanted, abs=1e-6)


@pytest.mark.slow
def test_the_policy_s_loss_is_equation_4(trained: Trained) -> None:
    """On the trained policy, with summed log probabilities, and the NLL of the chosen side."""
    trainer, base = trained.policy, start(trained)
    rows = [trainer.train_dataset[i] for i in range(3)]
    losses, said = [], []
    for row in rows:
        sums = []
        for side in ("chosen_ids", "rejected_ids"):
            ids = [*row["prompt_ids"], *row[side]]
            on = slice(len(row["prompt_ids"]) - 1, None)
            now, then = log_probs(trainer.model, ids)[on], log_probs(base, ids)[on]
            sums.append(float((now - then).sum()))
            said += now.tolist() if side == "chosen_ids" else []
        losses.append(math.log1p(math.exp(-0.1 * (sums[0] - sums[1]))))
    trainer.loss_types, trainer.loss_weights = ["sigmoid", "sft"], [1.0, 0.01]
    with torch.no_grad():
        found = trainer.compute_loss(trainer.model, trainer.data_collator(rows)).item()
    assert abs(sum(losses) / 3 - math.log(2)) > 1e-4, "an untrained policy would show nothing"
    assert found == pytest.approx(sum(losses) / 3 - 0.01 * sum(said) / len(said), abs=1e-5)


@pytest.mark.slow
def test_only_stage_1_and_its_reference_read_the_hidden_text(trained: Trained) -> None:
    words = tokenizer()
    rows = [row for trajectory in trained.critic.rows for row in trajectory]
    assert len(rows) == 8
    assert all(words.decode(row.ids).count(SENTINEL) == 1 for row in rows)
    for place, values in enumerate(
        sweet_critic.score_turns(start(trained), trained.critic.rows, 0, mean=True)
    ):
        assert trained.critic.reference[place].tolist() == pytest.approx(values.tolist(), abs=1e-9)
    for row in trained.policy.train_dataset:
        for side in ("chosen_ids", "rejected_ids"):
            assert SENTINEL not in words.decode([*row["prompt_ids"], *row[side]])
    ranked = (trained.folder / "ranked.jsonl").read_text()
    assert SENTINEL not in ranked
    advantages = [json.loads(line)["advantage"] for line in ranked.splitlines()]
    assert len(advantages) == 4 * 2 * 4
    assert any(advantages)


@pytest.mark.slow
def test_stage_2_refers_to_the_base(trained: Trained) -> None:
    wanted = digest(start(trained).state_dict())
    assert digest(trained.policy.ref_model.state_dict()) == wanted
    assert digest(trained.policy.model.state_dict()) != wanted
    assert digest(trained.critic.model.state_dict()) != wanted
    for stage in (trained.folder / "critic", trained.folder):
        made = json.loads((stage / "training.json").read_text())
        assert made["base"] == str(trained.base)
        assert made["base_fingerprint"] == weights_fingerprint(trained.base)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_critic_that_trains_an_adapter(
    trained: Trained, tmp_path: Path, checkpointing: bool
) -> None:
    from transformers import AutoModelForCausalLM

    from convbench.learn.sweet import critic as advantage

    job = Job.from_file(trained.folder / "critic" / "recipe.yaml")
    fit = job.recipe.fit.model_copy(update={"gradient_checkpointing": checkpointing, "epochs": 4})
    more = {"lora": Lora(r=4), "run": str(job.run.path), "fit": fit}
    job = Job(job.recipe.model_copy(update=more), tmp_path)
    pairs = trajectory_pairs(select(job.run, job.recipe.data), ALL)
    advantage.fit(job, pairs)
    log = json.loads((tmp_path / "training.json").read_text())["log"]
    assert log[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert (tmp_path / "adapter" / "adapter_config.json").exists()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert digest(merged.state_dict()) != digest(start(trained).state_dict())
    quantized = job.recipe.model_copy(update={"lora": Lora(quantize="4bit")})
    with pytest.raises(TrainError, match=r"set lora\.quantize=none"):
        advantage.critic_trainer(Job(quantized, tmp_path), pairs)


@pytest.mark.slow
def test_stages_that_are_done_are_not_done_again_nor_with_another_base(trained: Trained) -> None:
    critic, done = trained.folder / "critic" / "model.safetensors", trained.folder / "training.json"
    before = critic.stat().st_mtime_ns
    done.unlink()
    stages.train(**trained.options)
    assert critic.stat().st_mtime_ns == before
    assert done.exists()
    done.unlink()
    save_model(trained.base, seed=1)
    with pytest.raises(TrainError, match=r"trained from weights \w+, but .* now holds \w+"):
        stages.train(**trained.options)
    assert not done.exists()
    other = {**trained.options, "set": (*trained.options["set"], "args.beta=0.2")}
    assert stages.train(**other).path == trained.folder.with_name("sweet-2")
