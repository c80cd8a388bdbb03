"""Training rows: labels, weights, cutting, what is left out and counted, and the preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.rows import (
    Chats,
    Row,
    check_rows,
    paired_material,
    preview_rows,
    read_about,
    weighted_material,
    write_rows,
)
from convbench.schema import Turn
from convbench.schema.recipe import Recipe
from convbench.store.run import Run
from tests.helpers import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer's folder."""
    folder = tmp_path_factory.mktemp("model")
    tiny.tokenizer().save_pretrained(folder)
    return folder


def recipe_of(**values: Any) -> Recipe:
    return Recipe.model_validate({"name": "r", "title": "r", "trainer": "weighted_sft", **values})


def weighted(
    run: Run, model: Path, limit: int | None = None, **values: Any
) -> tuple[list[Row], Counter[str]]:
    """The weighted rows of a run, and their counts."""
    counts: Counter[str] = Counter()
    recipe = recipe_of(**values)
    material = weighted_material(recipe, [run], Chats(str(model), recipe.data.reasoning), limit)
    return list(material.tokenise(material.items, counts)), +counts


def paired(run: Run, model: Path, limit: int | None = None) -> tuple[list[Row], Counter[str]]:
    """The rows of pairs turn by turn, and their counts."""
    counts: Counter[str] = Counter()
    recipe = recipe_of(pairing={"replies": "turns"})
    material = paired_material(recipe, [run], Chats(str(model), "loss"), limit)
    return list(material.tokenise(material.items, counts)), +counts


def judged(folder: Path, talks: Sequence[Any], rewards: Sequence[float] = (0.1, 0.9)) -> Run:
    rows = [
        (talk, [tiny.verdict(talk, reward)]) for talk, reward in zip(talks, rewards, strict=True)
    ]
    return tiny.make_run(folder, rows, [tiny.example("q0")])


def text_of(ids: Sequence[int]) -> str:
    return str(tiny.tokenizer().decode(ids))


def test_weighted_rows_beyond_the_limit_are_cut_and_those_without_loss_dropped(
    tmp_path: Path, model: Path
) -> None:
    run = tiny.judged_run(tmp_path / "run")
    first = next(i for i, label in enumerate(weighted(run, model)[0][0]["labels"]) if label != -100)
    rows, counts = weighted(run, model, first + 2)
    assert counts["rows truncated"] == 18  # each of the two turns is a row that is too long
    assert all(len(row["input_ids"]) == first + 2 for row in rows)
    rows, counts = weighted(run, model, first)
    assert (rows, counts["rows dropped"]) == ([], 18)
    with pytest.raises(TrainError, match=r"18 rows dropped.*max_length"):
        check_rows(0, counts, first)


def test_weighted_rows_of_a_long_conversation_are_its_turns_with_the_last_messages_that_fit(
    tmp_path: Path, model: Path
) -> None:
    run = tiny.judged_run(tmp_path / "run")
    whole = weighted(run, model)[0]
    limit = max(len(row["input_ids"]) for row in whole) - 1
    rows, counts = weighted(run, model, limit)
    long = sum(len(row["input_ids"]) > limit for row in whole)
    assert (
        counts["conversations whose turns are rows, each with the last messages that fit"] == long
    )
    assert len(rows) == len(whole) + long
    assert all(len(row["input_ids"]) <= limit for row in rows)
    learnt = [[label for row in some for label in row["labels"] if label != -100]
              for some in (whole, rows)]  # fmt: skip
    assert sorted(learnt[0]) == sorted(learnt[1]), "each turn once"
    _, counts = weighted(run, model, limit, data={"too_long": "drop"})
    assert counts["conversations left out: longer than a row"] == long


def test_weighted_rows_of_an_empty_cut_reply_are_left_out_and_counted(
    tmp_path: Path, model: Path
) -> None:
    talks = [tiny.conversation("q0", 0, [""], cut=0), tiny.conversation("q0", 1, ["GOOD"])]
    rows, counts = weighted(judged(tmp_path / "run", talks), model)
    assert [row["conversation_id"] for row in rows] == ["run-q0-1"]
    assert counts["rows without a token of the policy"] == 1


def test_weighted_rows_of_turns_have_each_turns_weight(tmp_path: Path, model: Path) -> None:
    talks = [tiny.conversation("q0", i, ["ONE", "TWO"]) for i in range(2)]
    verdicts = []
    for talk, rewards in zip(talks, ((0.0, 1.0), (1.0, 0.0)), strict=True):
        turns = [
            {"turn": turn, "scores": {"overall": r}, "reward": r}
            for turn, r in zip((1, 3), rewards, strict=True)
        ]
        verdict = tiny.verdict(talk, 0.5)
        verdicts.append((talk, [verdict.model_copy(update={"details": {"turns": turns}})]))
    run = tiny.make_run(tmp_path / "run", verdicts, [tiny.example("q0")])
    rows, _ = weighted(run, model, weighting={"reward": "turn"})
    for row, signs in zip(rows, ((-1, 1), (1, -1)), strict=True):
        found = [w for w, label in zip(row["weights"], row["labels"], strict=True) if label != -100]
        assert [found[0], found[-1]] == pytest.approx([0.70711 * sign for sign in signs], abs=1e-5)
    rows, _ = weighted(run, model, weighting={"reward": "turn", "keep": "positive"})
    learnt = [[i for i in row["labels"] if i != -100] for row in rows]
    assert [text_of(ids) for ids in learnt] == ["TWO<|eot_id|>", "ONE<|eot_id|>"]


def test_weighted_rows_of_a_policy_that_speaks_first_learn_what_answers(
    tmp_path: Path, model: Path
) -> None:
    talks = []
    for i in range(2):
        talk = tiny.conversation("q0", i, ["ANSWER"], systems={})
        hello = Turn(speaker="student", step="reply", content="HELLO", finish_reason="stop")
        talks.append(talk.model_copy(update={"turns": (hello, *talk.turns)}))
    rows, counts = weighted(judged(tmp_path / "run", talks), model)
    assert counts["replies before any message, not learnt"] == 2
    learnt = [text_of([i for i in row["labels"] if i != -100]) for row in rows]
    assert learnt == ["ANSWER<|eot_id|>"] * 2


def test_weighted_rows_that_the_template_refuses_are_left_out_and_counted(
    tmp_path: Path,
) -> None:
    tokenizer = tiny.tokenizer().__class__.from_pretrained(
        Path(tiny.tokenizer().save_pretrained(tmp_path / "m")[0]).parent
    )
    tokenizer.chat_template = (
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
    )
    tokenizer.save_pretrained(tmp_path / "m")
    good = tiny.conversation("q0", 0, ["A"], systems={})
    odd = tiny.conversation("q0", 1, ["A"], systems={})
    hello = Turn(speaker="student", step="reply", content="HELLO", finish_reason="stop")
    odd = odd.model_copy(update={"turns": (hello, *odd.turns)})
    rows, counts = weighted(judged(tmp_path / "run", [good, odd]), tmp_path / "m")
    assert [row["conversation_id"] for row in rows] == ["run-q0-0"]
    (why,) = (name for name in counts if name.startswith("conversations left out"))
    assert "roles must alternate" in why


def test_pair_rows_end_replies_themselves_and_are_cut_to_the_limit(
    tmp_path: Path, model: Path
) -> None:
    talks = [tiny.conversation("q0", i, [f"R{i}"], cut=0 if i else None) for i in range(2)]
    run = judged(tmp_path / "run", talks, (0.9, 0.1))
    (row,), counts = paired(run, model)
    assert text_of(row["prompt_ids"]).endswith("assistant<|end_header_id|>\n\n")
    assert text_of(row["chosen_ids"]) == "R0<|eot_id|>"
    assert text_of(row["rejected_ids"]) == "R1"
    assert counts["pairs"] == 1
    asked = len(row["prompt_ids"])
    (cut,), counts = paired(run, model, asked + 2)
    assert (text_of(cut["chosen_ids"]), counts["pairs truncated"]) == ("R0", 1)
    rows, counts = paired(run, model, asked)
    assert (rows, counts["pairs left out: whose prompt fills a row"]) == ([], 1)


def test_pair_rows_that_are_equal_after_truncation_are_left_out(
    tmp_path: Path, model: Path
) -> None:
    talks = [tiny.conversation("q0", i, [f"the same beginning, {i}"]) for i in range(2)]
    run = judged(tmp_path / "run", talks)
    (row,), _ = paired(run, model)
    rows, counts = paired(run, model, len(row["prompt_ids"]) + 5)
    assert (rows, counts["pairs left out: equal after truncation"]) == ([], 1)


def test_write_rows_stores_what_was_made(tmp_path: Path, model: Path) -> None:
    from datasets import load_from_disk

    run = tiny.judged_run(tmp_path / "run")
    recipe = recipe_of()
    material = weighted_material(recipe, [run], Chats(str(model), "loss"), None)
    about = write_rows(tmp_path / "out", material, None, {"unit": "conversation"})
    made, _ = weighted(run, model)
    stored = list(load_from_disk(str(tmp_path / "out" / "rows")))
    assert [row["input_ids"] for row in stored] == [row["input_ids"] for row in made]
    assert [row["weights"] for row in stored] == [pytest.approx(row["weights"]) for row in made]
    assert about == read_about(tmp_path / "out")
    assert about["longest"][0] == max(len(row["input_ids"]) for row in made)


def test_preview_rows_show_mask_and_weight(tmp_path: Path, model: Path) -> None:
    rows, _ = weighted(tiny.judged_run(tmp_path / "run"), model)
    lines = list(preview_rows(rows, tiny.tokenizer()))
    assert lines[0].startswith("run-q0-2: weight +1.1547")
    shown = [line for line in lines if line.startswith("  LOSS")]
    assert "'reply the cat the cat<|eot_id|>'" in shown[0]
    assert "'end q0 2<|eot_id|>'" in shown[1]
