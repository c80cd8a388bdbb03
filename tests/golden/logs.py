"""Logs of other programs, an excerpt a format, and what they become as a run."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import convbench
from tests.golden.outputs import filled
from tests.golden.run import Record, records

LOGS = Path(__file__).parent / "logs"
INSPECT = Path(__file__).parents[1] / "formats" / "inspect_0_3_285.eval"
"""A log that Inspect wrote."""
FORMATS = {
    "openai": "openai.jsonl",
    "openai-gzip": "openai.jsonl",
    "openai-parquet": "openai.jsonl",
    "sharegpt": "sharegpt.jsonl",
    "trl-completion": "trl-completion.jsonl",
    "trl-preference": "trl-preference.jsonl",
    "kto": "kto.jsonl",
    "openai-preference": "openai-preference.jsonl",
    "colbench": "colbench.jsonl",
    "json": "list.json",
    "csv": "table.csv",
    "inspect": "",
}
"""Name of a format, and the file of its excerpt in `logs/`."""


def excerpt(name: str, folder: Path) -> Path:
    """Return the file that is imported for a format; one that is not text is written."""
    if name == "inspect":
        return INSPECT
    file = LOGS / FORMATS[name]
    if name == "openai-gzip":
        target = folder / "openai.jsonl.gz"
        target.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        return target
    if name == "openai-parquet":
        return _parquet(records(file), folder / "openai.parquet")
    return file


def _parquet(rows: list[Record], target: Path) -> Path:
    """Write the rows without what has no one type in all of them: content in parts, rewards."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = ("messages", "reward", "example_id", "group", "split", "metadata")
    simple = [row for row in rows if isinstance(row["messages"][0]["content"], str)]
    pq.write_table(
        pa.Table.from_pylist([{key: row.get(key) for key in kept} for row in simple]), target
    )
    return target


EVERYTHING = """
select c.example_id, c.sample, c.split, c.group_id, c.temperature, c.stop, c.metadata, e.question,
  e.choices, e.gold, e.hidden, v.reward, v.scores, t.turns
from conversations c join examples e using (example_id) left join verdicts v using (conversation_id)
join (
  select conversation_id, list({speaker: speaker, content: content, reasoning: reasoning,
    tool_calls: tool_calls, tool_results: tool_results, finish_reason: finish_reason}
    order by turn_index) as turns
  from turns group by conversation_id
) t using (conversation_id)
order by conversation_id
"""


def imported(name: str, folder: Path) -> Record:
    """Return what a format's excerpt becomes: counts, the first conversation whole, the question,
    sample and reward of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes
        run = convbench.import_logs(excerpt(name, folder), run=folder / "run")
    talks = [filled(row) for row in run.query(EVERYTHING, "arrow").to_pylist()]
    return {
        "conversations": len(talks),
        "questions": len({talk["example_id"] for talk in talks}),
        "first": talks[0] | {"systems": records(run.path / "conversations.jsonl")[0]["systems"]},
        "samples": [f"{talk['example_id']} {talk['sample']}" for talk in talks],
        "rewards": [dict(talk.get("scores", {})) for talk in talks],
    }
