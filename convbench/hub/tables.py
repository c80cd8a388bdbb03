"""Write a run's Parquet tables in portions that fit in memory, ordered by id.

Records in the order of their ids are scattered over compressed parts. Copying them once is
cheaper than seeking to each where the index says it is.
"""

from __future__ import annotations

import json
import shutil
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson

from convbench.schema import Conversation, ProtocolSpec
from convbench.schema.task import SPLITS
from convbench.store import Run
from convbench.store.byte_offsets import size_of
from convbench.store.jsonl import numbered_lines
from convbench.store.keys import read_key_fields
from convbench.store.limits import as_keyboard_interrupt
from convbench.store.tables import connect_runs
from convbench.store.views import metric_columns
from convbench.views import messages_before, wire_messages

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CALLS = "tool_calls"
THOUGHT = "reasoning_content"
"""Key of reasoning in messages, as chat templates read it."""
PORTION = 16 << 20
"""Approximate bytes of conversations in one portion."""
BUFFERED = 4 << 20
"""Bytes buffered in memory before they are written to portions."""
STEP = 16
"""Step at which ids are sampled to find where portions end."""
VIEW_FILE = "said.jsonl"


@dataclass(frozen=True)
class Portions:
    """A run's records split into smaller runs, which read judges and images from the run itself."""

    run: Run
    talks: Sequence[Run]
    """Runs with the newest conversations, their questions, verdicts and credit, ordered by
    conversation_id."""
    questions: Sequence[Run]
    """Runs with the questions, ordered by example_id."""
    fields: frozenset[str]
    """All keys that occur in the conversations' messages."""


@contextmanager
def open_portions(run: Run, space: Path, size: int = PORTION) -> Iterator[Portions]:
    """Split a run into portions of about `size` bytes and yield them; they lie in a temporary
    folder in `space`, deleted at the end of the context."""
    question_files = [run.path / "examples.jsonl"]
    conversation_files = [run.path / "conversations.jsonl"]
    with TemporaryDirectory(prefix=".portions-", dir=space) as folder:
        talks = _RangeWriter(
            Path(folder) / "talks",
            _range_ends(conversation_files, ("key", "conversation_id"), size),
        )
        fields = _spread_talks(run, talks)
        for file in ("verdicts.jsonl", "advantages.jsonl"):
            for name, line in _named_lines([run.path / file], ("conversation_id",)):
                talks.add_line(name, file, line)
        questions = _RangeWriter(
            Path(folder) / "questions", _range_ends(question_files, ("example_id",), size)
        )
        for name, line in _named_lines(question_files, ("example_id",)):
            questions.add_line(name, "examples.jsonl", line)
        yield Portions(run, talks.range_runs(run), questions.range_runs(run), fields)


def _spread_talks(run: Run, talks: _RangeWriter) -> frozenset[str]:
    """Write the newest conversations to their portions, each with the policy's view and its
    question; return all keys of messages."""
    fields: set[str] = set()
    for stored in run.iter_stored():
        conversation, name = stored.conversation, stored.conversation.conversation_id
        view = policy_view(run.manifest.protocol, conversation)
        fields.update(key for message in view for key in message)
        talks.add_line(name, "conversations.jsonl", stored.line)
        talks.add_line(name, VIEW_FILE, orjson.dumps([name, view]) + b"\n")
        example = run.examples[conversation.example_id]
        talks.add_line(name, "examples.jsonl", example.model_dump_json().encode() + b"\n")
    return frozenset(fields)


class _RangeWriter:
    """Writer of lines to folders, one a range of ids."""

    def __init__(self, folder: Path, ends: Sequence[str]) -> None:
        self._ends = ends
        self._folders = [folder / f"{number:05d}" for number in range(len(ends) + 1)]
        for range_folder in self._folders:
            range_folder.mkdir(parents=True)
        self._waiting: defaultdict[Path, list[bytes]] = defaultdict(list)
        self._size = 0

    def add_line(self, name: str, file: str, line: bytes) -> None:
        """Add a line to a file of the range that the id falls into."""
        self._waiting[self._folders[bisect_right(self._ends, name)] / file].append(line)
        self._size += len(line)
        if self._size > BUFFERED:
            self._flush()

    def _flush(self) -> None:
        for path, waiting in self._waiting.items():
            with path.open("ab") as file:
                file.writelines(waiting)
        self._waiting.clear()
        self._size = 0

    def range_runs(self, home: Run) -> list[Run]:
        """Return the ranges as runs with the judges of `home`, duplicate questions removed."""
        self._flush()
        for folder in self._folders:
            if (home.path / "judges").is_dir():
                shutil.copytree(home.path / "judges", folder / "judges")
            path = folder / "examples.jsonl"
            if path.exists():
                path.write_bytes(b"".join(dict.fromkeys(line for _, line in numbered_lines(path))))
        return [Run(folder, home.manifest) for folder in self._folders]


def _range_ends(files: Sequence[Path], names: tuple[str, ...], size: int) -> list[str]:
    """Return the ids at which portions of about `size` bytes end, without the last end."""
    count = ceil(sum(map(size_of, files)) / size)
    if count < 2:
        return []
    some = sorted(name for name, _ in islice(_named_lines(files, names), 0, None, STEP))
    return sorted({some[len(some) * number // count] for number in range(1, count)})


def messages_of(portion: Run) -> dict[str, bytes]:
    """Return the policy's view of each conversation of a portion as JSON bytes (a list of
    messages), by conversation_id."""
    views = {}
    for _, line in numbered_lines(portion.path / VIEW_FILE):
        name, view = orjson.loads(line)
        views[name] = orjson.dumps(view)
    return views


def policy_view(protocol: ProtocolSpec, conversation: Conversation) -> list[dict[str, Any]]:
    """Return the messages of a conversation as the policy saw them, with all of its reasoning, as
    JSON data."""
    return wire_messages(messages_before(protocol, conversation, protocol.policy, replay="always"))


def _named_lines(files: Iterable[Path], names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield (value of the last of these fields, line) of every record in the files."""
    for path in files:
        for number, line in numbered_lines(path):
            yield read_key_fields(f"{path}:{number}", line, names)[-1], line


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
  c.read_by, v.rewards
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
    """Write `CONFIG/SPLIT-NUMBER-of-COUNT.parquet` into the folder; return the number of rows by
    config and split.

    Each config is a key; a split without rows has no file and no entry. `judge` is the one whose
    reward is the column `reward`; with None it is empty.
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
    """Yield a query's result as Arrow tables of at most 2048 rows each."""
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
