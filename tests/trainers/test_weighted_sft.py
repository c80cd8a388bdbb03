"""Weighted fine-tuning: a plain SWiFt is its oracle, and TRL's own SFT where all weights are 1."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import SpecError, TrainError
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.training import QUICK, Train, log_of
from tests.support.later import later

torch = later("torch")
plain_swift = later("tests.learn.plain_swift")
transformers = later("transformers")

OWN_LOSS = """
from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Settings:
    most: float = 1.0


def loss(log_probs, weights, reference):
    ratio = (log_probs - reference).exp().detach().clamp(max=Settings().most)
    return -weights * ratio * log_probs
"""
OWN_TRAINER = """
from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from trainers import common, weighted_sft


@dataclass
class Settings:
    factor: float = 2.0


class Doubled(weighted_sft.WeightedSFT):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return Settings().factor * loss


def run(folder, recipe):
    common.train(weighted_sft.make_trainer(folder, recipe, Doubled), folder, recipe)


if __name__ == "__main__":
    common.main(run)
"""


def parameters(folder: Path) -> dict[str, Any]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return dict(model.named_parameters())


def apart(first: dict[str, Any], second: dict[str, Any]) -> float:
    """The greatest difference of two models' parameters."""
    assert first.keys() == second.keys()
    return max((first[name] - second[name]).abs().max().item() for name in first)


def test_docstring_example_computes() -> None:
    from trainers import weighted_sft

    found = doctest.testmod(weighted_sft)
    assert found.attempted >= 8
    assert found.failed == 0


def test_swift_does_what_the_plain_one_does(trained: Train, run: Run, model: Path) -> None:
    result = trained("swift")
    policy, losses = plain_swift.train(run.path, model, rate=0.1, batch=4, steps=3)
    assert [entry["loss"] for entry in log_of(result)] == pytest.approx(losses, rel=1e-5, abs=1e-6)
    assert result.path is not None
    assert apart(parameters(result.path), dict(policy.named_parameters())) < 1e-5
    assert apart(parameters(result.path), parameters(model)) > 1e-3, "nothing was trained"


def test_swift_by_accumulation_and_by_packing_is_the_same(trained: Train) -> None:
    one, small, packed = (
        trained("swift", out=str(number), sets=sets).path
        for number, sets in enumerate(({}, {"fit.batch_size": 2}, {"fit.packing": True}))
    )
    assert one is not None
    for other in (small, packed):
        assert other is not None
        assert apart(parameters(one), parameters(other)) < 1e-5


def test_weights_of_one_are_trls_own_sft(trained: Train) -> None:
    from datasets import load_from_disk
    from trl import SFTConfig, SFTTrainer

    sets = {"weighting.threshold": 0.0, "fit.arguments": {**QUICK["fit.arguments"]}}
    result = trained("rft", sets=sets)
    assert result.path is not None
    rows = load_from_disk(str(result.path / "rows"))
    assert len(rows) == 9
    config = SFTConfig(
        str(result.path / "trl"), max_steps=3, learning_rate=0.1, gradient_checkpointing=False,
        per_device_train_batch_size=4, use_cpu=True, bf16=False, report_to="none",
        dataset_kwargs={"skip_prepare_dataset": True}, save_strategy="no", max_length=None,
        logging_steps=1, disable_tqdm=True, **QUICK["fit.arguments"],
    )  # fmt: skip
    base = result.recipe.model
    trainer = SFTTrainer(
        model=base, args=config, train_dataset=rows.select_columns(["input_ids", "labels"]),
        processing_class=transformers.AutoTokenizer.from_pretrained(base),
    )  # fmt: skip
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert [entry["loss"] for entry in log_of(result)] == pytest.approx(losses, rel=1e-5)
    assert apart(parameters(result.path), dict(trainer.model.named_parameters())) < 1e-5


def test_own_loss_with_a_dataclass_is_equation_3_with_truncated_ratios(
    trained: Train, tmp_path: Path
) -> None:
    (tmp_path / "loss.py").write_text(OWN_LOSS)
    own = trained("swift", out="own", sets={"loss.name": str(tmp_path / "loss.py")})
    plain = trained("swift", out="plain")
    first, second, _ = log_of(own)
    assert first["loss"] == pytest.approx(log_of(plain)[0]["loss"], rel=1e-5), "pi is pi_0 there"
    assert second["loss"] != pytest.approx(log_of(plain)[1]["loss"], rel=1e-3)


def test_own_trainer_with_a_dataclass_runs(trained: Train, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_TRAINER)
    mine = trained("swift", out="mine", sets={"trainer": str(tmp_path / "mine.py")})
    plain = trained("swift", out="plain")
    assert log_of(mine)[0]["loss"] == pytest.approx(2 * log_of(plain)[0]["loss"], rel=1e-5)


@pytest.mark.parametrize("recipe", ["ppo", "a-lol", "swift-anchored"])
def test_losses_under_an_adapter_have_the_base_as_reference(trained: Train, recipe: str) -> None:
    """The model without its adapter is its own base: the first loss is that of full training."""
    lora = {"lora.r": 4, "lora.dropout": 0.0}
    full, adapted = trained(recipe, out="full"), trained(recipe, out="lora", sets=lora)
    assert log_of(adapted)[0]["loss"] == pytest.approx(log_of(full)[0]["loss"], rel=1e-5)
    assert log_of(adapted)[2]["loss"] != pytest.approx(log_of(adapted)[0]["loss"], rel=1e-4)


def test_adapter_is_merged_into_the_checkpoint(trained: Train, model: Path) -> None:
    from peft import PeftModel

    result = trained("swift", sets={"lora.r": 4, "lora.dropout": 0.0})
    assert result.path is not None
    base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    merged = transformers.AutoModelForCausalLM.from_pretrained(result.path, dtype=torch.float32)
    with torch.no_grad():
        before = base(input_ids=ids).logits
        adapted = PeftModel.from_pretrained(base, result.path / "adapter")(input_ids=ids).logits
        assert torch.allclose(adapted, merged(input_ids=ids).logits, atol=1e-5)
    assert not torch.allclose(before, adapted, atol=1e-3)


def test_log_tells_positive_from_negative_weights_and_warns_of_a_collapse(
    trained: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainers.weighted_sft import CollapseWarning

    assert {"log_pi_positive", "log_pi_negative"} <= set(log_of(trained("swift"))[0])
    state = transformers.TrainerState(is_world_process_zero=True)
    warning = CollapseWarning()
    for log_pi, warned in ((-2.0, False), (-2.9, False), (-3.1, True), (-9.0, False)):
        capsys.readouterr()
        warning.on_log(None, state, None, {"loss": 1.0, "log_pi_positive": log_pi})
        assert ("warning: the policy has collapsed" in capsys.readouterr().err) == warned


@pytest.mark.parametrize(
    ("sets", "error", "words"),
    [
        ({"loss.name": "gone"}, SpecError, "expected one of nll, ppo, a-lol"),
        ({"loss.name": "gone.py"}, SpecError, "no such file"),
        ({"fit.arguments": {"output_dir": "x"}}, SpecError, "output_dir"),
        ({"fit.arguments": {"hub_model_id": "x"}}, SpecError, "hub_model_id"),
        ({"lora.target_modules": ["lm_head"]}, TrainError, "lm_head"),
        ({"loss.name": "a-lol", "fit.packing": True}, TrainError, "fit.packing"),
    ],
)
def test_settings_are_refused(
    trained: Train, sets: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        trained("swift", sets=sets)


def test_end_of_turn_and_pad_token_are_saved_as_they_should_be(
    run: Run, trained: Train, tmp_path: Path
) -> None:
    """The template's end of turn ends a reply wherever the checkpoint is loaded; a tokenizer
    without a pad token stays without one."""
    model = tiny.save_model(tmp_path / "m")
    config = json.loads((model / "tokenizer_config.json").read_text())
    del config["pad_token"]
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    for recipe in ("swift", "step-dpo"):
        result = trained(recipe, model=str(model), out=recipe)
        assert result.path is not None
        generation = json.loads((result.path / "generation_config.json").read_text())
        end = tiny.tokenizer().convert_tokens_to_ids("<|eot_id|>")
        assert end in generation["eos_token_id"]
        saved = json.loads((result.path / "tokenizer_config.json").read_text())
        assert not saved.get("pad_token")


def test_adapter_on_embeddings_that_the_head_shares_is_refused(
    trained: Train, tmp_path: Path
) -> None:
    model = tiny.save_model(tmp_path / "m")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    with pytest.raises(TrainError, match=r"embed_tokens.*tie_word_embeddings"):
        trained("swift", model=str(model), sets={"lora.target_modules": ["embed_tokens"]})
