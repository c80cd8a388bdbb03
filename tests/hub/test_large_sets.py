"""Sets too large for memory: made in portions, pulled all the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from convbench.errors import HubError, RunError
from convbench.hub.dataset import write_dataset_folder
from convbench.hub.figures import card_figures
from convbench.hub.pull_check import check_run
from convbench.hub.tables import open_portions, write_tables
from convbench.schema import Turn
from convbench.store import Run
from tests.helpers.runs import conversation, example, failed, verdict, write_run


def told(count: int, words: int = 40) -> str:
    draw = random.Random(count)
    return " ".join(f"{draw.getrandbits(64):x}" for _ in range(words))


def many(folder: Path, count: int, words: int = 40, **more: str) -> Run:
    """Conversations in an order that is not that of their names, some with reasoning."""
    numbers = random.Random(1).sample(range(count), count)
    talks = [
        conversation(n, sample, said=f"{told(n, words)} The answer is {'AB'[n % 3 > 0]}.")
        for n in numbers for sample in (0, 1)
    ]  # fmt: skip
    talks[3] = failed(numbers[1], 1)
    scores = [verdict(talk, n % 7 / 7) for n, talk in enumerate(talks) if talk.failure is None]
    return write_run(folder, examples=[example(n) for n in numbers], conversations=talks,
                     verdicts=scores, **more)  # fmt: skip


def test_portions_give_the_tables_of_the_whole(tmp_path: Path) -> None:
    """The same rows in the same order, whether a run is one portion or several."""
    import pyarrow.parquet

    run = many(tmp_path / "run", 30)
    assert card_figures(run).failed == 1
    made = []
    for size in (1 << 30, 6_000):
        with open_portions(run, tmp_path, size) as parts:
            place = tmp_path / str(size)
            place.mkdir()
            made.append((len(parts.talks), len(parts.questions), place,
                         write_tables(parts, place, "rules")))  # fmt: skip
        assert not list(tmp_path.glob(".portions-*"))
    (one, two) = made
    assert one[:2] == (1, 1)
    assert two[0] > 2
    assert two[1] > 1
    assert one[3] == two[3]
    assert one[3]["conversations"] == {"train": 48, "test": 12}
    for config in one[3]:
        first, second = (pyarrow.parquet.read_table(place / config) for place in (one[2], two[2]))
        assert first.equals(second)


def test_a_key_in_many_records_is_found(tmp_path: Path) -> None:
    """With the line it stands in; one that is spelt with an escape too."""
    run = many(tmp_path / "run", 60, words=250)
    file = run.path / "conversations.jsonl"
    whole = file.read_bytes().splitlines(keepends=True)
    for place, key in ((40, "sk-ant-"), (70, r"\u0073k-ant-")):
        hidden = f"Use {key}{'a1B2' * 8} now".encode()
        whole[place] = whole[place].replace(b"Iron, I think.", hidden)
    file.write_bytes(b"".join(whole))
    with pytest.raises(RunError) as caught:
        write_dataset_folder(run, "me/set", tmp_path / "set", judge="rules")
    for line in (41, 71):
        assert f"conversations.jsonl:{line} (" in str(caught.value)


def test_another_s_records_are_bounded_and_checked(tmp_path: Path) -> None:
    """A record that is none, and a line without end."""
    write_dataset_folder(many(tmp_path / "run", 6), "me/set", tmp_path / "set", judge="rules")
    place = tmp_path / "set" / "run"
    records = place / "conversations.jsonl"
    sound = records.read_bytes().splitlines(keepends=True)[0]
    for data, words in (
        (sound + b'{"evil":1}\n', r"conversations\.jsonl:2: "),
        (b"x" * (33 << 20), "more than 33,554,432 bytes"),
    ):
        records.write_bytes(data)
        with pytest.raises(HubError, match=words) as caught:
            check_run(place, "me/evil")
        assert "\n" not in str(caught.value)


def test_a_turn_of_several_kinds_keeps_one_schema(tmp_path: Path) -> None:
    """Reasoning in the last portion alone is a field of all messages."""
    import pyarrow.parquet

    run = many(tmp_path / "run", 8)
    thought = run.conversations_file.read_bytes().splitlines(keepends=True)
    last = max(run.conversations(), key=lambda c: c.conversation_id)
    turn = last.turns[-1]
    new = Turn(**{**turn.model_dump(), "reasoning": {"text": "Magnets pull iron."}})
    changed = last.model_copy(update={"turns": (*last.turns[:-1], new)})
    keys = [f'"key":"{last.key}"'.encode() in line for line in thought]
    thought[keys.index(True)] = changed.model_dump_json().encode() + b"\n"
    run.conversations_file.write_bytes(b"".join(thought))
    with open_portions(run, tmp_path, 3000) as parts:
        write_tables(parts, tmp_path / "set", None)
    for file in (tmp_path / "set" / "conversations").glob("*.parquet"):
        kind = pyarrow.parquet.read_schema(file).field("messages").type.value_type
        assert "reasoning_content" in [field.name for field in kind]
