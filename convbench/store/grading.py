"""Grading as an SQL function: evaluated only where a query uses what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from convbench.answers.grade import grade_texts
from convbench.schema import ProtocolSpec, TextPart
from convbench.schema.conversation import Turn
from convbench.store.run import Run

FIELDS = {
    "answer": "VARCHAR",
    "correct": "BOOLEAN",
    "thinking": "BOOLEAN",
    "thinking_any": "BOOLEAN",
    "thinking_closed": "BOOLEAN",
    "words": "BIGINT",
}
GRADED = "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in FIELDS.items()) + ")"


def register(connection: Any, runs: Sequence[Run]) -> None:
    """Give a DuckDB connection the functions `graded` and `parts`."""
    import pyarrow

    protocols = [run.manifest.protocol for run in runs]
    kind = pyarrow.struct([(name, _arrow(sql)) for name, sql in FIELDS.items()])

    def graded(numbers: Any, failed: Any, said: Any, letters: Any, texts: Any, gold: Any) -> Any:
        columns = (column.to_pylist() for column in (numbers, failed, said, letters, texts, gold))
        rows = [_graded(protocols[row[0]], *row[1:]) for row in zip(*columns, strict=True)]
        return pyarrow.array(rows, type=kind)

    connection.create_function(
        "graded", graded, ["INTEGER", "BOOLEAN", "VARCHAR[]", "VARCHAR[]", "VARCHAR[]", "VARCHAR"],
        GRADED, type="arrow", null_handling="special",
    )  # fmt: skip
    connection.create_function("parts", parts, ["VARCHAR"], "VARCHAR")


def _arrow(sql: str) -> Any:
    import pyarrow

    return {"VARCHAR": pyarrow.string(), "BOOLEAN": pyarrow.bool_(), "BIGINT": pyarrow.int64()}[sql]


def _graded(
    protocol: ProtocolSpec,
    failed: bool,
    said: list[str | None] | None,
    letters: list[str] | None,
    texts: list[str] | None,
    gold: str | None,
) -> dict[str, Any]:
    """Grade what the policy said, by the one function that grades."""
    found = grade_texts(
        [text or "" for text in said or ()],
        dict(zip(letters or (), texts or (), strict=True)),
        gold,
        marker=protocol.answer_after,
        reading=protocol.answers,
        failed=bool(failed),
    )
    values = asdict(found)
    return {name: values[name] for name in FIELDS}


def parts(content: str) -> str:
    """Return the text of a message's content of several parts; other text as it is."""
    import orjson

    try:
        turn = Turn(speaker="x", step="x", content=orjson.loads(content))
    except ValueError:
        return content
    if isinstance(turn.content, str):
        return content
    return "\n".join(p.text if isinstance(p, TextPart) else "[image]" for p in turn.content)
