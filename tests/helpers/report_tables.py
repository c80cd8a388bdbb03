"""Read a report's tables."""

from __future__ import annotations


def table_of(result, caption, part=0):
    return next(t for t in result.document.parts[part].tables if t.caption.startswith(caption))


def cells(table, row, head):
    heads = [column.head for column in table.columns]
    line = next(line for line in table.rows if line[0].text == row)
    return line[heads.index(head)]


def right_on(*numbers):
    """Right on these questions at every temperature, wrong on all others."""
    wanted = {f"q{number}" for number in numbers}
    return lambda question, sample: "A" if question in wanted else "B"
