"""Runs whose rows are kept in an index, however short they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.schema import Conversation
from convbench.store import Run, index, sidecars
from convbench.store.index import ConversationRow
from convbench.util.cache import cache_folder
from tests.helpers.runs import conversation, example, failed, verdict, write_run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own; every file is stored, however short and young it is."""
    monkeypatch.setenv("CONVBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(index, "WORTH", 1)
    monkeypatch.setattr(sidecars, "SETTLE_SECONDS", -1.0)
    monkeypatch.setattr(index, "SMALL", 0)
    return cache_folder("index")


def make_run(folder: Path) -> Run:
    """Conversations and verdicts: failures, flags, keys and verdicts that come again later, and a
    torn last line."""
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
    write_lines(run.conversations_file, lines)
    write_lines(run.verdicts_file, [one.model_dump_json() for one in judged])
    with run.conversations_file.open("ab") as file:
        file.write(lines[0].encode()[:40])
    return Run.open(folder)


def write_lines(path: Path, lines: list[str]) -> None:
    """Write a file of these lines."""
    path.write_text("".join(f"{line}\n" for line in lines))


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
