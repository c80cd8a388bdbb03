"""SQuAD by passage: all questions about one context in one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from convbench.schema import fingerprint


def passages(rows: Iterable[Mapping[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield one row for each passage: id, title, context, split and `questions`, each with
    question, answer (the first gold answer) and answers (all of them).

    A row without an answer (SQuAD 2.0) yields `{"reject": REASON}` at its place; the passages
    follow at the end, in the order of their first rows. `seed` has no effect.
    """
    del seed  # every passage is yielded, in the order of the rows
    by_context: dict[str, dict[str, Any]] = {}
    for row in rows:
        golds = list(dict.fromkeys((row.get("answers") or {}).get("text") or ()))
        if not golds:
            yield {"reject": "no answer in the passage"}
            continue
        context = str(row["context"]).strip()
        passage = by_context.setdefault(
            context,
            {
                "id": fingerprint(context),
                "title": str(row["title"]).replace("_", " "),
                "context": context,
                "split": row.get("_split"),
                "questions": [],
            },
        )
        passage["questions"].append(
            {"question": str(row["question"]).strip(), "answer": golds[0], "answers": golds}
        )
    yield from by_context.values()
