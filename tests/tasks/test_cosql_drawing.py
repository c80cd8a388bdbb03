"""Of possible wrong options those are drawn that no word tells from the right ones."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from convbench.tasks.cosql.balance import choose_wrong
from convbench.tasks.cosql.databases import QueryResults, ResultDigest
from convbench.tasks.cosql.options import WrongOption
from convbench.tasks.cosql.queries import DatabaseSchema, Query, canonical_query
from convbench.tasks.cosql.query_templates import query_phrases

# fmt: off
PEOPLE = DatabaseSchema.from_row({
    "db_table_names": ["people"],
    "db_column_names": {
        "table_id": [-1, 0, 0, 0], "column_name": ["*", "Name_A", "Name_B", "Age"],
    },
    "db_column_types": ["text", "text", "text", "number"],
    "db_primary_keys": {"column_id": []},
    "db_foreign_keys": {"column_id": [], "other_column_id": []},
})
# fmt: on
ENDS = ("", " ORDER BY Age", " WHERE Age > 5", " ORDER BY Age DESC")


def asks(column: str, end: str) -> Query:
    return canonical_query(f"SELECT {column} FROM people{end}", PEOPLE)


def wrong(end: str, column: str) -> WrongOption:
    """A possible wrong option, which databases tell from all others."""
    query = asks(column, end)
    told = QueryResults(tuple(ResultDigest(hash(query.text), None, False) for _ in range(4)))
    return WrongOption(end, "build", query, told, query_phrases(query, PEOPLE))


@pytest.mark.exhaustive
def test_a_name_that_several_databases_share_is_evened_out() -> None:
    """Right queries list one of two columns of the same sort and length four times in five. Evened
    out by sorts alone, the name told them: wrong ones listed it every other time."""
    leans = []
    for seed in range(2):
        rng = Random(seed)
        keys = [f"k{number}" for number in range(60)]
        own = {key: rng.choice(ENDS) for key in keys}
        right = {key: asks("Name_A" if rng.random() < 0.8 else "Name_B", own[key]) for key in keys}
        others = [wrong(end, column) for end in ENDS for column in ("Name_A", "Name_B")]
        sets = {key: [w for w in others if w.query.text != right[key].text] for key in keys}
        chosen = choose_wrong(
            sets,
            {key: ("Which?", right[key].text) for key in keys},
            dict.fromkeys([*keys, *ENDS], "build"),
            {key: query_phrases(right[key], PEOPLE) for key in keys},
            {key: f"db{number % 6}" for number, key in enumerate(keys)},
            rng,
        )
        for key, three in chosen.items():
            texts = [right[key].text, *(w.query.text for w in three)]
            listed = np.array(["Name_A" in text for text in texts], float)
            leans.append(listed[0] - listed.mean())
    assert len(leans) > 100
    assert np.mean(leans) < 0.08, f"{np.mean(leans):.3f}"
