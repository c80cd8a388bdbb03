"""The journal: what was finished is found again, whatever the file went through."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convbench.engine.journal import Journal, call_hash
from convbench.schema import Completion, ImagePart, Message, Sampling, TextPart

HELLO: list[Message] = [{"role": "user", "content": "hello"}]


def test_a_reply_comes_back_whole(tmp_path: Path) -> None:
    parts = (TextPart(text="see"), ImagePart(file="a.png"))
    said = Completion(parts, "length", 3, 4, 0.5, "m-1")
    Journal(tmp_path / "calls.jsonl").append('odd "key"', "h", said)
    journal = Journal(tmp_path / "calls.jsonl")
    assert journal.load_calls() == 1
    assert journal.take('odd "key"', "h") == said
    assert journal.take('odd "key"', "other") is None


@pytest.mark.parametrize("cut", [1, 2, 10, 40])
def test_a_torn_last_line_is_passed_over_and_spoils_no_other(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "calls.jsonl"
    first = Journal(path)
    first.append("a", "h", Completion("one"))
    first.append("b", "h", Completion("two"))
    first.close()
    path.write_bytes(path.read_bytes()[:-cut])
    again = Journal(path)
    again.append("c", "h", Completion("three"))
    again.close()
    last = Journal(path)
    assert last.load_calls() == 2
    assert last.take("a", "h") == Completion("one")
    assert last.take("b", "h") is None
    assert last.take("c", "h") == Completion("three")


def test_memory_holds_only_what_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    journal = Journal(path)
    for number in range(30):
        journal.append(f"q{number}/0/turn", "h", Completion(str(number)))
    assert journal.load_calls(lambda key: key.startswith("q1")) == 11
    assert journal.take("q12/0/turn", "h") == Completion("12")
    assert journal.take("q12/0/turn", "h") is None


def test_totals_count_every_call(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "calls.jsonl")
    journal.append("a", "h", Completion("x", prompt_tokens=5, completion_tokens=2, cost_usd=0.25))
    journal.append("b", "h", Completion("y", prompt_tokens=1))
    assert journal.total_cost() == (8, 0.25)


def test_an_unreadable_file_is_no_file(tmp_path: Path) -> None:
    assert Journal(tmp_path / "none.jsonl").load_calls() == 0


def test_the_hash_tells_calls_apart() -> None:
    other: list[Message] = [{"role": "user", "content": "hello "}]
    hashes = {
        call_hash("m", Sampling(), HELLO),
        call_hash("n", Sampling(), HELLO),
        call_hash("m", Sampling(temperature=0.3), HELLO),
        call_hash("m", Sampling(seed=1), HELLO),
        call_hash("m", Sampling(), other),
        call_hash("m", Sampling(), [{"role": "system", "content": "hello"}]),
    }
    assert len(hashes) == 6
    assert call_hash("m", Sampling(), HELLO) == call_hash("m", Sampling(), list(HELLO))


@given(st.text(), st.text(max_size=5))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, text: str, key: str) -> None:
    try:
        (text + key).encode()
    except UnicodeEncodeError:
        return
    path = tmp_path_factory.mktemp("journal") / "calls.jsonl"
    Journal(path).append(key, "h", Completion(text))
    journal = Journal(path)
    journal.load_calls()
    assert journal.take(key, "h") == Completion(text)


@given(
    st.builds(
        Sampling,
        temperature=st.floats(0, 2),
        top_p=st.none() | st.floats(0.1, 1),
        max_tokens=st.integers(1, 99),
        seed=st.none() | st.integers(0, 9),
        reasoning_effort=st.none() | st.just("high"),
        reply_schema=st.none() | st.just({}) | st.just({"type": "object"}),
        tools=st.just(()) | st.just(({"type": "function"},)),
        tool_choice=st.none() | st.just("none"),
    )
)
def test_a_call_is_named_by_all_of_its_sampling(sampling: Sampling) -> None:
    """As where pydantic writes it: runs of before are resumed."""
    data = orjson.dumps(["m", sampling.model_dump(), HELLO], option=orjson.OPT_SORT_KEYS)
    assert call_hash("m", sampling, HELLO) == hashlib.sha256(data).hexdigest()[:16]
    assert set(Sampling.model_fields) == {
        "temperature", "top_p", "max_tokens", "seed", "reasoning_effort", "reply_schema", "tools",
        "tool_choice",
    }  # fmt: skip
