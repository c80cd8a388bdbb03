"""The first tokenizer and template that are not ours: SmolLM2's, against golden ids.

Always on the part of it that these texts need, whose ids are the real ones; where its weights were
fetched (`python -m tests.lab.smollm2`) on the whole as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.schema import Message
from tests.helpers import smollm2, tiny
from tests.helpers.tiny import PROTOCOL
from tests.lab.next.learn.rows import prompted_replies
from tests.lab.next.learn.tokens import ChatTokens
from tests.lab.smollm2 import FOLDER, is_fetched

BASE_END, START, END = 0, 1, 2
GOLDEN = smollm2.golden()
absent = pytest.mark.skipif(not is_fetched(), reason="no weights: python -m tests.lab.smollm2")
FOLDERS = [
    pytest.param(smollm2.HERE, id="part"),
    pytest.param(FOLDER, id="whole", marks=absent),
]


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return smollm2.tokenizer(folder)


def messages(case: str) -> list[Message]:
    return [dict(message) for message in smollm2.CASES[case]]  # type: ignore[misc]


@pytest.mark.parametrize("case", smollm2.CASES)
def test_asked_and_trained_with_the_golden_ids(tokenizer: Any, case: str, tmp_path: Path) -> None:
    from convbench.models.local import LocalModel

    (tmp_path / "config.json").write_text("{}")
    served = LocalModel(f"local:{tmp_path}", device="cpu")
    served._tokenizer = tokenizer
    served.read_template()
    golden = GOLDEN["asked"][case]
    assert served.prompt_tokens(messages(case)) == golden
    assert ChatTokens(tokenizer).prompt_ids(messages(case)) == golden


def test_the_template_is_the_one_that_the_ids_were_made_with(folder: Path) -> None:
    ours = (smollm2.HERE / "chat_template.jinja").read_text()
    assert (folder / "chat_template.jinja").read_text() == ours
    assert json.loads((folder / "tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"


def test_the_template_supplies_a_system_prompt_where_none_is_given(tokenizer: Any) -> None:
    chat = ChatTokens(tokenizer)
    assert not chat.folds_system
    own = chat.render_prompt(messages("the template's own system prompt"))
    assert own.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    given = chat.render_prompt(messages("a system prompt that is given"))
    assert given.startswith(f"<|im_start|>system\n{smollm2.SYSTEM}<|im_end|>\n<|im_start|>user")
    assert "SmolLM" not in given


def test_a_turn_ends_with_the_chats_end_not_with_the_bases(tokenizer: Any) -> None:
    assert ChatTokens(tokenizer).end_of_turn == END == tokenizer.eos_token_id
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") == BASE_END
    assert tokenizer.bos_token_id == START  # the template writes it; nothing is put before it
    first = GOLDEN["asked"]["the template's own system prompt"]
    assert first.count(START) == 3
    assert first.count(END) == 2


def test_no_token_holds_a_digit_and_more(tokenizer: Any) -> None:
    """The original splits digits off before merging and GGUF does not say so: it need not."""
    words = [w for w in tokenizer.get_vocab() if any(c in "0123456789" for c in w)]
    assert words
    assert all(len(word) == 1 for word in words)


def test_three_turns_are_one_row_that_begins_with_every_prompt(tokenizer: Any) -> None:
    chat = ChatTokens(tokenizer)
    replies = smollm2.REPLIES[:2]
    found = tiny.conversation("Q", 0, [*replies, "The answer is A"], cut=2)
    turns = prompted_replies(PROTOCOL, found)
    (row,) = chat.token_rows(turns)
    for turn in turns:
        ids = chat.prompt_ids(turn.messages)
        assert list(row.ids[: len(ids)]) == ids
    learnt = [token for token, on in zip(row.ids, row.mask, strict=True) if on]
    said = [GOLDEN["said"][reply] for reply in replies]
    assert learnt == [*said[0], END, *said[1], END, *said[1]]  # the last was cut: no end


@pytest.mark.parametrize(("number", "rows"), [(2, 1), (3, 2)])
def test_only_a_reply_that_begins_with_two_line_ends_splits_the_row(
    tokenizer: Any, number: int, rows: int
) -> None:
    """The template's line end and the first of two would be one token, which was never sampled so;
    one line end before a word stands alone."""
    chat = ChatTokens(tokenizer)
    reply = smollm2.REPLIES[number]
    found = chat.token_rows(
        prompted_replies(PROTOCOL, tiny.conversation("Q", 0, [reply, "The answer is A"]))
    )
    assert len(found) == rows
    learnt = [token for token, on in zip(found[0].ids, found[0].mask, strict=True) if on]
    said = [*GOLDEN["said"][reply], END]
    assert learnt[: len(said)] == said
    assert (learnt == said) == (rows == 2)
