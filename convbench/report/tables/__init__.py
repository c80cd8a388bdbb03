"""The tables of a section."""

from convbench.report.tables.against import difference_table, temperature_table
from convbench.report.tables.cells import headline, measures_of
from convbench.report.tables.counts import count_table, counts
from convbench.report.tables.results import main_table
from convbench.report.tables.runs import run_table

__all__ = [
    "count_table",
    "counts",
    "difference_table",
    "headline",
    "main_table",
    "measures_of",
    "run_table",
    "temperature_table",
]
