"""CoSQL's options: real differences in the data, and no difference in form that tells the gold."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from sqlglot import parse_one

from convbench.errors import DataError
from convbench.tasks.cosql import questions
from convbench.tasks.cosql.databases import (
    KINDS,
    OF_A_KIND,
    QueryBench,
    RowMaker,
    compared_values,
    link_groups,
)
from convbench.tasks.cosql.options import GoldQuestion, repeats_column, template_queries
from convbench.tasks.cosql.queries import BadQuery, DatabaseSchema, canonical_query
from convbench.tasks.cosql.query_templates import QueryTemplate
from convbench.tasks.cosql.question_rows import standalone_questions, takes_wrong_end
from convbench.tasks.cosql.surface_features import count_shared as words_shared
from convbench.tasks.cosql.surface_features import surface_features
from tests.helpers.excerpts import Source
from tests.tasks.leaks import (
    ALL,
    Features,
    best_known,
    keywords,
    likeness,
    shared,
    surface,
    told,
    words,
)

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
TABLES = DatabaseSchema.from_row(LIBRARY)
JOINED = (
    "select t1.name ,  count ( * )  from AUTHOR as t1 join BOOK as t2 on t1.id  =  t2.author_id "
    'where t2.genre = "crime" group by t1.name having count(*)  > =  2'
)
SHORT = "SELECT title FROM book WHERE pages > 300 ORDER BY pages DESC LIMIT 1"


BOOKS = (
    "SELECT title FROM book",
    "SELECT genre FROM book GROUP BY genre ORDER BY count(*) DESC LIMIT 1",
    "SELECT count(DISTINCT genre) FROM book",
    "SELECT avg(pages) FROM book",
    "SELECT title FROM book ORDER BY pages LIMIT 1",
    "SELECT title FROM book ORDER BY pages DESC LIMIT 1",
    "SELECT genre FROM book GROUP BY genre ORDER BY count(*) LIMIT 1",
    "SELECT sum(pages) FROM book",
)


def row(turn: int, text: str, query: str = SHORT, **other: Any) -> dict[str, Any]:
    """A row of our own in the builder's schema."""
    return {**LIBRARY, "turn_idx": turn, "utterances": [text], "query": query, **other}


def ask(*rows: dict[str, Any], seed: int = 0) -> list[dict[str, Any]]:
    return list(questions(rows, seed=seed))


def books() -> list[dict[str, Any]]:
    """Rows that can lend each other their builds."""
    return [row(-1, f"Which, case {n}?", query) for n, query in enumerate(BOOKS)]


def kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [made for made in rows if "reject" not in made]


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
    found = list(standalone_questions(rows))
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
    assert canonical_query(JOINED, TABLES).text == (
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
        ("SELECT title, Title FROM book", "the gold query lists a column twice"),
        (
            "SELECT COUNT(*) FROM book",
            "too few other questions have a build that fits, or that its own fits",
        ),
    ],
)
def test_rows_without_a_fair_question_are_rejected(query: str, reason: str) -> None:
    assert ask(row(-1, "Which?", query)) == [{"reject": reason}]


@pytest.mark.parametrize(
    ("text", "query", "wrong"),
    [
        ("Which has the fewest pages?", "SELECT title FROM book ORDER BY pages DESC LIMIT 1", True),
        ("Which has the fewest pages?", "SELECT title FROM book ORDER BY pages LIMIT 1", False),
        ("What is the largest page count?", "SELECT MIN(pages) FROM book", True),
        ("The least and the most pages?", "SELECT MIN(pages), MAX(pages) FROM book", False),
        (
            "Which have at least 5 pages?",
            "SELECT title FROM book ORDER BY pages DESC LIMIT 1",
            False,
        ),
        ("Who is youngest?", "SELECT name FROM dog WHERE age = (SELECT MAX(age) FROM dog)", True),
        ("Who is youngest?", "SELECT name FROM dog ORDER BY born DESC LIMIT 1", False),
        ("Which book is first?", "SELECT title FROM book ORDER BY pages DESC LIMIT 1", False),
    ],
)
def test_a_right_query_that_takes_the_wrong_end_is_told(text: str, query: str, wrong: bool) -> None:
    assert takes_wrong_end(text, parse_one(query, dialect="sqlite")) is wrong


def test_the_question_is_worded_as_in_the_paper() -> None:
    made = kept(ask(*books()))
    assert len(made) >= 4
    for one in made:
        number = int(re.findall(r"case (\d)", one["question"])[0])
        assert one["question"].startswith(
            "Your task is to generate SQL query based on the following question and information "
            f"provided. Which, case {number}? Hint: Consider "
        )
        assert one["question"].endswith("The relevant schema tables are: ['book'].")
        assert one["choices"][one["answer"]] == canonical_query(BOOKS[number], TABLES).text
        assert (one["id"], one["group"]) == (f"library-{number + 1}-goal", f"library-{number + 1}")


def test_wrong_options_have_the_builds_of_other_right_queries() -> None:
    def build(text: str) -> str:
        return re.sub(r"\b(Id|Author_Id|Title|Genre|Pages)\b", "x", text)

    right = {build(canonical_query(query, TABLES).text) for query in BOOKS}
    for one in kept(ask(*books())):
        assert {build(choice) for choice in one["choices"]} <= right


def test_the_same_seed_gives_the_same_and_another_seed_other_options() -> None:
    assert ask(*books(), seed=1) == ask(*books(), seed=1)
    assert ask(*books(), seed=1) != ask(*books(), seed=2)


def test_another_schema_is_named() -> None:
    with pytest.raises(DataError, match=r"lacks \['utterances'"):
        ask({k: v for k, v in row(0, "x").items() if k != "utterances"})


def test_databases_honour_keys_and_hold_the_values_asked_for() -> None:
    tree = canonical_query(JOINED, TABLES).tree
    crime = 0
    for seed in range(40):
        maker = RowMaker(TABLES, compared_values([tree]), link_groups(TABLES.foreign), Random(seed))
        authors, books = maker.table_rows(0), maker.table_rows(1)
        assert len({a[0] for a in authors}) == len(authors) >= 2
        assert len({b[0] for b in books}) == len(books) >= 2
        assert {b[1] for b in books} <= {a[0] for a in authors}
        assert all(isinstance(b[4], int) and isinstance(b[2], str) for b in books)
        crime += any(b[3] == "crime" for b in books)
    assert crime > 20


def test_databases_are_of_several_kinds_as_real_ones_are() -> None:
    """Mostly unique values, many ties, and NULLs, which never are in keys."""
    titles: list[list[Any]] = []
    for kind in KINDS:
        makers = (
            RowMaker(TABLES, {}, link_groups(TABLES.foreign), Random(s), kind) for s in range(20)
        )
        found = [maker.table_rows(1) for maker in makers]
        assert all(value is not None for rows in found for r in rows for value in r[:2])
        titles.append([[r[2] for r in rows] for rows in found])
    several, once, ties, nulls = titles
    assert np.mean([len(set(t)) / len(t) for t in once]) > 0.9
    assert np.mean([len(set(t)) / len(t) for t in ties]) < 0.6
    assert np.mean([t.count(None) / len(t) for t in nulls]) > 0.05
    assert not any(None in t for kind in (several, once, ties) for t in kind)


def test_results_are_multisets_unless_ordered_and_ties_count_for_nothing() -> None:
    queries = {
        name: canonical_query(sql, TABLES)
        for name, sql in {
            "open": "SELECT Genre FROM book",
            "up": "SELECT Genre FROM book ORDER BY Genre",
            "down": "SELECT Genre FROM book ORDER BY Genre DESC",
            "any": "SELECT Title FROM book LIMIT 1",
            "long": "SELECT Title FROM book WHERE Pages > 20",
            "all": "SELECT Title FROM book",
        }.items()
    }
    bench = QueryBench(queries["open"], TABLES, key="x", seed=0)
    found = {name: bench.run_query(query) for name, query in queries.items()}
    assert not found["open"].differs(found["up"])
    assert found["up"].differs(found["down"])
    assert found["long"].differs(found["all"])
    assert found["any"].results.count(None) > 10
    assert found["all"].any_row
    bench.close()


def test_the_same_columns_in_another_order_are_the_same_answer() -> None:
    gold = canonical_query("SELECT Title, Pages FROM book", TABLES)
    bench = QueryBench(gold, TABLES, key="x", seed=0)
    found = bench.run_query(gold)
    assert not found.differs(
        bench.run_query(canonical_query("SELECT Pages, Title FROM book", TABLES))
    )
    assert found.differs(bench.run_query(canonical_query("SELECT Pages, Genre FROM book", TABLES)))
    bench.close()


def test_what_differs_on_repeated_values_alone_is_a_right_answer_too() -> None:
    """Names come once in most real tables, and there DISTINCT changes nothing."""
    plain, once = (
        canonical_query(f"SELECT {x}Name FROM author", TABLES) for x in ("", "DISTINCT ")
    )
    bench = QueryBench(plain, TABLES, key="x", seed=0)
    pairs = zip(bench.run_query(plain).results, bench.run_query(once).results, strict=True)
    apart = [bool(a and b and a.differs(b)) for a, b in pairs]
    assert any(apart)
    assert len(apart) == OF_A_KIND * len(KINDS)
    bench.close()


def test_a_query_that_never_ends_has_no_result() -> None:
    gold = canonical_query(SHORT, TABLES)
    bench = QueryBench(gold, TABLES, key="x", seed=0)
    many = ", ".join(f"book AS T{i}" for i in range(9))
    endless = canonical_query(f"SELECT COUNT(*) FROM {many}", TABLES)
    assert set(bench.run_query(endless).results) == {None}
    bench.close()


def build(sql: str) -> QueryTemplate:
    return QueryTemplate.from_query(canonical_query(sql, TABLES), TABLES)


def test_a_wrong_option_names_the_sorts_of_column_that_its_build_names() -> None:
    """Right queries list names and count by keys; with columns drawn for any place alike, those
    that grouped by names were known to be wrong."""
    gold = build("SELECT title, genre FROM book ORDER BY pages")
    donor = build("SELECT name FROM author GROUP BY id ORDER BY country")
    asked = GoldQuestion("k", "Which?", gold, TABLES, {})
    first = [next(template_queries(donor, asked, Random(seed))).tree for seed in range(60)]
    grouped = Counter(tree.args["group"].expressions[0].name for tree in first)
    ordered = Counter(tree.args["order"].expressions[0].this.name for tree in first)
    assert grouped["Id"] + grouped["Author_Id"] > 40
    assert ordered["Title"] + ordered["Genre"] > 40


def test_columns_that_a_key_links_are_compared() -> None:
    gold = build("SELECT name FROM author WHERE NOT id IN (SELECT author_id FROM book)")
    donor = build("SELECT country FROM author WHERE id IN (SELECT author_id FROM book)")
    asked = GoldQuestion("k", "Which?", gold, TABLES, {})
    first = [next(template_queries(donor, asked, Random(seed))).text for seed in range(40)]
    linked = [re.search(r"WHERE (\w+) IN \(SELECT (\w+)", text) for text in first]
    pairs = Counter(found.groups() for found in linked if found)
    assert pairs["Id", "Author_Id"] + pairs["Id", "Id"] > 25, pairs


def test_a_wrong_option_shares_as_many_words_with_the_question_and_keeps_its_values() -> None:
    donor = build("SELECT avg(pages) FROM book WHERE genre <> 'noir'")
    gold = build("SELECT title FROM book WHERE genre = 'crime'")
    assert donor.shape == gold.shape == ((1,), 1, 0)
    asked = GoldQuestion("k", "Which pages are crime?", gold, TABLES, {})
    found = {query.text for query in template_queries(donor, asked, Random(0))}
    assert found
    assert not any("Pages" in text for text in found)  # it would say a word more than the gold
    asked = GoldQuestion("k", "Which ids are crime?", gold, TABLES, {})
    found = {query.text for query in template_queries(donor, asked, Random(0))}
    assert found == {
        "SELECT AVG(Pages) FROM book WHERE Genre <> 'crime'",
        "SELECT AVG(Pages) FROM book WHERE Title <> 'crime'",
    }
    assert {words_shared(asked.words, text) for text in found} == {1}


@pytest.mark.parametrize(
    ("sql", "twice"),
    [
        ("SELECT title, Title FROM book", True),
        ("SELECT title FROM book GROUP BY genre, genre", True),
        ("SELECT title FROM book WHERE pages = pages", True),
        ("SELECT title, genre FROM book WHERE pages = id", False),
    ],
)
def test_a_query_that_lists_a_column_twice_is_no_option(sql: str, twice: bool) -> None:
    assert repeats_column(canonical_query(sql, TABLES)) == twice


def test_looks_are_even_where_options_are_alike() -> None:
    assert not surface_features("Which?", ["SELECT a FROM b"] * 4).any()
    assert surface_features("Which?", ["SELECT a, b FROM b", *["SELECT a FROM b"] * 3]).any()


def test_bad_queries_say_why() -> None:
    with pytest.raises(BadQuery, match="does not parse"):
        canonical_query("SELECT (", TABLES)


@pytest.fixture(scope="module")
def given(hub_rows: Source) -> list[dict[str, Any]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(hub_rows.place / "cosql/cosql/validation.parquet")
    return list(found.to_pylist())


@pytest.fixture(scope="module")
def made(hub_rows: Source, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that the rows give, of all databases or of every other one."""
    step = 1 if ALL or not hub_rows.real else 2
    names = sorted({row["db_id"] for row in given})[::step]
    return list(questions([row for row in given if row["db_id"] in names], seed=0))


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_rows_are_all_accounted_for(
    hub_rows: Source, given: list[dict[str, Any]], made: list[dict[str, Any]]
) -> None:
    if ALL or not hub_rows.real:
        assert len(made) == len(given)
    assert len(kept(made)) >= hub_rows.pick(20, 160 if ALL else 70)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_questions_are_whole(made: list[dict[str, Any]]) -> None:
    found = kept(made)
    assert len({m["id"] for m in found}) == len({m["utterance"].casefold() for m in found})
    assert len(found) == len({m["id"] for m in found})
    for m in found:
        assert len(set(m["choices"])) == 4
        named = re.search(r"schema tables are: (\[.*?\])\.", m["question"])
        assert named is not None
        assert ast.literal_eval(named[1]) == m["tables"]
        for choice in m["choices"]:
            assert sqlite3.complete_statement(choice + ";")
            tree = parse_one(choice, dialect="sqlite")
            assert tree.sql(dialect="sqlite") == choice
            listed = [item.sql().lower() for item in getattr(tree, "expressions", ())]
            assert len(set(listed)) == len(listed)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_no_two_options_list_the_same_in_another_order(made: list[dict[str, Any]]) -> None:
    """Who asks for names and ages has either right."""
    for m in kept(made):
        listed = [
            (tree.args.pop("expressions", ()), tree.sql())
            for tree in (parse_one(choice, dialect="sqlite") for choice in m["choices"])
        ]
        same = {(frozenset(item.sql().lower() for item in items), rest) for items, rest in listed}
        assert len(same) == 4, m["choices"]


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_right_build_is_neither_the_newest_nor_the_best_known(
    hub_rows: Source, made: list[dict[str, Any]], sign: int
) -> None:
    """Known from right answers on other databases. With donors that all are questions, a third of
    the right answers were told by being the only new build."""
    share, low, high = best_known(kept(made), sign, hub_rows.pick("group", "database"))
    assert low <= 0.25, f"{share:.3f} [{low:.3f}, {high:.3f}]"


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_names_are_listed_and_grouped_by_as_often_in_right_as_in_wrong_queries(
    hub_rows: Source, made: list[dict[str, Any]]
) -> None:
    """With columns drawn for any place alike, 7% of wrong queries and no right one grouped or
    ordered by a name, and 18% against 31% listed one last."""
    if not hub_rows.real:
        pytest.skip("too few questions to compare shares")
    off = []
    for pattern in (r"Name FROM", r"BY (T\d\.)?Name\b|\((T\d\.)?Name\)"):
        found = [[bool(re.search(pattern, choice)) for choice in m["choices"]] for m in kept(made)]
        right = [one[m["answer"]] for one, m in zip(found, kept(made), strict=True)]
        off.append(4 / 3 * (np.mean(right) - np.mean(found)))
    assert np.abs(off).max() < 0.12, off


COUNTED = (keywords, likeness, shared)
ADVERSARIES: list[tuple[str, tuple[Features, ...]]] = [
    ("logistic", COUNTED),
    ("logistic", (words,)),
    ("tree", (words,)),
]
if ALL:
    ADVERSARIES += [
        ("logistic", (surface,)),
        ("logistic", (surface, *COUNTED)),
        ("tree", (surface, *COUNTED)),
    ]


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("model", "features"), ADVERSARIES)
def test_what_can_be_counted_does_not_tell_the_gold(
    hub_rows: Source, made: list[dict[str, Any]], model: str, features: tuple[Features, ...]
) -> None:
    """Learnt on other databases, of the few in the excerpt on other dialogues. Edits of the gold
    were told by keywords in 45%, by all in 71%; words told columns drawn for any place in 33%.
    Nor is it told less often than by chance, which would tell it to who turns the answer around:
    evened out over all questions alone, keywords found it in 17%."""
    share, low, high = told(
        kept(made),
        *features,
        cluster=hub_rows.pick("group", "database"),
        model=model,
        tried=len(ADVERSARIES),
    )
    assert low <= 0.25 <= high, f"{share:.3f} [{low:.3f}, {high:.3f}]"


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_who_turns_the_adversary_around_does_not_win(
    hub_rows: Source, made: list[dict[str, Any]]
) -> None:
    """Whether to take the least likely option is chosen on the folds learnt from."""
    cluster = hub_rows.pick("group", "database")
    share, low, high = told(kept(made), keywords, cluster=cluster, turns=True)
    assert low <= 0.25, f"{share:.3f} [{low:.3f}, {high:.3f}]"


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", [0, 1])
def test_databases_made_apart_say_nothing_about_each_other(
    hub_rows: Source, given: list[dict[str, Any]], part: int
) -> None:
    """Half of the databases by themselves, learnt from, then the other half by itself, tested."""
    if hub_rows.real and not ALL:
        pytest.skip("set CONVBENCH_SLOW=1 to make all of CoSQL's questions")
    cluster = hub_rows.pick("group", "database")
    names = sorted({row["db_id"] for row in given})
    halves = [names[part::2], names[1 - part :: 2]]
    found = [
        m
        for half in halves
        for m in kept(list(questions([r for r in given if r["db_id"] in half], seed=part)))
    ]
    learnt = {m[cluster] for m in found if m["database"] in halves[0]}
    share, low, high = told(found, surface, *COUNTED, cluster=cluster, train=learnt.__contains__)
    assert low <= 0.25, f"{share:.3f} [{low:.3f}, {high:.3f}]"


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_the_adversary_does_find_a_leak(made: list[dict[str, Any]]) -> None:
    """Were the gold marked by one DISTINCT, or by its length, it would be told."""
    first = [{**m, "choices": sorted(m["choices"], key=len), "answer": 0} for m in kept(made)]
    assert told(first, surface, cluster="database")[1] > 0.6
    marked = [
        {
            **m,
            "choices": [
                c.replace("SELECT", "SELECT DISTINCT", 1) if i == m["answer"] else c
                for i, c in enumerate(m["choices"])
            ],
        }
        for m in kept(made)
    ]
    assert told(marked, keywords, cluster="database")[1] > 0.6


def test_the_adversary_is_even_on_options_that_are_alike() -> None:
    rng = np.random.default_rng(0)
    same = [
        {"choices": ["abcd"] * 4, "answer": int(rng.integers(4)), "group": str(i)}
        for i in range(200)
    ]
    _, low, high = told(same, surface)
    assert low <= 0.25 <= high
