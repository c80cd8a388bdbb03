"""CoSQL (Yu et al. 2019) as multiple choice: which query answers the question?

The form is that of Mukherjee et al. (NeurIPS 2025), section E.6. The paper does not say how the
wrong queries were made; here each has the structure of another question's or turn's right query
(`options`). All are written by one formatter, and used only if generated databases distinguish all
four (`databases`).
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from sqlglot import exp

from convbench.errors import DataError
from convbench.tasks import distractors
from convbench.tasks.cosql.balance import choose_wrong
from convbench.tasks.cosql.databases import QueryBench
from convbench.tasks.cosql.options import GoldQuestion, WrongOption, wrong_options
from convbench.tasks.cosql.queries import COLUMN, BadQuery, DatabaseSchema, canonical_query
from convbench.tasks.cosql.query_templates import QueryTemplate, Shape, query_phrases
from convbench.tasks.cosql.question_rows import (
    FIRST,
    GOAL,
    StandaloneQuestion,
    standalone_questions,
    takes_wrong_end,
    word_question,
)
from convbench.tasks.question_cache import cached_questions

__all__ = ["questions"]

FEW = "too few other questions have a build that fits, or that its own fits"
CONTRADICTS = "the gold takes the most where the question asks for the least, or the other way"
_FIELDS = (
    "query",
    "utterances",
    "turn_idx",
    "db_id",
    "db_table_names",
    "db_column_names",
    "db_column_types",
    "db_primary_keys",
    "db_foreign_keys",
)


def questions(rows: Iterable[Mapping[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a question, or the reason why there is none, for each row of the builder's schema.

    The group is the dialogue. Rows must come in the data's order, which alone delimits dialogues. A
    question's wrong queries have the structure of other right queries in these rows. Raises
    DataError for another schema. Results are cached by the rows and the seed.
    """
    every = list(_check_rows(rows))
    made_by, packages = (sys.modules[__name__], distractors), ("sqlglot", "numpy")
    yield from cached_questions(
        "cosql", made_by, packages, every, seed, lambda: _make_questions(every, seed)
    )


def _make_questions(every: Sequence[Mapping[str, Any]], seed: int) -> Iterator[dict[str, Any]]:
    """Yield questions, or why there are none."""
    usable: dict[str, UsableQuestion] = {}
    for alone in standalone_questions(every):
        outcome = alone if isinstance(alone, str) else UsableQuestion.from_standalone(alone)
        if isinstance(outcome, str):
            yield {"reject": outcome}
        else:
            usable[outcome.alone.key] = outcome
    sets: dict[str, list[WrongOption]] = {}
    for key, wrong in _wrong_options(list(usable.values()), _donor_templates(every), seed):
        if isinstance(wrong, str):
            yield {"reject": wrong}
        else:
            sets[key] = wrong
    texts = {key: (usable[key].alone.text, usable[key].template.query.text) for key in sets}
    forms = {key: question.template.form for key, question in usable.items()}
    phrases_by_key = {
        key: query_phrases(usable[key].template.query, usable[key].tables) for key in sets
    }
    databases = {key: str(usable[key].alone.row["db_id"]) for key in sets}
    chosen = choose_wrong(
        sets, texts, forms, phrases_by_key, databases, _seeded_random("draw", seed, "")
    )
    for key in sets:
        drawn = chosen.get(key)
        yield {"reject": FEW} if drawn is None else _question_row(usable[key], drawn, seed)


def _check_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows. Raises DataError for one that lacks a field."""
    for row in rows:
        missing = [name for name in _FIELDS if name not in row]
        if missing:
            raise DataError(
                f"cosql: a row lacks {missing}; expected the common builder's fields {[*_FIELDS]}, "
                f"found {sorted(row)}; name a set in that layout: --set task.source.file=PATH"
            )
        yield row


@dataclass(frozen=True)
class UsableQuestion:
    """A question that stands alone, its schema and the template of its right query."""

    alone: StandaloneQuestion
    tables: DatabaseSchema
    template: QueryTemplate

    @classmethod
    def from_standalone(cls, alone: StandaloneQuestion) -> UsableQuestion | str:
        """Return the question of a row, or why its right query cannot be used."""
        tables = DatabaseSchema.from_row(alone.row)
        try:
            question = cls(
                alone,
                tables,
                QueryTemplate.from_query(canonical_query(alone.row["query"], tables), tables),
            )
        except BadQuery as reason:
            return str(reason)
        return (
            CONTRADICTS if takes_wrong_end(alone.text, question.template.query.tree) else question
        )


def _donor_templates(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, QueryTemplate]]:
    """Yield the templates of later turns' right queries, which are not questions themselves."""
    for number, row in enumerate(rows):
        if row["turn_idx"] not in (GOAL, FIRST):
            with suppress(BadQuery):
                tables = DatabaseSchema.from_row(row)
                yield (
                    f"turn-{number}",
                    QueryTemplate.from_query(canonical_query(row["query"], tables), tables),
                )


def _wrong_options(
    usable: Sequence[UsableQuestion], lent: Iterable[tuple[str, QueryTemplate]], seed: int
) -> Iterator[tuple[str, list[WrongOption] | str]]:
    """Yield for each question its possible wrong queries, or why it has none."""
    by_shape: dict[Shape, list[tuple[str, QueryTemplate]]] = defaultdict(list)
    for name, build in lent:
        by_shape[build.shape].append((name, build))
    popular: dict[str, Counter[int]] = defaultdict(Counter)
    for question in usable:
        by_shape[question.template.shape].append((question.alone.key, question.template))
        named = {
            node.meta.get(COLUMN, 0) for node in question.template.query.tree.find_all(exp.Column)
        }
        popular[question.alone.row["db_id"]].update(named)
    for question in usable:
        key, gold = question.alone.key, question.template.query
        donors = [donor for donor in by_shape[question.template.shape] if donor[0] != key]
        gold_question = GoldQuestion(
            key,
            question.alone.text,
            question.template,
            question.tables,
            popular[question.alone.row["db_id"]],
        )
        with closing(QueryBench(gold, question.tables, key=key, seed=seed)) as bench:
            yield (
                key,
                wrong_options(gold_question, donors, bench, _seeded_random("wrong", seed, key)),
            )


def _question_row(
    question: UsableQuestion, wrong: Sequence[WrongOption], seed: int
) -> dict[str, Any]:
    """Return a question with its options in a random order."""
    alone, gold = question.alone, question.template.query
    options = [gold, *(choice.query for choice in wrong)]
    _seeded_random("order", seed, alone.key).shuffle(options)
    return {
        "id": alone.key,
        "group": alone.dialogue,
        "database": alone.row["db_id"],
        **word_question(alone.text, [option.tree for option in options], question.tables),
        "choices": [option.text for option in options],
        "answer": next(i for i, option in enumerate(options) if option is gold),
        "_split": alone.row.get("_split"),
    }


def _seeded_random(what: str, seed: int, key: str) -> Random:
    """Return a generator that depends on the seed and the question's id only."""
    return Random(hashlib.sha256(f"cosql:{what}:{seed}:{key}".encode()).digest())
