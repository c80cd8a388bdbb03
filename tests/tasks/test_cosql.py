"""CoSQL's options: real differences in the data, and no difference in form that tells the gold."""

from __future__ import annotations

import ast
import os
import re
import sqlite3
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from sqlglot import parse_one

from convbench.errors import DataError
from convbench.tasks.cosql import questions
from convbench.tasks.cosql.balance import Balance
from convbench.tasks.cosql.databases import Maker, groups
from convbench.tasks.cosql.dialogues import stand_alone
from convbench.tasks.cosql.edits import Edit, edited
from convbench.tasks.cosql.hints import wanted
from convbench.tasks.cosql.options import candidates
from convbench.tasks.cosql.queries import NODE, BadQuery, canonical
from convbench.tasks.cosql.results import Bench, telling
from convbench.tasks.cosql.tables import Tables
from tests.tasks.leaks import likeness, surface, told

ALL, SOME = bool(os.environ.get("CONVBENCH_SLOW")), 80
"""Whether all of the real questions are made (half a minute of CPU), else how many."""
REAL = Path(__file__).parents[2] / "../shared/data/hub/cosql/cosql/validation.parquet"

# fmt: off
LIBRARY = {
    "db_id": "library",
    "db_path": "",
    "db_table_names": ["author", "book", "sqlite_sequence"],
    "db_column_names": {
        "table_id": [-1, 0, 0, 0, 1, 1, 1, 1, 1, 2],
        "column_name": [
            "*", "Id", "Name", "Country", "Id", "Author_Id", "Title", "Genre", "Pages", "name",
        ],
    },
    "db_column_types": [
        "text", "number", "text", "text", "number", "number", "text", "text", "number", "text",
    ],
    "db_primary_keys": {"column_id": [1, 4]},
    "db_foreign_keys": {"column_id": [5], "other_column_id": [1]},
}
# fmt: on
TABLES = Tables.of(LIBRARY)
JOINED = (
    "select t1.name ,  count ( * )  from AUTHOR as t1 join BOOK as t2 on t1.id  =  t2.author_id "
    'where t2.genre = "crime" group by t1.name having count(*)  > =  2'
)
SHORT = "SELECT title FROM book WHERE pages > 300 ORDER BY pages DESC LIMIT 1"


def row(turn: int, text: str, query: str = SHORT, **other: Any) -> dict[str, Any]:
    """A row of our own in the builder's schema."""
    return {**LIBRARY, "turn_idx": turn, "utterances": [text], "query": query, **other}


def ask(*rows: dict[str, Any], seed: int = 0) -> list[dict[str, Any]]:
    return list(questions(rows, seed=seed))


def test_goals_come_first_then_first_turns_and_each_question_once() -> None:
    rows = [
        row(0, "List titles."),
        row(1, "And pages?"),
        row(-1, "Which book is longest?"),
        row(0, "Which  book is LONGEST?"),
        row(-1, "Who wrote most?"),
        row(0, "Something else"),
        row(0, "A dialogue without a goal before it"),
    ]
    found = list(stand_alone(rows))
    asked = [(a.text, a.dialogue) for a in found if not isinstance(a, str)]
    assert asked == [
        ("Which book is longest?", "library-1"),
        ("Who wrote most?", "library-2"),
        ("List titles.", "library-1"),
        ("Something else", "library-3"),
        ("A dialogue without a goal before it", "library-4"),
    ]
    assert Counter(a for a in found if isinstance(a, str)) == {
        "a later turn, which does not stand alone": 1,
        "the same question as another row": 1,
    }


def test_the_gold_takes_the_schemas_names_and_plain_quotes() -> None:
    assert canonical(JOINED, TABLES).text == (
        "SELECT T1.Name, COUNT(*) FROM author AS T1 JOIN book AS T2 ON T1.Id = T2.Author_Id "
        "WHERE T2.Genre = 'crime' GROUP BY T1.Name HAVING COUNT(*) >= 2"
    )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT FROM WHERE", "the gold query does not parse"),
        ("DROP TABLE book", "the gold is not a query"),
        ("SELECT x FROM shelf", "the gold query reads a table that the schema lacks"),
        ("SELECT weight FROM book", "the gold query names a column that the schema lacks"),
        (
            "SELECT title FROM book WHERE pages > 5 AND pages < 5",
            "the gold's result is empty on every database",
        ),
        ("SELECT COUNT(*) FROM book", "no edits to both sides of the gold's length"),
    ],
)
def test_rows_without_a_fair_question_are_rejected(query: str, reason: str) -> None:
    assert ask(row(-1, "Which?", query)) == [{"reject": reason}]


def test_the_question_is_worded_as_in_the_paper() -> None:
    (made,) = ask(row(-1, "Who wrote two crime novels?", JOINED))
    assert made["question"] == (
        "Your task is to generate SQL query based on the following question and information "
        "provided. Who wrote two crime novels? Hint: Consider relationships between multiple "
        "tables. The relevant schema tables are: ['author', 'book']. The optional foreign keys "
        "are: ['book.Author_Id = author.Id']."
    )
    assert made["choices"][made["answer"]] == canonical(JOINED, TABLES).text
    assert (made["id"], made["group"]) == ("library-1-goal", "library-1")


def test_the_same_seed_gives_the_same_and_another_seed_other_options() -> None:
    rows = [row(-1, "Who?", JOINED), row(0, "Which?", SHORT)]
    assert ask(*rows, seed=1) == ask(*rows, seed=1)
    assert ask(*rows, seed=1) != ask(*rows, seed=2)


def test_another_schema_is_named() -> None:
    with pytest.raises(DataError, match=r"lacks \['utterances'"):
        ask({k: v for k, v in row(0, "x").items() if k != "utterances"})


def test_databases_honour_keys_and_hold_the_values_asked_for() -> None:
    tree = canonical(JOINED, TABLES).tree
    crime = 0
    for seed in range(40):
        maker = Maker(TABLES, wanted([tree]), groups(TABLES.foreign), Random(seed))
        authors, books = maker.rows(0), maker.rows(1)
        assert len({a[0] for a in authors}) == len(authors) >= 2
        assert len({b[0] for b in books}) == len(books) >= 2
        assert {b[1] for b in books} <= {a[0] for a in authors}
        assert all(isinstance(b[4], int) and isinstance(b[2], str) for b in books)
        crime += any(b[3] == "crime" for b in books)
    assert crime > 20


def test_results_are_multisets_unless_ordered_and_ties_count_for_nothing() -> None:
    queries = {
        name: canonical(sql, TABLES)
        for name, sql in {
            "open": "SELECT Genre FROM book",
            "up": "SELECT Genre FROM book ORDER BY Genre",
            "down": "SELECT Genre FROM book ORDER BY Genre DESC",
            "once": "SELECT DISTINCT Genre FROM book",
            "any": "SELECT Title FROM book LIMIT 1",
        }.items()
    }
    bench = Bench(queries["open"], TABLES, key="x", seed=0)
    found = {name: bench.results(query) for name, query in queries.items()}
    assert telling([found["open"], found["up"]]) == 0
    assert telling([found["up"], found["down"]]) > 10
    assert telling([found["open"], found["once"]]) > 5
    assert found["any"].count(None) > 15
    bench.close()


def test_a_query_that_never_ends_has_no_result() -> None:
    gold = canonical(SHORT, TABLES)
    bench = Bench(gold, TABLES, key="x", seed=0)
    many = ", ".join(f"book AS T{i}" for i in range(9))
    endless = canonical(f"SELECT COUNT(*) FROM {many}", TABLES)
    assert bench.results(endless) == [None] * 20
    bench.close()


def test_wrong_options_are_two_edits_and_both_together() -> None:
    gold = canonical(JOINED, TABLES)
    bench = Bench(gold, TABLES, key="x", seed=0)
    sets = candidates(gold, TABLES, bench, Random(0))
    assert isinstance(sets, list)
    assert len(sets) > 5
    for wrong in sets:
        results = [bench.results(query) for query in (gold, *wrong)]
        assert telling(results) >= 1
        assert any(r and r.rows for r in results[0])
        lengths = [len(query.text) for query in (gold, *wrong)]
        # b(a(gold)) differs from a(gold) as b(gold) does from the gold.
        assert abs((lengths[3] - lengths[1]) - (lengths[2] - lengths[0])) <= 12
    bench.close()


def test_an_edit_cannot_change_what_another_has_replaced() -> None:
    gold = canonical("SELECT title FROM book WHERE pages > 3", TABLES)
    literal = next(n for n in gold.tree.walk() if n.name == "3")
    number = literal.meta[NODE]
    two = [Edit("literal", number, lambda n, v=v: parse_one(v)) for v in ("4", "5")]
    assert edited(gold, two[:1]) is not None
    assert edited(gold, two) is None


def test_bad_queries_say_why() -> None:
    with pytest.raises(BadQuery, match="does not parse"):
        canonical("SELECT (", TABLES)


def test_balance_makes_up_for_a_gold_that_was_the_shortest() -> None:
    balance, rng = Balance(), Random(0)
    shortest = ["a", "a b", "a c", "a b c"]
    longest = ["a b c", "a b", "a c", "a"]
    for _ in range(50):
        balance.choose([shortest], rng)
    taken = [balance.choose([shortest, longest], rng) for _ in range(50)]
    assert sum(taken) > 40


@pytest.fixture(scope="module")
def real() -> list[dict[str, Any]]:
    if not REAL.exists():
        pytest.skip("CoSQL's rows are not at ../shared/data")
    parquet = pytest.importorskip("pyarrow.parquet")
    return list(parquet.read_table(REAL).to_pylist())


@pytest.fixture(scope="module")
def made(real: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that the rows give, or the part of it that ends with the first 80 questions.

    That part is what a user's set begins with, and enough: options chosen without `balance` are
    told there in 46% [36%, 57%] of the cases.
    """
    found, kept = [], 0
    for item in questions(real, seed=0):
        found.append(item)
        kept += "reject" not in item
        if kept == SOME and not ALL:
            break
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not ALL, reason="set CONVBENCH_SLOW=1 to make all of CoSQL's questions")
def test_real_rows_are_all_accounted_for(
    real: list[dict[str, Any]], made: list[dict[str, Any]]
) -> None:
    assert len(made) == len(real)
    assert sum("reject" not in m for m in made) >= 300


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_real_questions_are_whole(made: list[dict[str, Any]]) -> None:
    kept = [m for m in made if "reject" not in m]
    assert len(kept) >= SOME
    assert len({m["id"] for m in kept}) == len({m["utterance"].casefold() for m in kept})
    assert len(kept) == len({m["id"] for m in kept})
    for m in kept:
        assert len(set(m["choices"])) == 4
        named = re.search(r"schema tables are: (\[.*?\])\.", m["question"])
        assert named is not None
        assert ast.literal_eval(named[1]) == m["tables"]
        for choice in m["choices"]:
            assert sqlite3.complete_statement(choice + ";")
            assert parse_one(choice, dialect="sqlite").sql(dialect="sqlite") == choice


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("features", [surface, likeness])
def test_form_alone_does_not_tell_the_gold(made: list[dict[str, Any]], features: Any) -> None:
    kept = [m for m in made if "reject" not in m]
    share, low, high = told(kept, features)
    assert low <= 0.25 <= high, f"{share:.3f} [{low:.3f}, {high:.3f}]"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_leak_test_does_find_a_leak(made: list[dict[str, Any]]) -> None:
    """Were the gold always the first option, or marked by its length, it would be told."""
    kept = [m for m in made if "reject" not in m]
    first = [{**m, "choices": sorted(m["choices"], key=len)} for m in kept]
    leaky = [{**m, "answer": 0} for m in first]
    assert told(leaky, surface)[1] > 0.6


def test_the_regression_is_even_on_options_that_are_alike() -> None:
    rng = np.random.default_rng(0)
    same = [
        {"choices": ["abcd"] * 4, "answer": int(rng.integers(4)), "group": str(i)}
        for i in range(200)
    ]
    _, low, high = told(same, surface)
    assert low <= 0.25 <= high
