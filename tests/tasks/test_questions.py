"""From rows to questions: labels, options, the shipped tasks on our own rows and on real ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from convbench import prompts
from convbench.errors import DataError
from convbench.schema import Example
from convbench.tasks.draw import DrawnExamples
from convbench.tasks.load import load_examples
from convbench.tasks.mapping import make_question
from tests.helpers.excerpts import Source
from tests.helpers.questions import arc, draw, task
from tests.helpers.table import played, protocol_of
from tests.support.memory import held_below

# -- labels and letters


@pytest.mark.parametrize(
    ("labels", "gold", "letter", "said"),
    [
        ("ABCD", "C", "C", "A, B, C, or D"),
        ("1234", "3", "C", "A, B, C, or D"),
        ("1234", "1", "A", "A, B, C, or D"),
        ("ABC", "B", "B", "A, B, or C"),
        ("123", "3", "C", "A, B, or C"),
        ("ABCDE", "E", "E", "A, B, C, D, or E"),
        ("12345", "5", "E", "A, B, C, D, or E"),
        ("AB", "A", "A", "A or B"),
    ],
)
def test_labels_become_letters(labels: str, gold: str, letter: str, said: str) -> None:
    found = make_question(task("arc"), arc(labels, gold))
    assert found is not None
    assert found.answer == letter
    assert [c.label for c in found.choices] == list("ABCDE"[: len(labels)])
    assert [c.text for c in found.choices] == [f"option {x}" for x in labels]
    assert prompts.join_letters(tuple(c.label for c in found.choices)) == said


@pytest.mark.parametrize(
    ("labels", "gold", "letter"),
    [
        (["1", "2", "3", "4"], 1, "A"),
        (["1", "2", "3", "4"], 4, "D"),
        ([1, 2, 3, 4], 2, "B"),
        ([0, 1, 2, 3], 0, "A"),
        (["0", "1", "2", "3"], 3, "D"),
        (["A", "B", "C", "D"], 1, "B"),
        (["3", "1", "2"], 3, "A"),
    ],
)
def test_an_integer_that_is_a_label_names_it(labels: list[Any], gold: int, letter: str) -> None:
    row = arc("1234"[: len(labels)], "1", answerKey=gold)
    row["choices"]["label"] = labels
    found = make_question(task("arc"), row)
    assert found is not None
    assert found.answer == letter


@pytest.mark.parametrize("gold", [0, 5, -1])
def test_an_integer_beside_numeric_labels_is_no_position(gold: int) -> None:
    with pytest.raises(DataError, match=r"rows\.answer: found .*expected one of the labels"):
        make_question(task("arc"), arc("1234", "1", answerKey=gold))


@pytest.mark.parametrize("labels", ["ABC", "1234", "ABCDE"])
@pytest.mark.parametrize("protocol", ["reasoning", "clarifying", "direct"])
def test_prompts_say_the_question_s_own_letters(labels: str, protocol: str) -> None:
    made = make_question(task("arc"), arc(labels, labels[0]))
    assert made is not None
    [example] = draw(task("arc", sample__count=1, sample__train=1.0), [made], 0)
    table, _ = played(protocol_of(protocol), task=task("arc"), example=example)
    said = prompts.join_letters(example.letters)
    everything = " ".join(str(call.messages) for call in table.sent)
    assert said in everything
    others = [prompts.join_letters(tuple("ABCDE"[:n])) for n in (3, 4, 5)]
    assert [text for text in others if text in everything] == [said]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (arc("ABCD", "E"), "rows.answer: found 'E'; expected one of the labels"),
        (arc("ABCD", ""), "rows.answer: found ''"),
        ({**arc("ABCD", "A"), "answerKey": None}, "rows.answer: found None"),
        ({**arc("ABCD", "A"), "answerKey": 4}, "rows.answer: found 4; .*a position below 4"),
        ({**arc("ABCD", "A"), "answerKey": True}, "rows.answer: found True"),
        ({**arc("ABCD", "A"), "choices": None}, "rows.choices: .*found None; expected options"),
        ({**arc("ABCD", "A"), "choices": []}, r"rows.choices: .*found \[\]"),
        ({**arc("ABCD", "A"), "choices": "A) x"}, "rows.choices: .*expected options"),
        ({**arc("ABCD", "A"), "choices": [str(n) for n in range(11)]}, "11 options"),
        ({**arc("ABCD", "A"), "question": None}, "rows.question: .*found None; expected text"),
        ({**arc("ABCD", "A"), "question": "  "}, "rows.question: .*expected text"),
        ({"id": "x", "query": "Q?"}, r"rows.question: .*no such field; .*\['id', 'query'\]"),
        ({"id": "x", "question": "Q?", "answerKey": "A"}, r"--set task\.rows\.choices="),
    ],
)  # fmt: skip
def test_a_row_of_another_shape_is_said(row: dict[str, Any], line: str) -> None:
    with pytest.raises(DataError, match=line) as refused:
        make_question(task("arc"), row)
    assert "\n" not in str(refused.value)


def test_fields_of_any_name_can_be_reached() -> None:
    made = task(
        "arc", rows__inputs={"odd": "row['self-made']", "me": "row['self']", "all": "row.id"}
    )
    found = make_question(made, arc("AB", "A", **{"self-made": 7, "self": "I", "row": "R"}))
    assert found is not None
    assert found.inputs == {"odd": 7, "me": "I", "all": "ours"}


# -- the shipped tasks on rows of our own


def sciq(number: int) -> dict[str, Any]:
    return {
        "question": f"Which gas number {number}?",
        "distractor3": "neon",
        "distractor1": "argon",
        "distractor2": "xenon",
        "correct_answer": f"oxygen {number}",
        "support": "",
    }


def test_sciq_s_gold_moves_and_stays_the_gold() -> None:
    places: Counter[str] = Counter()
    for number in range(400):
        found = make_question(task("sciq"), sciq(number))
        assert found == make_question(task("sciq"), sciq(number)), "a question's own seed"
        assert found is not None
        texts = {c.label: c.text for c in found.choices}
        assert texts[str(found.answer)] == f"oxygen {number}"
        assert sorted(texts.values()) == sorted(["neon", "argon", "xenon", f"oxygen {number}"])
        places[str(found.answer)] += 1
    assert sorted(places) == list("ABCD")
    # 400 fair draws of 4: 100 each, standard deviation 8.7; five of them either way.
    assert all(56 < count < 144 for count in places.values()), places


def test_sciq_without_a_distractor_is_said() -> None:
    row = sciq(1)
    del row["distractor2"]
    with pytest.raises(DataError, match=r"rows.choices.*'distractor2' is undefined"):
        make_question(task("sciq"), row)


def science(**more: Any) -> dict[str, Any]:
    return {
        "image": None,
        "question": "Which?",
        "choices": ["x", "y"],
        "answer": 1,
        "hint": "",
        **more,
    }


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (science(), "Which?"),
        (science(hint="Ice is cold."), "Context: Ice is cold.\nWhich?"),
        (science(hint=None), "Which?"),
        (science(image="[media]"), None),
    ],
)
def test_sciqa_shows_the_hint_and_leaves_out_pictures(
    row: dict[str, Any], text: str | None
) -> None:
    found = make_question(task("sciqa"), row)
    assert (None if isinstance(found, str) else found.question) == text
    assert isinstance(found, str) or found.answer == "B"


@pytest.mark.parametrize("field", ["image", "hint", "answer"])
def test_sciqa_says_which_field_is_gone(field: str) -> None:
    row = science()
    del row[field]
    with pytest.raises(DataError, match=r"no such field|is undefined"):
        make_question(task("sciqa"), row)


def mmlu(number: int, where: str) -> dict[str, Any]:
    return {
        "question": f"{where} {number}?",
        "choices": ["1", "2", "3", "4"],
        "answer": number % 4,
        "subject": "abstract_algebra",
    }


def test_mmlu_never_takes_auxiliary_train(tmp_path: Path) -> None:
    for split in ("auxiliary_train", "dev", "validation", "test"):
        rows = [json.dumps(mmlu(n, split)) for n in range(200)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    loaded = load_examples(task("mmlu", source__file=str(tmp_path)), 0)
    assert len(loaded.examples) == 500
    assert loaded.rows == 600
    origins = Counter(example.question.split()[0] for example in loaded.examples)
    assert sorted(origins) == ["dev", "test", "validation"]
    assert {example.inputs["subject"] for example in loaded.examples} == {"abstract algebra"}


# -- loading files


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_same_question_counts_once(tmp_path: Path) -> None:
    rows = [mmlu(n, "q") for n in (1, 2, 2, 3, 1)]
    file = jsonl(tmp_path / "rows.jsonl", rows)
    loaded = load_examples(
        task("mmlu", source__file=file, source__splits=[], sample__count="all"), 0
    )
    assert len(loaded.examples) == 3
    assert loaded.rejected == {"repeated": 2}


def test_many_questions_lie_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as it is where all are held, in the order of the draw."""
    monkeypatch.setattr("convbench.tasks.load.MANY", 300)
    rows = [arc("ABCD", "C", question=f"Which of {n}? " + "word " * 99) for n in range(309)]
    rows = [{**row, "id": f"q{n}"} for n, row in enumerate(rows)]
    file = jsonl(tmp_path / "rows.jsonl", rows)

    def load(count: int | str) -> Sequence[Example]:
        return load_examples(task("arc", source__file=file, sample__count=count), 3).examples

    every = load("all")
    items = [make_question(task("arc"), row) for row in rows]
    said = draw(task("arc", sample__count="all"), [i for i in items if not isinstance(i, str)], 3)
    assert isinstance(every, DrawnExamples)
    assert list(every) == said
    assert every[-3] == said[-3]
    assert [e.example_id for e in load(9)] == [e.example_id for e in said[:9]]


@pytest.mark.exhaustive
def test_few_bytes_are_held_of_each_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While rows are read and drawn, and after: what is held of a few thousand at once is made
    small here, so that what is held of each shows."""
    monkeypatch.setattr("convbench.tasks.load.MANY", 9)
    monkeypatch.setattr("convbench.store.spilled.AT_ONCE", 512)
    monkeypatch.setattr("convbench.tasks.draw.PART", 64)

    def load(count: int) -> None:
        rows = (arc("AB", "A", id=f"question {n}", question=f"Which of {n}?") for n in range(count))
        file = tmp_path / f"{count}.jsonl"
        with file.open("w") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows)
        found = load_examples(task("arc", source__file=str(file), sample__count="all"), 0)
        assert len(found.examples) == count

    held_below(64, load, 1300, 5200)


def test_two_rows_of_one_key_are_said(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "rows.jsonl", [arc("AB", "A"), arc("AB", "B")])
    with pytest.raises(DataError, match=r"two rows have the key 'ours'"):
        load_examples(task("arc", source__file=file, sample__count="all"), 0)


def test_too_few_after_a_filter_says_what_was_left_out(tmp_path: Path) -> None:
    rows = [science(question=f"Q{n}?", image="[media]" if n % 2 else None) for n in range(20)]
    file = jsonl(tmp_path / "rows.jsonl", rows)
    with pytest.raises(
        DataError, match=r"found 10 questions; expected at least 500.*of 20 rows: 10 left out"
    ):
        load_examples(task("sciqa", source__file=file), 0)


# -- whole sets: our own excerpts, and the real rows where they are


@pytest.mark.parametrize(
    ("name", "folder", "sets"),
    [
        ("arc", "allenai__ai2_arc/ARC-Challenge", {}),
        ("arc-easy", "allenai__ai2_arc/ARC-Easy", {}),
        ("openbookqa", "allenai__openbookqa/main", {}),
        ("sciqa", "derek-thomas__ScienceQA/default", {}),
        ("mmlu", "cais__mmlu/all", {"source__splits": ["dev", "test"]}),
    ],
)
def test_a_set_gives_the_usual_draw(
    name: str, folder: str, sets: dict[str, Any], hub_rows: Source
) -> None:
    count = hub_rows.pick(10, 500)
    place = str(hub_rows.place / folder)
    made = task(name, source__file=place, sample__count=count, **sets)
    loaded = load_examples(made, 0)
    assert Counter(e.split for e in loaded.examples) == {
        "train": count * 4 // 5, "test": count // 5,
    }  # fmt: skip
    assert loaded.revision.startswith("sha256:")
    for example in loaded.examples:
        assert example.question
        assert 2 <= len(example.choices) <= 5
        assert example.letters == tuple("ABCDE"[: len(example.choices)])
        assert example.answer in example.letters
    again = load_examples(made, 0)
    assert again.examples == loaded.examples
    assert {e.example_id for e in load_examples(made, 1).examples} != {
        e.example_id for e in loaded.examples
    }


def test_arc_has_every_kind_of_label(hub_rows: Source) -> None:
    place = str(hub_rows.place / "allenai__ai2_arc/ARC-Challenge")
    loaded = load_examples(task("arc", source__file=place, sample__count="all"), 0)
    assert len(loaded.examples) == hub_rows.pick(12 + 3, 1119 + 299)
    assert {len(example.choices) for example in loaded.examples} == {3, 4, 5}


def test_a_copy_of_mmlu_without_validation_says_so(hub_rows: Source) -> None:
    from convbench.errors import ConvbenchError

    with pytest.raises(
        ConvbenchError, match=r"no split 'validation'; there is: dev, test; .*--set task.source"
    ):
        load_examples(task("mmlu", source__file=str(hub_rows.place / "cais__mmlu/all")), 0)


def test_science_questions_with_a_hint_show_it(hub_rows: Source) -> None:
    place = str(hub_rows.place / "derek-thomas__ScienceQA/default")
    made = task("sciqa", source__file=place, sample__count="all")
    examples = load_examples(made, 0).examples
    shown = [e.question for e in examples if e.question.startswith("Context: ")]
    assert 0 < len(shown) < len(examples)
    assert all("\n" in text for text in shown)
    assert (len(examples), len(shown)) == hub_rows.pick((15, 4), (700, len(shown)))


def test_a_task_with_another_s_rows_says_which_field_is_gone(hub_rows: Source) -> None:
    made = task("openbookqa", source__file=str(hub_rows.place / "allenai__ai2_arc/ARC-Easy"))
    with pytest.raises(
        DataError, match=r"rows.question: 'question_stem': no such field; the rows have"
    ):
        load_examples(made, 0)
