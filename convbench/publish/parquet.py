"""The tables of a published set, as parquet files by config and split, written batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

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
BATCH = 4096
"""Rows that are in memory at once."""

CONVERSATIONS = """
SELECT c.conversation_id, c.run, c.task, c.protocol, c.mode, c.example_id, c.group_id, c.split,
  c.policy, c.sample, c.temperature, c.seed, c.stop, c.failure, c.answer, c.correct, c.thinking,
  c.n_turns, c.words, c.flags, c.prompt_tokens, c.completion_tokens, c.cost_usd,
  c.thinking_any, c.thinking_closed, c.cut_turns, c.attempts, c.reasoned, c.reasoning_tokens,
  s.messages, v.rewards
FROM conversations c JOIN said s USING (conversation_id) LEFT JOIN (
  SELECT conversation_id, list({'judge': judge, 'reward': reward} ORDER BY rowid) AS rewards
  FROM raw.verdicts GROUP BY conversation_id
) v USING (conversation_id)
ORDER BY c.conversation_id
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
        tables: dict[str, Callable[[], Iterator[Any]]] = {
            "conversations": lambda: _conversations(connection, run, judge),
            "turns": lambda: _batches(connection, TURNS),
            "verdicts": lambda: _batches(connection, _verdicts(run)),
            "examples": lambda: _batches(connection, EXAMPLES),
        }
        return {
            config: _write((_kept(batch, without) for batch in batches()), folder / config)
            for config, batches in tables.items()
        }
    finally:
        connection.close()


def _verdicts(run: Run) -> str:
    """Return the query of the verdicts, with a column for each metric of the run's judges."""
    metrics = metric_columns(run.judge_specs().values())
    return VERDICTS.format(metrics=", ".join(f'v."{name}"' for name in metrics))


def _batches(connection: DuckDBPyConnection, sql: str) -> Iterator[Any]:
    """Yield what a query finds as Arrow tables of BATCH rows or fewer."""
    import pyarrow

    for batch in connection.sql(sql).to_arrow_reader(BATCH):
        yield pyarrow.Table.from_batches([batch])


def _kept(table: Any, without: frozenset[str]) -> Any:
    import pyarrow
    import pyarrow.compute

    if not without or "conversation_id" not in table.column_names:
        return table
    left_out = pyarrow.array(sorted(without), type=pyarrow.string())
    there = pyarrow.compute.is_in(table.column("conversation_id"), value_set=left_out)
    return table.filter(pyarrow.compute.invert(there))


class _Shards:
    """The files of one split, a new one wherever SHARD bytes are full."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split
        self.rows, self._size, self._count = 0, 0, 0
        self._writer: Any = None

    def write(self, table: Any) -> None:
        import pyarrow.parquet

        if self._writer is None or self._size + table.nbytes > SHARD:
            self._end()
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self._named(self._count)
            self._writer = pyarrow.parquet.ParquetWriter(path, table.schema, compression="zstd")
            self._count, self._size = self._count + 1, 0
        self._writer.write_table(table)
        self._size += table.nbytes
        self.rows += table.num_rows

    def _named(self, number: int) -> Path:
        return self.folder / f".{self.split}-{number:05d}.tmp"

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def close(self) -> None:
        """End the last file and give all their names."""
        self._end()
        for number in range(self._count):
            name = f"{self.split}-{number:05d}-of-{self._count:05d}.parquet"
            self._named(number).rename(self.folder / name)


def _write(batches: Iterable[Any], folder: Path) -> dict[str, int]:
    """Write one config; return its rows by split. A split without rows gets no file."""
    import pyarrow.compute

    shards = {split: _Shards(folder, split) for split in SPLITS}
    for batch in batches:
        for split, files in shards.items():
            part = batch.filter(pyarrow.compute.equal(batch.column("split"), split))
            if part.num_rows:
                files.write(part)
    for files in shards.values():
        files.close()
    return {split: files.rows for split, files in shards.items() if files.rows}


def _conversations(connection: DuckDBPyConnection, run: Run, judge: str | None) -> Iterator[Any]:
    """The first config: `messages` as the policy saw them, what is known, the rewards."""
    import pyarrow

    names = ["role", "content"]
    found = _keep_messages(connection, run)
    names += [name for name in (THOUGHT, "tool_call_id", "name") if name in found]
    fields = [(name, pyarrow.string()) for name in names]
    if CALLS in found:
        fields.append((CALLS, pyarrow.list_(_call_type())))
    message = pyarrow.struct(fields)
    verdict = pyarrow.struct([("judge", pyarrow.string()), ("reward", pyarrow.float64())])
    tools = run.manifest.protocol.speakers[run.manifest.protocol.policy].offered
    for table in _batches(connection, CONVERSATIONS):
        said = [orjson.loads(text) for text in table.column("messages").to_pylist()]
        rewards = [given or [] for given in table.column("rewards").to_pylist()]
        columns: list[tuple[str, Any, Any]] = [
            ("messages", said, pyarrow.list_(message)),
            ("reward", [_of(given, judge) for given in rewards], pyarrow.float64()),
            ("rewards", rewards, pyarrow.list_(verdict)),
        ]
        if tools:
            columns.insert(1, ("tools", [json.dumps(tools)] * len(said), pyarrow.string()))
        table = table.drop_columns(["messages", "rewards"])
        for place, (name, values, kind) in enumerate(columns):
            table = table.add_column(place, name, pyarrow.array(values, type=kind))
        yield table


def _keep_messages(connection: DuckDBPyConnection, run: Run) -> set[str]:
    """Make the table `said` of each conversation's messages as JSON; return their fields."""
    import pyarrow

    connection.execute("CREATE TABLE said (conversation_id VARCHAR, messages VARCHAR)")
    found: set[str] = set()
    told = policy_messages(run)
    while rows := list(islice(told, BATCH)):
        found.update(name for _, seen in rows for message in seen for name in message)
        columns = {
            "conversation_id": [name for name, _ in rows],
            "messages": [orjson.dumps(seen).decode() for _, seen in rows],
        }
        connection.register("batch", pyarrow.table(columns))
        connection.execute("INSERT INTO said SELECT * FROM batch")
        connection.unregister("batch")
    return found


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
