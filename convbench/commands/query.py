"""`convbench query`: run SQL over the tables of one or several runs."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import computed_field

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import out
from convbench.errors import UsageError
from convbench.options.declare import DAY_S, Opt
from convbench.options.shared import RunDirs

if TYPE_CHECKING:
    from convbench.store.formats import Format
    from convbench.store.query import QueryResult


@dataclass(frozen=True)
class QueryOptions:
    """Ask a run, or several, in SQL (DuckDB, read-only)."""

    EXAMPLES: ClassVar = (
        'convbench query "select temperature, avg(correct::int) from conversations group by 1"',
        'convbench query "select * from verdicts where overall < 3" --format csv',
        'convbench query "describe conversations"',
    )

    sql: Annotated[
        str,
        Opt("One SELECT; tables: examples, conversations, turns, verdicts, runs.", argument=True),
    ]
    runs: RunDirs = ()
    format: Annotated[
        Literal["table", "json", "csv", "parquet"],
        Opt("How the result is written.", typed_only=True),
    ] = "table"
    out: Annotated[Path | None, Opt("File to write it to.", metavar="FILE", typed_only=True)] = None
    timeout: Annotated[
        float,
        Opt(
            "Seconds after which the query is given up.",
            "--timeout",
            "SECONDS",
            least=0.1,
            most=DAY_S,
            typed_only=True,
        ),
    ] = 30.0


class QueryAnswer(Answer):
    """`query`: the rows."""

    columns: list[str]
    """Names of the columns."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts by column, with values as `--format json` writes them."""
        from convbench.store.formats import format_result

        rows: list[dict[str, Any]] = json.loads(format_result(self._source[0], "json"))
        return rows


def run(options: QueryOptions, context: RunContext) -> QueryAnswer:
    """Return the result of one SELECT over the tables of runs, by default the newest; with `--out`
    write it too.

    Raises QueryError if the SQL is wrong, does more than read, or takes longer than the timeout;
    UsageError for parquet onto a terminal.
    """
    from convbench.store import find_run
    from convbench.store.formats import count_formulas
    from convbench.store.query import run_query

    form = check_format(options.format, options.out)
    runs = [find_run(path) for path in options.runs] or [find_run(None)]
    # With --json the answer is still to be written when the query ends.
    table = run_query(options.sql, runs, seconds=options.timeout, exit_on_timeout=not context.json)
    if options.out is not None:
        write_table(table, form, options.out, out.width)
    if form == "csv" and (count := count_formulas(table)):
        context.add_note(
            f"{count} text{'s begin' if count > 1 else ' begins'} as a formula does (=, +, -, @): "
            "have a spreadsheet read these columns as text"
        )
    return QueryAnswer(columns=list(table.columns)).with_source((table, form, options.out))


def show(answer: QueryAnswer) -> None:
    """Print the rows on stdout in the format that was asked for; nothing if they were written to a
    file."""
    table, form, file = answer._source
    if file is None:
        write_table(table, form, None, out.width)


def check_format(form: str, file: Path | None = None, *, terminal: bool | None = None) -> Format:
    """Return the format if it is known.

    Raises UsageError for an unknown one, or for parquet onto a terminal.

    Without `terminal` it is looked up whether stdout is one; a file makes parquet fit.
    """
    from convbench.store.formats import FORMATS

    known = next((name for name in FORMATS if name == form), None)
    if known is None:
        raise UsageError(f"--format {form}: expected one of {', '.join(FORMATS)}")
    is_seen = sys.stdout.isatty() if terminal is None else terminal
    if known == "parquet" and file is None and is_seen:
        raise UsageError("--format parquet is binary; name a file with --out, or redirect stdout")
    return known


def write_table(
    table: QueryResult, form: Format = "table", file: Path | None = None, width: int = 80
) -> None:
    """Write a table in a format to a file, replacing its contents, or to stdout.

    `width` is that of the printed table. On a terminal control characters are replaced by a mark. A
    reader of stdout that has gone away is no error; RunError if the file cannot be written.
    """
    from convbench.store.formats import format_result
    from convbench.store.jsonl import write_user_file
    from convbench.util.printable import make_printable

    data = format_result(table, form, width)
    if file is not None:
        write_user_file(file, data)
        return
    try:
        if sys.stdout.isatty():  # text of a model must not control the terminal
            data = make_printable(data.decode()).encode()
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


query_command = Command(run, show)
