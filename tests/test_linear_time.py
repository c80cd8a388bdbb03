"""Readers of what models write take time in proportion to it: a stuck model writes 10,000 newlines.

The one timed test: CPU time of 100,000 characters, where a quadratic reader takes minutes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from convbench import catalog
from convbench.answers.read import read_option
from convbench.answers.tags import split_segments
from convbench.judges.replies import read_reply
from convbench.rollout import checks
from convbench.schema import JudgeSpec
from convbench.util.redact import redact_text
from convbench.viewer.markup import markdown_tree

OPTIONS = {"A": "1,200 m", "B": "Marble, a stone", "C": "SELECT a FROM b"}
RUBRIC = catalog.load_spec(JudgeSpec, "judges", "rubric")
READERS: dict[str, Callable[[str], object]] = {
    "read_option": lambda text: read_option(text, OPTIONS),
    "read_option of such options": lambda text: read_option("It is A.", {"A": text, "B": "x"}),
    "split_segments": split_segments,
    "read_reply": lambda text: read_reply(text, RUBRIC),
    "redact_text": redact_text,
    "markdown_tree": markdown_tree,
    "checks": lambda text: [
        pattern.search(text) for pattern in vars(checks).values() if isinstance(pattern, re.Pattern)
    ],
}
FILLERS = ("\n", " ", "1", "1,", ".", "a", "a ", "A) ", "The answer is A. ", "<thinking>", "| ",
           "Accuracy: ", "**", "[", "(", "- ", "{", '"', "`", "not ", "_", "$\\boxed{")  # fmt: skip
COUNT = 100_000


@pytest.mark.parametrize("name", READERS)
def test_reader_takes_time_in_proportion(name: str) -> None:
    for filler in FILLERS:
        text = (filler * COUNT)[:COUNT] + "!"
        start = time.process_time()
        READERS[name](text)
        assert time.process_time() - start < 2, filler
