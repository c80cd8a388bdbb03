"""Questions that a policy wrote itself, for passages that come with none."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PAIR = re.compile(
    r"^[\s\-*\d.)]*(?:q(?:uestion)?\s*\d*\s*:\s*)?(?P<question>[^?\n]+\?)"
    r"\s*(?:a(?:nswer)?\s*\d*\s*:)?\s*(?P<answer>\S[^\n]*)$",
    re.IGNORECASE,
)


def pairs(text: str) -> Iterator[dict[str, str]]:
    """Yield question and answer of every line that holds both, as `self-qa` edits do
    (`Question: … Answer: …`, or `- What …? …`); each question once."""
    seen = set()
    for line in text.splitlines():
        found = _PAIR.match(line.strip())
        if found is None:
            continue
        question, answer = found["question"].strip(), found["answer"].strip().rstrip(".")
        if answer and question not in seen:
            seen.add(question)
            yield {"question": question, "answer": answer}
