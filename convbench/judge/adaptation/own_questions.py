"""Questions that a policy wrote itself, for passages that come with none."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ASKED = re.compile(r"(?is)[\s\-*\d.)]*(?:q(?:uestion)?\s*+\d*+\s*+:\s*)?(.+)")
_ANSWERED = re.compile(r"(?is)\s*+(?:a(?:nswer)?\s*+\d*+\s*+:\s*+)?(\S.*)")
"""How a line begins before its first question mark, and how it goes on after it."""


def pairs(text: str) -> Iterator[dict[str, str]]:
    """Yield question and answer of every line that holds both, as `self-qa` edits do
    (`Question: … Answer: …`, or `- What …? …`); each question once."""
    seen = set()
    for line in text.splitlines():
        before, mark, after = line.strip().partition("?")
        asked, answered = _ASKED.fullmatch(before), _ANSWERED.fullmatch(after)
        if asked is None or answered is None:
            continue
        question, answer = f"{asked[1]}{mark}".strip(), answered[1].strip().rstrip(".")
        if answer and question not in seen:
            seen.add(question)
            yield {"question": question, "answer": answer}
