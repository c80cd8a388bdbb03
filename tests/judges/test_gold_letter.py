"""Judges that need a gold letter refuse a run without any, and name questions without one once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.cli import convbench


def write_run(folder: Path, *rows: dict[str, object]) -> None:
    texts = []
    for number, row in enumerate(rows):
        asked = {"role": "user", "content": f"Question {number}?"}
        reply = {"role": "assistant", "content": "The answer is A."}
        texts.append(json.dumps({"messages": [asked, reply], **row}) + "\n")
    (folder / "log.jsonl").write_text("".join(texts))
    assert convbench(folder, "import", "log.jsonl", "--run", "one").code == 0


GOLD: dict[str, object] = {"choices": ["a stone", "a cork"], "answer": "A"}


@pytest.mark.parametrize("judge", ["rules", "answer"])
def test_run_without_gold_letters_is_refused_before_anything_is_written(
    judge: str, tmp_path: Path
) -> None:
    write_run(tmp_path, {}, {}, {"answer": "a stone"})
    for more in ((), ("--dry-run",)):
        error = convbench(tmp_path, "judge", "--judge", judge, "--run", "one", *more).error
        assert f"judge {judge}: found 3 questions, none with a gold answer" in error
    assert (tmp_path / "one/verdicts.jsonl").read_bytes() == b""


def test_questions_without_a_gold_letter_are_counted_in_one_note(tmp_path: Path) -> None:
    write_run(tmp_path, GOLD, {}, {}, {})
    done = convbench(tmp_path, "judge", "--judge", "rules", "--run", "one")
    notes = [line for line in done.err.splitlines() if "without a score" in line]
    assert len(notes) == 1
    assert notes[0].startswith("note: rules: 3 without a score: judge rules: the gold answer of")
    verdicts = [json.loads(line) for line in (tmp_path / "one/verdicts.jsonl").open()]
    assert sum(verdict["failure"] is None for verdict in verdicts) == 1
