"""Which edits are learnt: those that improve (equation 2), or each context's best one."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.errors import TrainError
from convbench.experiments.seal import SealArgs, seal_args
from convbench.learn.select import select
from convbench.learn.train import FILTERS, load_recipe
from convbench.learn.weights import weigh
from convbench.options.shared import SpecOptions
from convbench.schema import Conversation, Verdict
from convbench.store import Run
from tests.helpers import tiny


def verdict(conversation: Conversation, before: float, accuracy: float | None) -> Verdict:
    """The verdict on an edit; accuracy None stands for one that could not be trained on."""
    trained = float(accuracy is not None)
    accuracy = before if accuracy is None else accuracy
    gain = accuracy - before
    scores = {
        "accuracy": accuracy, "gain": gain, "net": gain, "improves": float(gain > 0),
        "overall": accuracy, "trained": trained,
    }  # fmt: skip
    return Verdict(
        conversation_id=conversation.conversation_id, judge="adaptation", fingerprint="a",
        scores=scores, reward=accuracy,
    )  # fmt: skip


def edits(folder: Path, contexts: dict[str, tuple[float, tuple[float | None, ...]]]) -> Run:
    """A run of contexts, each with its accuracy before and after every edit."""
    judged = []
    for name, (before, after) in contexts.items():
        for sample, accuracy in enumerate(after):
            said = tiny.conversation(name, sample, [f"edit {sample}"])
            judged.append((said, [verdict(said, before, accuracy)]))
    return tiny.make_run(folder, judged, [tiny.example(name) for name in contexts])


def kept(run: Run, name: str) -> list[str]:
    """The edits that a filter keeps."""
    recipe = load_recipe("seal", SpecOptions(), {"filter": name})
    found = weigh(select([run], recipe.data), recipe.weighting, 0).of_conversations()
    assert {weight for _, weight in found} == {1.0}
    return sorted(item.conversation.key for item, _ in found)


def test_an_all_harmful_context(tmp_path: Path) -> None:
    run = edits(tmp_path, {"harm": (0.5, (0.25, 0.4, 0.0)), "help": (0.2, (0.2, 0.6, 0.4))})
    assert kept(run, "improves") == ["help/1", "help/2"]
    assert kept(run, "best-of-k") == ["harm/1", "help/1"]


def test_an_edit_that_could_not_be_trained_on_is_never_learnt(tmp_path: Path) -> None:
    """It scores above edits that harm, for it changed nothing; it is no example all the same."""
    run = edits(tmp_path, {"harm": (0.5, (None, 0.25)), "bad": (0.5, (None, None)),
                           "help": (0.0, (None, 0.5))})  # fmt: skip
    assert kept(run, "best-of-k") == ["harm/1", "help/1"]
    assert kept(run, "improves") == ["help/1"]


def test_no_gain_is_no_improvement(tmp_path: Path) -> None:
    run = edits(tmp_path, {"same": (0.5, (0.5, 0.25)), "other": (0.0, (0.0, 0.0))})
    assert kept(run, "best-of-k") == ["other/0", "same/0"]
    with pytest.raises(TrainError, match="no conversation is left after weighting"):
        kept(run, "improves")


def test_the_recipe_holds_the_papers_values() -> None:
    recipe = load_recipe("seal", SpecOptions(), {})
    assert recipe.lora is not None
    assert (recipe.lora.r, recipe.lora.alpha, recipe.lora.merge) == (64, 128, True)
    assert len(recipe.lora.target_modules) == 7
    fit = recipe.fit
    assert (fit.learning_rate, fit.epochs) == (3e-4, 2)
    assert (fit.batch_size, fit.batch) == (1, 1 * 5 * 2)
    assert (recipe.rounds, recipe.filter) == (2, "best-of-k")
    assert seal_args(recipe) == SealArgs()
    assert set(FILTERS) == {"best-of-k", "improves", "right"}


def test_the_few_shot_recipe_holds_the_papers_values() -> None:
    recipe = load_recipe("seal-few-shot", SpecOptions(), {})
    assert recipe.lora is not None
    assert (recipe.lora.r, recipe.lora.alpha, recipe.lora.merge) == (16, 16, True)
    assert set(recipe.lora.target_modules) == {
        "q_proj", "v_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
    fit = recipe.fit
    assert (fit.learning_rate, fit.epochs) == (5e-5, 8)
    assert fit.arguments["lr_scheduler_type"] == "cosine"
    assert (fit.batch_size, fit.batch) == (5, 5)
    assert (recipe.rounds, recipe.filter) == (1, "right")
