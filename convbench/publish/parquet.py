"""The tables of a published dataset: parquet files by config and split, written in batches."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from convbench.publish.portions import CALLS, THOUGHT, Portions, messages_of
from convbench.publish.safety import leaks
from convbench.schema import Example
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
SHARD = 256 << 20
"""Most bytes of one file, before compression."""
BATCH = 2048
"""Most rows in memory at once."""
NEEDED = ("conversations", "turns", "verdicts", "examples")
"""Views that the tables of a portion are computed from."""

CONVERSATIONS = """
SELECT c.conversation_id, c.run, c.task, c.protocol, c.mode, c.example_id, c.group_id, c.split,
  c.policy, c.sample, c.temperature, c.seed, c.stop, c.failure, c.answer, c.correct, c.thinking,
  c.n_turns, c.words, c.flags, c.prompt_tokens, c.completion_tokens, c.cost_usd,
  c.thinking_any, c.thinking_closed, c.cut_turns, c.attempts, c.reasoned, c.reasoning_tokens,
  v.rewards
FROM conversations c LEFT JOIN (
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
def write_tables(portions: Portions, folder: Path, judge: str | None) -> dict[str, dict[str, int]]:
    """Write `CONFIG/SPLIT-….parquet`; return the number of rows by config and split.

    `judge` is the one whose reward is the column `reward`.
    """
    written = {config: _Splits(folder / config) for config in CONFIGS}
    conversations = _Conversations(portions, judge)
    for portion in portions.talks:
        with connect([portion], NEEDED) as connection:
            written["conversations"].write(conversations.batches(portion, connection))
            written["turns"].write(batches(connection, TURNS))
            written["verdicts"].write(batches(connection, _verdicts(portions.whole)))
    for portion in portions.questions:
        with connect([portion], ("examples",)) as connection:
            written["examples"].write(batches(connection, EXAMPLES))
    for files in written.values():
        files.close()
    return {config: files.rows for config, files in written.items()}


def _verdicts(run: Run) -> str:
    """Return the SQL of the verdicts, with a column for each metric of the run's judges."""
    metrics = metric_columns(run.judge_specs().values())
    return VERDICTS.format(metrics=", ".join(f'v."{name}"' for name in metrics))


def batches(connection: DuckDBPyConnection, sql: str) -> Iterator[Any]:
    """Yield a query's result as Arrow tables of at most BATCH rows."""
    import pyarrow

    for batch in connection.sql(sql).to_arrow_reader(BATCH):
        yield pyarrow.Table.from_batches([batch])


class _Shards:
    """Writer of one split's files, each of at most SHARD bytes."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split
        self.rows, self._size, self._count = 0, 0, 0
        self._writer: Any = None

    def write(self, table: Any) -> None:
        """Append an Arrow table, in a new file if this one is full."""
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
        """Close the last file and rename all files to their final names."""
        self._end()
        for number in range(self._count):
            name = f"{self.split}-{number:05d}-of-{self._count:05d}.parquet"
            self._named(number).rename(self.folder / name)


class _Splits:
    """Writer of one config's files. A split without rows gets none."""

    def __init__(self, folder: Path) -> None:
        self._splits = {split: _Shards(folder, split) for split in SPLITS}

    def write(self, batches: Iterable[Any]) -> None:
        """Write batches, each row to the files of its split."""
        import pyarrow.compute

        for batch in batches:
            for split, files in self._splits.items():
                part = batch.filter(pyarrow.compute.equal(batch.column("split"), split))
                if part.num_rows:
                    files.write(part)

    def close(self) -> None:
        """Close all files and rename them to their final names."""
        for files in self._splits.values():
            files.close()

    @property
    def rows(self) -> dict[str, int]:
        """Return the number of rows by split."""
        return {split: files.rows for split, files in self._splits.items() if files.rows}


class _Conversations:
    """Rows of the config `conversations`: `messages` as the policy saw them, facts, rewards."""

    def __init__(self, portions: Portions, judge: str | None) -> None:
        self._judge, self._fields = judge, portions.fields
        protocol = portions.whole.manifest.protocol
        self._tools = protocol.speakers[protocol.policy].offered

    def batches(self, portion: Run, connection: DuckDBPyConnection) -> Iterator[Any]:
        """Yield the rows of a portion as Arrow tables."""
        import pyarrow

        told = messages_of(portion)
        message = _message_type(self._fields)
        verdict = pyarrow.struct([("judge", pyarrow.string()), ("reward", pyarrow.float64())])
        for table in batches(connection, CONVERSATIONS):
            names = table.column("conversation_id").to_pylist()
            said = [orjson.loads(told[name]) for name in names]
            rewards = [given or [] for given in table.column("rewards").to_pylist()]
            columns: list[tuple[str, Any, Any]] = [
                ("messages", said, pyarrow.list_(message)),
                ("reward", [_of(given, self._judge) for given in rewards], pyarrow.float64()),
                ("rewards", rewards, pyarrow.list_(verdict)),
            ]
            if self._tools:
                tools = [json.dumps(self._tools)] * len(said)
                columns.insert(1, ("tools", tools, pyarrow.string()))
            table = table.drop_columns(["rewards"])
            for place, (name, values, kind) in enumerate(columns):
                table = table.add_column(place, name, pyarrow.array(values, type=kind))
            yield table


def _message_type(found: Collection[str]) -> Any:
    """Return the Arrow type of a message with the optional fields that the run's messages have."""
    import pyarrow

    text = pyarrow.string()
    names = ["role", "content"]
    names += [name for name in (THOUGHT, "tool_call_id", "name") if name in found]
    fields = [(name, text) for name in names]
    if CALLS not in found:
        return pyarrow.struct(fields)
    # A call's arguments are JSON text, so that all rows have one schema.
    function = pyarrow.struct([("name", text), ("arguments", text)])
    call = pyarrow.struct([("id", text), ("type", text), ("function", function)])
    return pyarrow.struct([*fields, (CALLS, pyarrow.list_(call))])


def _of(rewards: Sequence[Mapping[str, Any]], judge: str | None) -> float | None:
    return next((reward["reward"] for reward in rewards if reward["judge"] == judge), None)


def find_leaks(run: Run) -> dict[str, list[str]]:
    """Return the places of leaked hidden text by conversation_id."""
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
