"""The tables of a published set, as parquet files by config and split."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convbench.publish.leaks import leaks
from convbench.schema import Example, Message, text_of
from convbench.schema.example import SPLITS
from convbench.store import Run
from convbench.store.limits import interruptible
from convbench.store.tables import connect
from convbench.store.views import metric_columns
from convbench.views import messages

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CONFIGS = ("conversations", "turns", "verdicts", "examples")
"""Configs in the order of the card; the first is the default."""
CALLS = "tool_calls"
THOUGHT = "reasoning_content"
"""Name of reasoning in messages, as chat templates read it."""
SHARD = 256 << 20
"""Bytes of one file, before compression."""

CONVERSATIONS = """
SELECT c.conversation_id, c.run, c.task, c.protocol, c.mode, c.example_id, c.group_id, c.split,
  c.policy, c.sample, c.temperature, c.seed, c.stop, c.failure, c.answer, c.correct, c.thinking,
  c.n_turns, c.words, c.flags, c.prompt_tokens, c.completion_tokens, c.cost_usd,
  c.thinking_any, c.thinking_closed, c.cut_turns, c.attempts, c.reasoned, c.reasoning_tokens
FROM conversations c ORDER BY c.conversation_id
"""
REWARDS = """
SELECT conversation_id, judge, reward FROM raw.verdicts ORDER BY rowid
"""
TURNS = """
SELECT t.conversation_id, t.turn_index, t.speaker, t.content, t.prompt_tokens,
  t.completion_tokens, t.finish_reason, t.step, t.instruction, t.cost_usd, t.reasoning,
  t.reasoning_tokens, t.reasoning_blocks::VARCHAR AS reasoning_blocks,
  t.tool_calls::VARCHAR AS tool_calls, t.tool_results::VARCHAR AS tool_results,
  t.advantage, t.advantage_by, e.split
FROM turns t JOIN raw.conversations c USING (conversation_id)
  JOIN raw.examples e USING (example_id)
ORDER BY t.conversation_id, t.turn_index
"""
VERDICTS = """
SELECT v.conversation_id, v.judge, {metrics}, v.reward, v.failure, v.attempts, v.cost_usd,
  v.prompt_tokens, v.completion_tokens, to_json(v.scores)::VARCHAR AS scores,
  to_json(v.justifications)::VARCHAR AS justifications, v.details::VARCHAR AS details, e.split
FROM verdicts v JOIN raw.conversations c USING (conversation_id)
  JOIN raw.examples e USING (example_id)
ORDER BY v.conversation_id, v.judge
"""
EXAMPLES = """
SELECT example_id, task, split, group_id, question, choices, gold, inputs::VARCHAR AS inputs,
  hidden::VARCHAR AS hidden
FROM examples ORDER BY example_id
"""


@interruptible()
def write_tables(
    run: Run, folder: Path, judge: str | None, without: frozenset[str] = frozenset()
) -> dict[str, dict[str, int]]:
    """Write `CONFIG/SPLIT-….parquet`; return the number of rows by config and split.

    `judge` names the judge whose reward stands in the column `reward`. Conversations in
    `without` are left out.
    """
    connection = connect([run])
    try:
        tables = {
            "conversations": _conversations(connection, run, judge),
            "turns": _table(connection, TURNS),
            "verdicts": _table(connection, _verdicts(run)),
            "examples": _table(connection, EXAMPLES),
        }
    finally:
        connection.close()
    return {
        config: dict(_write(_kept(table, without), folder / config))
        for config, table in tables.items()
    }


def _verdicts(run: Run) -> str:
    """Return the query of the verdicts, with a column for each metric of the run's judges."""
    metrics = metric_columns(run.judge_specs().values())
    return VERDICTS.format(metrics=", ".join(f'v."{name}"' for name in metrics))


def _table(connection: DuckDBPyConnection, sql: str) -> Any:
    return connection.sql(sql).to_arrow_table()


def _kept(table: Any, without: frozenset[str]) -> Any:
    import pyarrow
    import pyarrow.compute

    if not without or "conversation_id" not in table.column_names:
        return table
    left_out = pyarrow.array(sorted(without), type=pyarrow.string())
    there = pyarrow.compute.is_in(table.column("conversation_id"), value_set=left_out)
    return table.filter(pyarrow.compute.invert(there))


def _write(table: Any, folder: Path) -> Iterator[tuple[str, int]]:
    """Write one config; a split without rows gets no file."""
    import pyarrow.compute
    import pyarrow.parquet

    for split in SPLITS:
        part = table.filter(pyarrow.compute.equal(table.column("split"), split))
        if not part.num_rows:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        shards = max(1, -(-part.nbytes // SHARD))
        size = -(-part.num_rows // shards)
        for number in range(shards):
            path = folder / f"{split}-{number:05d}-of-{shards:05d}.parquet"
            rows = part.slice(number * size, size)
            pyarrow.parquet.write_table(rows, path, compression="zstd", row_group_size=10_000)
        yield split, part.num_rows


def _conversations(connection: DuckDBPyConnection, run: Run, judge: str | None) -> Any:
    """The first config: `messages` as the policy saw them, what is known, the rewards."""
    import pyarrow

    table = _table(connection, CONVERSATIONS)
    ids: Sequence[str] = table.column("conversation_id").to_pylist()
    said = dict(policy_messages(run))
    rewards: dict[str, list[dict[str, Any]]] = {}
    for owner, name, reward in connection.execute(REWARDS).fetchall():
        rewards.setdefault(owner, []).append({"judge": name, "reward": reward})
    one = [_of(rewards.get(i, ()), judge) for i in ids]
    names = ["role", "content"]
    found = {name for seen in said.values() for message in seen for name in message}
    names += [name for name in (THOUGHT, "tool_call_id", "name") if name in found]
    fields = [(name, pyarrow.string()) for name in names]
    if CALLS in found:
        fields.append((CALLS, pyarrow.list_(_call_type())))
    message = pyarrow.struct(fields)
    verdict = pyarrow.struct([("judge", pyarrow.string()), ("reward", pyarrow.float64())])
    columns: list[tuple[str, Any, Any]] = [
        ("messages", [said.get(i, []) for i in ids], pyarrow.list_(message)),
        ("reward", one, pyarrow.float64()),
        ("rewards", [rewards.get(i, []) for i in ids], pyarrow.list_(verdict)),
    ]
    tools = run.manifest.protocol.speakers[run.manifest.protocol.policy].offered
    if tools:
        told = json.dumps(tools)
        columns.insert(1, ("tools", [told] * len(ids), pyarrow.string()))
    for place, (name, values, kind) in enumerate(columns):
        table = table.add_column(place, name, pyarrow.array(values, type=kind))
    return table


def _of(rewards: Sequence[Mapping[str, Any]], judge: str | None) -> float | None:
    return next((reward["reward"] for reward in rewards if reward["judge"] == judge), None)


def _call_type() -> Any:
    """A call of a tool; its arguments are JSON text, so that all rows have one schema."""
    import pyarrow

    text = pyarrow.string()
    function = pyarrow.struct([("name", text), ("arguments", text)])
    return pyarrow.struct([("id", text), ("type", text), ("function", function)])


def policy_messages(run: Run) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield (conversation_id, the policy's view of the conversation, with all that it thought in a
    channel of its own); an image is `[image]`."""
    protocol = run.manifest.protocol
    for conversation in run.conversations():
        seen = messages(protocol, conversation, protocol.policy, replay="always")
        yield conversation.conversation_id, [_texts(message) for message in seen]


def _texts(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message["role"], "content": text_of(message["content"])}
    if "reasoning" in message:
        found[THOUGHT] = message["reasoning"].text
    if "tool_call_id" in message:
        found |= {"tool_call_id": message["tool_call_id"], "name": message.get("name", "")}
    if message.get("tool_calls"):
        found[CALLS] = [call.wire for call in message["tool_calls"]]
    return found


def find_leaks(run: Run) -> dict[str, list[str]]:
    """Return the leaks of hidden text by conversation_id."""
    protocol, examples = run.manifest.protocol, run.examples
    found: dict[str, list[str]] = {}
    for conversation in run.conversations():
        example: Example | None = examples.get(conversation.example_id)
        if example is None:
            continue
        seen = messages(protocol, conversation, protocol.policy)
        places = list(leaks(run.manifest, example, conversation, seen))
        if places:
            found[conversation.conversation_id] = places
    return found
