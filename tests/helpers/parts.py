"""Runs whose records lie in several parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.schema import Conversation
from convbench.store import Run, index, sidecars
from convbench.store.index import ConversationRow
from convbench.store.jsonl import Appender
from convbench.util.cache import cache_folder
from tests.helpers.runs import conversation, example, failed, verdict, write_run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own; every closed file is sealed, and stored however young it is."""
    monkeypatch.setenv("CONVBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("convbench.store.jsonl.WORTH", 1)
    monkeypatch.setattr(sidecars, "SETTLE_SECONDS", -1.0)
    monkeypatch.setattr(index, "SMALL", 0)
    return cache_folder("index")


def make_run(folder: Path, parts: int = 4) -> Run:
    """Conversations and verdicts in several parts and a tail: failures, flags, keys and
    verdicts that come again in a later part, and a torn last line."""
    run = write_run(folder, examples=[example(n) for n in range(30)], conversations=[], verdicts=[])
    talks = [conversation(n, sample) for n in range(30) for sample in (0, 1)]
    for number in range(0, 60, 7):
        talks[number] = failed(number // 2, number % 2)
    again = [talk for talk in talks if talk.failure is not None][:5]
    talks += [conversation(int(talk.example_id[1:]), talk.sample) for talk in again]
    talks.append(
        conversation(
            3,
            1,
            key="q3/1#1.0",
            conversation_id="run-q3-1-b",
            flags=("teacher:words", "assistant:repeats"),
        )
    )
    lines = [talk.model_dump_json() for talk in talks]
    judged = [verdict(talk, 0.1 * (number % 9)) for number, talk in enumerate(talks)]
    judged += [verdict(talk, None, judge="other", fingerprint="beef") for talk in talks[::3]]
    judged += [
        verdict(
            talk,
            0.25,
            judge="other",
            fingerprint="beef",
            details={"turns": [{"turn": 1, "scores": {}, "reward": 0.5}]},
        )
        for talk in talks[::6]
    ]
    write_parts(run.conversations_file, lines, parts)
    write_parts(run.verdicts_file, [one.model_dump_json() for one in judged], parts)
    with run.conversations_file.open("ab") as file:
        file.write(lines[0].encode()[:40])
    return Run.open(folder)


def write_parts(path: Path, lines: list[str], parts: int) -> None:
    """Append lines so that all but the last few lie in sealed parts."""
    path.unlink(missing_ok=True)
    size = len(lines) // parts
    for start in range(0, size * (parts - 1), size):
        with Appender(path) as file:
            for line in lines[start : start + size]:
                file.write(line.encode())
    path.write_text("".join(f"{line}\n" for line in lines[size * (parts - 1) :]))


def rows_of_conversations(run: Run) -> list[ConversationRow]:
    """What the records themselves say."""
    return [
        ConversationRow(
            told.path,
            told.start,
            len(told.line),
            talk.key,
            talk.conversation_id,
            talk.example_id,
            talk.sample,
            talk.failure is None,
            talk.specs,
            list(talk.flags),
            usd_of(talk),
        )
        for told in run.iter_stored()
        for talk in [told.conversation]
    ]


def usd_of(talk: Conversation) -> float | None:
    """What its calls cost; None where one that was made has no price."""
    if any(turn.cost_usd is None and turn.prompt_tokens for turn in talk.turns):
        return None
    return sum((turn.cost_usd or 0.0 for turn in talk.turns), 0.0)
