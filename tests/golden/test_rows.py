"""What the recipes learn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.learn.tokens import ChatTokens
from tests.golden import rows
from tests.golden.record import GOLDEN, Recorder
from tests.golden.rows import Log, in_order


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChatTokens]:
    """Tokenizers by chat template."""
    return rows.load_chats(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def log(golden_run: Path, chats: dict[str, ChatTokens]) -> Log:
    """The golden run."""
    return Log(golden_run, chats)


@pytest.fixture(scope="module")
def referenced(chats: dict[str, ChatTokens], tmp_path_factory: pytest.TempPathFactory) -> Log:
    """The golden run with a hidden reference for every question."""
    return Log(rows.run_with_references(tmp_path_factory.mktemp("references") / "run"), chats)


@pytest.mark.parametrize("template", rows.TEMPLATES)
def test_ids_and_masks_of_every_conversation(golden: Recorder, log: Log, template: str) -> None:
    golden.compare(f"rows/of-{template}.jsonl", in_order(log.template_rows(template)))


@pytest.mark.parametrize("recipe", rows.WEIGHTED)
def test_weights_of_a_recipe(golden: Recorder, log: Log, recipe: str) -> None:
    golden.compare(f"rows/{recipe}.jsonl", in_order(log.weights(recipe)))


@pytest.mark.parametrize("recipe", rows.PAIRED)
def test_pairs_of_a_recipe(golden: Recorder, log: Log, recipe: str) -> None:
    golden.compare(f"rows/{recipe}.jsonl", in_order(log.pairs(recipe)))


@pytest.mark.parametrize("recipe", rows.TRAJECTORIES)
def test_pairs_of_conversations(golden: Recorder, referenced: Log, recipe: str) -> None:
    lines = [*referenced.trajectories(recipe)]
    if recipe == "sweet":
        lines += referenced.candidate_pairs()
    golden.compare(f"rows/{recipe}.jsonl", in_order(lines))


def test_self_edits_that_a_filter_keeps(
    golden: Recorder, chats: dict[str, ChatTokens], tmp_path: Path
) -> None:
    log = Log(rows.run_of_edits(tmp_path / "run"), chats)
    golden.compare("rows/seal.jsonl", in_order(log.edits()))


def test_rows_and_pairs_of_a_run_that_was_built(
    golden: Recorder, chats: dict[str, ChatTokens], tmp_path: Path
) -> None:
    """DPO's pairs stand under the prompt of another protocol, `direct`."""
    log = Log(rows.built_run(tmp_path / "run"), {"pocket": chats["pocket"]})
    golden.compare("rows/built-of-pocket.jsonl", in_order(log.template_rows("pocket")))
    for recipe in ("dpo", "step-dpo"):
        golden.compare(f"rows/built-{recipe}.jsonl", in_order(log.pairs(recipe)))


def test_no_rows_are_left_over() -> None:
    recipes = {*rows.WEIGHTED, *rows.PAIRED, *rows.TRAJECTORIES, "seal"}
    templates = {f"of-{template}" for template in rows.TEMPLATES}
    built = {"built-of-pocket", "built-dpo", "built-step-dpo"}
    assert {file.stem for file in (GOLDEN / "rows").iterdir()} == recipes | templates | built
