"""Numbers as MathDial writes them, read exactly and written in one common format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_LINE = re.compile(rf"(?P<sign>-?)\s*+(?:\$\s*+)?(?P<digits>{_NUMBER})\s*[%.]?")


@dataclass(frozen=True)
class Format:
    """How all options of one question are written."""

    decimals: int
    """Digits after the point."""
    commas: bool
    """Whether thousands are grouped by commas."""

    def units(self, value: Decimal) -> int | None:
        """Return the value in units of the last written digit, None where it needs more digits."""
        scaled = value.scaleb(self.decimals)
        return int(scaled) if scaled == scaled.to_integral_value() else None

    def write(self, units: int) -> str:
        """Return the text of a value given in units of the last written digit."""
        value = Decimal(units).scaleb(-self.decimals)
        return f"{value:{',' if self.commas else ''}.{self.decimals}f}"


def last_line(text: str) -> str:
    """Return the last line that is not blank: there MathDial puts the final number."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def read(line: str) -> Decimal | None:
    """Return the number that makes up this whole line, None where it holds anything else."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    value = Decimal(found["digits"].replace(",", ""))
    return -value if found["sign"] else value


def format_of(line: str) -> Format:
    """Return the format of a gold answer's line."""
    whole, _, fraction = line.strip("$% ").rstrip(".").partition(".")
    return Format(decimals=len(fraction), commas="," in whole)


def numbers(text: str) -> Iterator[Decimal]:
    """Yield every number in a text, without its sign."""
    for found in re.findall(_NUMBER, text):
        yield Decimal(found.replace(",", ""))
