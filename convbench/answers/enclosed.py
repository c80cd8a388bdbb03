"""What stands between two marks in a text, read forwards once.

One pattern of both marks (`<html.*?</html>`) is tried again from every opening mark that nothing
closes, each time to the end of the text: a long reply takes it minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


def enclosed(
    text: str, opening: re.Pattern[str], closing: re.Pattern[str]
) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield each opening mark with the first closing one after it, in order; what is opened in
    between is a part of it, and what is not closed is nothing."""
    begin = opening.search(text)
    while begin is not None and (end := closing.search(text, begin.end())) is not None:
        yield begin, end
        begin = opening.search(text, end.end())


def fenced(text: str) -> Iterator[str]:
    """Yield what stands in each fenced block, line by line: from a line that begins with three
    backticks or tildes to one that has nothing else, or to the end."""
    mark, body = "", list[str]()
    for line in text.split("\n"):
        bare = line.strip(" \t")
        if mark and bare == mark:
            yield "".join(f"{one}\n" for one in body)
            mark, body = "", []
        elif mark:
            body.append(line)
        elif bare.startswith(("```", "~~~")):
            mark = bare[:3]
    if body:
        yield "\n".join(body)
