"""What one template may cost: counted work instead of a clock, so that it ends alike anywhere."""

from __future__ import annotations

from typing import Final

WORK: Final = 20_000_000
"""Most units of work of one rendering, about a second: characters and items that are handled."""
STEP: Final = 50
"""Units of work of one step: a node of the template evaluated, a value of the world copied."""
ITEM: Final = 20
"""Units of work of one item of a list or mapping, or one other value, that is handled."""
LONGEST: Final = 5_000_000
"""Most characters of one text that a template makes, its whole output included."""
DEEPEST: Final = 40
"""Deepest nesting of a value."""
BITS: Final = 256
"""Largest number in a calculation, in bits."""

LINE: Final = 600
"""Most characters of an error about a template."""


class Refused(ValueError):
    """A template asks for what no template may have."""


class Missing(Refused):
    """A template names what is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is undefined")
        self.name = name


class Budget:
    """The work that is left to one rendering.

    What is done for each node takes from `left` by itself, as `spend` does, which is then asked for
    the refusal alone: its calls were a fifth of a rendering.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK

    def spend(self, units: int) -> None:
        """Count work that is about to be done; Refused where it is too much."""
        self.left -= units
        if self.left < 0:
            raise Refused(f"takes more than {WORK:,} units of work; expected a smaller template")

    def text(self, length: int) -> None:
        """Count a text that is about to be made."""
        if length > LONGEST:
            raise Refused(f"makes a text of {length:.3g} characters; expected at most {LONGEST:,}")
        self.spend(length)

    def handle(self, value: object, depth: int = 0) -> int:
        """Count a value that is handled whole, its items and the characters of its texts; return
        the units."""
        before = self.left
        self.spend(ITEM)
        if isinstance(value, str):
            self.spend(len(value))
        elif isinstance(value, list | dict):
            if depth >= DEEPEST:
                raise Refused(f"a value is nested more than {DEEPEST} deep")
            for item in value:
                self.handle(item, depth + 1)
                if isinstance(value, dict):
                    self.handle(value[item], depth + 1)
        return before - self.left


def one_line(text: str) -> str:
    """Return one line that is fit for a terminal, whatever a template put into it."""
    signs = "".join(sign if sign.isprintable() else " " for sign in text[: 2 * LINE])
    line = " ".join(signs.split())
    return line if len(line) <= LINE else line[: LINE - 1] + "…"
