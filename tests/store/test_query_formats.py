"""Results as table, JSON, CSV and parquet."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from convbench.commands.query import check_format, write_table
from convbench.errors import UsageError
from convbench.store.formats import _fit_widths, format_result
from convbench.store.query import run_query
from tests.helpers.runs import conversation, write_run

MIXED = (
    "SELECT 'a|b' AS text, 1.5::DOUBLE AS number, NULL AS nothing, true AS yes, [1, 2] AS list, "
    "MAP {'k': 1} AS map, 2::HUGEINT AS big, 'x' AS text"
)


def test_json_and_csv_hold_the_values(tmp_path: Path) -> None:
    """Nulls, lists, mappings; a name given twice is made different."""
    result = run_query(MIXED, [write_run(tmp_path / "r", count=1)])
    assert json.loads(format_result(result, "json")) == [
        {"text": "a|b", "number": 1.5, "nothing": None, "yes": True, "list": [1, 2],
         "map": {"k": 1}, "big": 2, "text_1": "x"}
    ]  # fmt: skip
    rows = list(csv.reader(io.StringIO(format_result(result, "csv").decode())))
    assert rows[0] == ["text", "number", "nothing", "yes", "list", "map", "big", "text_1"]
    assert rows[1] == ["a|b", "1.5", "", "true", "[1,2]", '{"k":1}', "2", "x"]


def test_parquet_is_read_back(tmp_path: Path) -> None:
    """Sums of integers are integers."""
    import pyarrow.parquet

    run = write_run(tmp_path / "r", count=2)
    result = run_query("SELECT judge, sum(attempts) AS n FROM verdicts GROUP BY judge", [run])
    write_table(result, "parquet", tmp_path / "x.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "x.parquet")
    assert table.to_pylist() == [{"judge": "rules", "n": 4}]
    assert str(table.schema.field("n").type) == "int64"


@pytest.mark.parametrize("width", [80, 40])
def test_table_fits_its_width(width: int, tmp_path: Path) -> None:
    """Long text is cut, many columns stand one a line; wide characters count double."""
    run = write_run(tmp_path / "r", count=1,
                    conversations=[conversation(0, said="磁石は鉄を引く。" * 40)])  # fmt: skip
    from rich.cells import cell_len

    for sql in ("SELECT * FROM conversations", "SELECT conversation_id, content FROM turns"):
        lines = format_result(run_query(sql, [run]), "table", width).decode().splitlines()
        assert max(map(cell_len, lines)) <= width
        assert lines[-1].endswith(("row)", "rows)"))


def test_table_shows_no_terminal_escapes(tmp_path: Path) -> None:
    """A model's words must not steer the reader's terminal."""
    talk = conversation(0, said="\x1b[31mred\x1b]0;title\x07")
    run = write_run(tmp_path / "r", count=1, conversations=[talk])
    text = format_result(run_query("SELECT content FROM turns", [run]), "table").decode()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "red" in text


def test_binary_is_not_written_to_a_terminal() -> None:
    """Parquet needs a file or a redirected stdout."""
    with pytest.raises(UsageError, match="--out"):
        check_format("parquet", terminal=True)
    assert check_format("parquet", terminal=False) == "parquet"
    with pytest.raises(UsageError, match="expected one of table, json, csv, parquet"):
        check_format("xml")


def test_importing_query_loads_no_duckdb() -> None:
    """Heavy libraries load when a query runs, not before."""
    code = (
        "import sys, convbench.commands.query\n"
        "print(*(name in sys.modules for name in ('duckdb', 'pyarrow')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


@pytest.mark.timeout(20)
def test_a_column_of_any_width_is_fitted_at_once() -> None:
    """Its width is not counted down: a cell may hold all that a query's memory takes."""
    assert _fit_widths((10**12, 5), 80) == [73, 5]
    assert _fit_widths((10**12, 10**12), 80) == [39, 39]
    assert _fit_widths((10**12,) * 30, 80) is None
