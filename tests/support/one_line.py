"""What a user sees of an error."""

from __future__ import annotations

from convbench.commands._json import notes_of
from convbench.errors import ConvbenchError


def one_line(error: BaseException) -> str:
    """Return the line that the command line prints of an error; fail where it would be a traceback,
    or where the text breaks its line, moves a terminal's cursor or says nothing."""
    assert isinstance(error, ConvbenchError), f"a traceback: {error!r}"
    text = str(error)
    assert text.isprintable(), repr(text)
    assert text.strip()
    assert error.exit_code in (1, 2)
    assert notes_of(error) == []
    return text
