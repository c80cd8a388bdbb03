"""CoSQL's questions from an excerpt of our own: three databases, several dialogues in each."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections import Counter

import pytest
from sqlglot import parse_one

from convbench import catalog
from convbench.schema import TaskSpec
from convbench.tasks.cosql import questions
from convbench.tasks.load import LoadResult, load_examples
from tests.helpers.excerpts import EXCERPTS, rows, written

ROWS = list(rows(EXCERPTS / "hub/cosql/cosql/validation.jsonl"))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadResult:
    """All questions, from a parquet file in the builder's types."""
    place = written(EXCERPTS / "hub/cosql/cosql", tmp_path_factory.mktemp("cosql"))
    sets = {"source.file": str(place), "sample.count": "all"}
    return load_examples(catalog.load_spec(TaskSpec, "tasks", "cosql", sets=sets), 0)


@pytest.mark.exhaustive
def test_every_row_is_a_question_or_a_reason() -> None:
    made = list(questions(ROWS, seed=0))
    assert len(made) == len(ROWS) == 69
    reasons = Counter(m["reject"] for m in made if "reject" in m)
    known = {
        "a later turn, which does not stand alone": 4,
        "the same question as another row": 1,
        "the gold query does not parse": 1,
        "the gold query reads a table that the schema lacks": 1,
    }
    assert known.items() <= reasons.items()
    kept = [m for m in made if "reject" not in m]
    assert len(kept) >= 15
    assert len({m["id"] for m in kept}) == len({m["utterance"].casefold() for m in kept})
    assert len(kept) == len({m["id"] for m in kept})
    assert {m["group"].rpartition("-")[0] for m in kept} <= {"ferries", "village_1", "choir"}


@pytest.mark.exhaustive
def test_questions_read_from_a_file_are_whole(loaded: LoadResult) -> None:
    assert loaded.rows == 69
    assert len(loaded.examples) + sum(loaded.rejected.values()) == 69
    for example in loaded.examples:
        texts = [choice.text for choice in example.choices]
        assert len(set(texts)) == 4
        assert example.answer in example.letters
        named = re.search(r"schema tables are: (\[.*?\])\.", example.question)
        assert named is not None
        assert ast.literal_eval(named[1])
        for text in texts:
            assert sqlite3.complete_statement(text + ";")
            assert parse_one(text, dialect="sqlite").sql(dialect="sqlite") == text


def test_options_take_the_schema_s_spelling(loaded: LoadResult) -> None:
    """The rows also write BOAT, skipper_id and double quotes."""
    texts = " ".join(choice.text for e in loaded.examples for choice in e.choices)
    assert any(name in texts for name in ("boat", "Seats", "Owners", "sung_in"))
    assert not re.search(r'BOAT|SKIPPER|skipper_id|count|"|> =', texts)
