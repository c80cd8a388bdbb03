"""Each format is recognised by its content and read: its calls paired, its copies dropped."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import ConvbenchError
from convbench.formats.importing import import_logs
from convbench.formats.reading import ImportPlan
from tests.helpers.imports import import_rows, said, write_rows
from tests.helpers.made_logs import MADE, POLICIES, claude


@pytest.mark.parametrize("name", MADE)
def test_import_logs_reads_a_log_of_each_format(tmp_path: Path, name: str) -> None:
    rows, expected = MADE[name]
    result = import_rows(tmp_path, rows, policy=POLICIES.get(name))
    assert said(result) == expected
    assert result.facts["format"] == f"{name.partition('-')[0]} 1"


@pytest.mark.parametrize("name", [name for name in MADE if len(MADE[name][0]) == 1])
def test_import_logs_reads_one_json_value_over_several_lines(tmp_path: Path, name: str) -> None:
    rows, expected = MADE[name]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(rows[0], indent=1))
    plan = ImportPlan(policy=POLICIES.get(name))
    assert said(import_logs(str(path), tmp_path / "run", "id1", "log", plan)) == expected


def spoilt(value: Any, draw: random.Random) -> Any:
    """A value in which one place has another type, is missing, or stands elsewhere."""
    if isinstance(value, dict) and value:
        key = draw.choice(list(value))
        changed = {**value, key: spoilt(value[key], draw)}
        return {k: v for k, v in changed.items() if k != key} if draw.random() < 0.2 else changed
    if isinstance(value, list) and value:
        place = draw.randrange(len(value))
        items = [*value[:place], spoilt(value[place], draw), *value[place + 1 :]]
        draw.shuffle(items)
        return items
    return draw.choice([None, 3, "x", [], {}, True, [[]], {"role": 3}, -1.5, "\ud83d"])


@pytest.mark.parametrize("name", MADE)
def test_import_logs_of_a_spoilt_log_is_counted_or_one_line(tmp_path: Path, name: str) -> None:
    rows, _ = MADE[name]
    for seed in range(40):
        draw = random.Random(seed)
        changed = spoilt(rows, draw)
        lines = [json.dumps(row) for row in changed]
        if seed % 4 == 0 and lines:
            lines[-1] = lines[-1][: len(lines[-1]) // 2]
        path = write_rows(tmp_path / f"log-{seed}.jsonl", lines)
        with suppress(ConvbenchError):
            import_logs(str(path), tmp_path / f"run-{seed}" if seed < 3 else None, "id1", "log")


def test_import_logs_begins_anew_where_a_session_was_compacted(tmp_path: Path) -> None:
    rows = [
        claude("user", 0, "One?"),
        claude("assistant", 1, [{"type": "text", "text": "1"}]),
        {"type": "system", "subtype": "compact_boundary", "uuid": "u2", "sessionId": "s"},
        claude("user", 3, "Summary: 1 was said.", isCompactSummary=True),
        claude("assistant", 4, [{"type": "text", "text": "2"}]),
    ]
    result = import_rows(tmp_path, rows)
    assert said(result) == [(["One?", "1"], None), (["Summary: 1 was said.", "2"], None)]


def test_import_logs_counts_a_line_of_a_session_that_cannot_be_read(tmp_path: Path) -> None:
    odd = claude("assistant", 1, [{"type": "tool_use", "id": "c", "name": 3, "input": {}}])
    rows = [claude("user", 0, "One?"), odd, claude("assistant", 2, [{"type": "text", "text": "1"}])]
    result = import_rows(tmp_path, rows)
    assert said(result) == [(["One?", "1"], None)]
    assert "1 lines that cannot be read" in result.notes


ASKED, SAID = [{"role": "user", "content": "One?"}], {"role": "assistant", "content": "1"}
FAILED: dict[str, dict[str, Any]] = {
    "langfuse": {"id": "t", "observations": [
        {"type": "GENERATION", "input": ASKED, "output": SAID, "level": "ERROR",
         "statusMessage": "timeout"}]},
    "langsmith": {"id": "r", "trace_id": "t", "run_type": "llm", "error": "timeout",
                  "inputs": {"messages": ASKED}, "outputs": SAID},
    "exchanges": {"call_type": "completion", "response_cost": 0, "status": "failure",
                  "messages": ASKED, "response": {"choices": [{"message": SAID}]}},
}  # fmt: skip


@pytest.mark.parametrize("name", FAILED)
def test_import_logs_marks_a_failed_call(tmp_path: Path, name: str) -> None:
    result = import_rows(tmp_path, [FAILED[name]])
    assert result.run is not None
    (talk,) = result.run.conversations()
    assert talk.failure is not None
    assert (result.facts["format"], talk.turns[-1].content) == (f"{name} 1", "1")


def test_import_logs_reads_pairs_of_openhands_and_older_streams_of_codex(tmp_path: Path) -> None:
    asked = {"source": "user", "action": "message", "args": {"content": "List."}}
    ran = {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls"}}
    listed = {"id": 2, "observation": "run", "content": "a", "cause": 1}
    done = {"id": 3, "source": "agent", "action": "finish", "args": {"final_thought": "Done."}}
    pairs = [
        {"instance_id": "i", "history": [[asked, {"observation": "null"}], [ran, listed], [done]]}
    ]
    expected = [(["List.", 'run({"command": "ls"})=a', "Done."], None)]
    assert said(import_rows(tmp_path / "pairs", pairs)) == expected
    items = [
        {"id": "a", "item_type": "command_execution", "command": "ls", "aggregated_output": "a"},
        {"id": "b", "item_type": "assistant_message", "text": "Done."},
    ]
    stream = [{"type": "item.completed", "item": item} for item in items]
    expected = [(['shell({"command": "ls"})=a', "Done."], None)]
    assert said(import_rows(tmp_path / "stream", stream)) == expected
