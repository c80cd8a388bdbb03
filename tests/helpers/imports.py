"""Write rows to a file and import them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from convbench.formats.importing import ImportResult, import_logs
from convbench.formats.reading import ImportPlan
from convbench.schema import text_of

Said = list[tuple[list[str], float | None]]
"""(what was said, reward) of each conversation."""


def write_rows(path: Path, rows: list[Any]) -> Path:
    """Write JSON lines; a text is a line as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def import_rows(folder: Path, rows: list[Any], **plan: Any) -> ImportResult:
    """Import rows as JSON lines."""
    folder.mkdir(exist_ok=True)
    path = write_rows(folder / "log.jsonl", rows)
    return import_logs(str(path), folder / "run", "id1", "log", ImportPlan(**plan))


def said(result: ImportResult) -> Said:
    """Return (what was said, reward) of each conversation; a call as NAME(ARGUMENTS)=RESULT."""
    assert result.run is not None
    rewards = {verdict.conversation_id: verdict.reward for verdict in result.run.verdicts()}
    out = []
    for talk in result.run.conversations():
        texts = list(talk.systems.values())
        for turn in talk.turns:
            for one in turn.rounds:
                results = {result.id: result.content for result in one.results}
                texts += [one.content] if one.content else []
                texts += [f"{c.name}({c.arguments})={results.get(c.id)}" for c in one.calls]
            texts += [text_of(turn.content)] if turn.content else []
        out.append((texts, rewards.get(talk.conversation_id)))
    return out
