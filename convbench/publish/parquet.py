"""The tables of a published dataset: parquet files by config and split, written in batches."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from convbench.publish.portions import CALLS, THOUGHT, Portions, messages_of
from convbench.publish.safety import message_leaks
from convbench.schema import Example
from convbench.schema.example import SPLITS
from convbench.store import Run
from convbench.store.limits import as_keyboard_interrupt
from convbench.store.tables import connect_runs
from convbench.store.views import metric_columns
from convbench.views import messages_before

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


@as_keyboard_interrupt()
def write_tables(portions: Portions, folder: Path, judge: str | None) -> dict[str, dict[str, int]]:
    """Write `CONFIG/SPLIT-….parquet`; return the number of rows by config and split.

    `judge` is the one whose reward is the column `reward`.
    """
    written = {config: _ConfigFiles(folder / config) for config in CONFIGS}
    conversations = _ConversationRows(portions, judge)
    for portion in portions.talks:
        with connect_runs([portion], NEEDED) as connection:
            written["conversations"].write_batches(conversations.row_batches(portion, connection))
            written["turns"].write_batches(arrow_batches(connection, TURNS))
            written["verdicts"].write_batches(
                arrow_batches(connection, _verdict_query(portions.run))
            )
    for portion in portions.questions:
        with connect_runs([portion], ("examples",)) as connection:
            written["examples"].write_batches(arrow_batches(connection, EXAMPLES))
    for files in written.values():
        files.close()
    return {config: files.split_rows for config, files in written.items()}


def _verdict_query(run: Run) -> str:
    """Return the SQL of the verdicts, with a column for each metric of the run's judges."""
    metrics = metric_columns(run.judge_specs().values())
    return VERDICTS.format(metrics=", ".join(f'v."{name}"' for name in metrics))


def arrow_batches(connection: DuckDBPyConnection, sql: str) -> Iterator[Any]:
    """Yield a query's result as Arrow tables of at most BATCH rows."""
    import pyarrow

    for batch in connection.sql(sql).to_arrow_reader(BATCH):
        yield pyarrow.Table.from_batches([batch])


class _SplitFiles:
    """Writer of one split's files, each of at most SHARD bytes."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split
        self.rows, self._size, self._count = 0, 0, 0
        self._writer: Any = None

    def write_table(self, table: Any) -> None:
        """Append an Arrow table, in a new file if this one is full."""
        import pyarrow.parquet

        if self._writer is None or self._size + table.nbytes > SHARD:
            self._end_file()
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self._temporary_path(self._count)
            self._writer = pyarrow.parquet.ParquetWriter(path, table.schema, compression="zstd")
            self._count, self._size = self._count + 1, 0
        self._writer.write_table(table)
        self._size += table.nbytes
        self.rows += table.num_rows

    def _temporary_path(self, number: int) -> Path:
        return self.folder / f".{self.split}-{number:05d}.tmp"

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def close(self) -> None:
        """Close the last file and rename all files to their final names."""
        self._end_file()
        for number in range(self._count):
            name = f"{self.split}-{number:05d}-of-{self._count:05d}.parquet"
            self._temporary_path(number).rename(self.folder / name)


class _ConfigFiles:
    """Writer of one config's files. A split without rows gets none."""

    def __init__(self, folder: Path) -> None:
        self._splits = {split: _SplitFiles(folder, split) for split in SPLITS}

    def write_batches(self, batches: Iterable[Any]) -> None:
        """Write batches, each row to the files of its split."""
        import pyarrow.compute

        for batch in batches:
            for split, files in self._splits.items():
                part = batch.filter(pyarrow.compute.equal(batch.column("split"), split))
                if part.num_rows:
                    files.write_table(part)

    def close(self) -> None:
        """Close all files and rename them to their final names."""
        for files in self._splits.values():
            files.close()

    @property
    def split_rows(self) -> dict[str, int]:
        """Return the number of rows by split."""
        return {split: files.rows for split, files in self._splits.items() if files.rows}


class _ConversationRows:
    """Rows of the config `conversations`: `messages` as the policy saw them, facts, rewards."""

    def __init__(self, portions: Portions, judge: str | None) -> None:
        self._judge, self._fields = judge, portions.fields
        protocol = portions.run.manifest.protocol
        self._tools = protocol.speakers[protocol.policy].tool_schemas

    def row_batches(self, portion: Run, connection: DuckDBPyConnection) -> Iterator[Any]:
        """Yield the rows of a portion as Arrow tables."""
        import pyarrow

        views = messages_of(portion)
        message = _message_type(self._fields)
        verdict = pyarrow.struct([("judge", pyarrow.string()), ("reward", pyarrow.float64())])
        for table in arrow_batches(connection, CONVERSATIONS):
            names = table.column("conversation_id").to_pylist()
            message_lists = [orjson.loads(views[name]) for name in names]
            rewards = [row_rewards or [] for row_rewards in table.column("rewards").to_pylist()]
            columns: list[tuple[str, Any, Any]] = [
                ("messages", message_lists, pyarrow.list_(message)),
                (
                    "reward",
                    [_judge_reward(row_rewards, self._judge) for row_rewards in rewards],
                    pyarrow.float64(),
                ),
                ("rewards", rewards, pyarrow.list_(verdict)),
            ]
            if self._tools:
                tools = [json.dumps(self._tools)] * len(message_lists)
                columns.insert(1, ("tools", tools, pyarrow.string()))
            table = table.drop_columns(["rewards"])
            for index, (name, values, kind) in enumerate(columns):
                table = table.add_column(index, name, pyarrow.array(values, type=kind))
            yield table


def _message_type(present: Collection[str]) -> Any:
    """Return the Arrow type of a message with the optional fields that the run's messages have."""
    import pyarrow

    text = pyarrow.string()
    names = ["role", "content"]
    names += [name for name in (THOUGHT, "tool_call_id", "name") if name in present]
    fields = [(name, text) for name in names]
    if CALLS not in present:
        return pyarrow.struct(fields)
    # A call's arguments are JSON text, so that all rows have one schema.
    function = pyarrow.struct([("name", text), ("arguments", text)])
    call = pyarrow.struct([("id", text), ("type", text), ("function", function)])
    return pyarrow.struct([*fields, (CALLS, pyarrow.list_(call))])


def _judge_reward(rewards: Sequence[Mapping[str, Any]], judge: str | None) -> float | None:
    return next((reward["reward"] for reward in rewards if reward["judge"] == judge), None)


def find_leaks(run: Run) -> dict[str, list[str]]:
    """Return the places of leaked hidden text by conversation_id."""
    protocol, examples = run.manifest.protocol, run.examples
    by_conversation: dict[str, list[str]] = {}
    for conversation in run.conversations():
        example: Example | None = examples.get(conversation.example_id)
        if example is None:
            continue
        seen = messages_before(protocol, conversation, protocol.policy)
        places = list(message_leaks(run.manifest, example, conversation, seen))
        if places:
            by_conversation[conversation.conversation_id] = places
    return by_conversation
