"""Every number of a paper is read as it is printed."""

from __future__ import annotations

import csv

from tests.golden.printed import FIELDS, printed_numbers
from tests.golden.record import GOLDEN, Recorder, first_difference

FILE = GOLDEN / "printed.csv"


def test_printed_numbers(golden: Recorder) -> None:
    found = list(printed_numbers())
    if golden.update:
        with FILE.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    with FILE.open(newline="", encoding="utf-8") as file:
        golden_rows = list(csv.DictReader(file))
    assert len(golden_rows) == 1006
    wrong = first_difference(golden_rows, found, 0.0)
    assert wrong is None, f"{FILE.name}: {wrong}"
