"""Words of conversations are counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.schema import Conversation, ProtocolSpec
from convbench.store import grades
from tests.helpers.indexed_runs import cache, make_run

__all__ = ["cache"]


def test_words_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run")
    count_words, protocol = grades.count_words, run.manifest.protocol
    expected = [(talk.conversation_id, count_words(protocol, talk)) for talk in run.conversations()]
    counted: list[str] = []

    def count(protocol: ProtocolSpec, talk: Conversation) -> int:
        counted.append(talk.key)
        return count_words(protocol, talk)

    monkeypatch.setattr(grades, "count_words", count)
    calls = []
    for _ in range(2):
        counted.clear()
        words = [(row.conversation_id, words) for row, words in grades.words_rows(run)]
        assert words == expected
        calls.append(len(counted))
    assert calls[1] == 0 < calls[0]
