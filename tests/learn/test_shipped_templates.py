"""The mask on every template that TRL ships, SmolLM2's and pocket's: trained ids = served ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from convbench.errors import TrainError
from convbench.learn.rows import mask_stretches, prompted_replies
from convbench.learn.tokens import ChatTokens
from convbench.models.local import LocalModel
from convbench.models.weights_path import check_model
from convbench.schema import Conversation, Reasoning, Sent
from convbench.schema.reasoning import Replay
from tests.helpers import tiny
from tests.helpers.tiny import PROTOCOL
from tests.helpers.tokenizers import SHIPPED, tokenizer
from tests.support.exhaustive import every_nth
from tests.support.later import needs

needs("trl")

REPLAYS: tuple[Replay, ...] = ("never", "last", "always")
DAY = "2026-11-20"


def talk(replay: Replay, thoughts: Sequence[Reasoning | None]) -> Conversation:
    """Two turns, each thought of before it was said."""
    found = tiny.conversation("Q", 0, ["POLICY0", "POLICY1"])
    turns = list(found.turns)
    for place, reasoning in zip((1, 3), thoughts, strict=True):
        turns[place] = turns[place].model_copy(update={"reasoning": reasoning})
    sent = {"student": Sent(replay=replay)} if replay != "never" else {}
    update = {"turns": tuple(turns), "systems": {}, "sent": sent}
    return found.model_copy(update=update)


def thinking(text: str) -> Reasoning:
    return Reasoning(text=text, tokens=9)


def tagged(text: str) -> Reasoning:
    return Reasoning(text=text, via="tags", frame=("<think>\n ", "\n</think>\n\n\n"))


def chat_of(name: str, reasoning: str = "loss") -> ChatTokens:
    return ChatTokens(tokenizer(name), reasoning=reasoning)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("weights")
    (path / "config.json").write_text("{}")
    return path


def served(folder: Path, name: str, conversation: Conversation) -> list[tuple[int, ...]]:
    """The ids that a local model of this template is asked with before each reply."""
    model = LocalModel(f"local:{folder}")
    model._tokenizer = tokenizer(name)
    model.read_template()
    return [
        tuple(model.prompt_tokens(turn.messages))
        for turn in prompted_replies(PROTOCOL, conversation)
    ]


def rows_of(chat: ChatTokens, conversation: Conversation) -> list[list[tuple[bool, str]]]:
    """Each row's stretches of equal mask, as text."""
    return [
        [(on, chat.tokenizer.decode(ids)) for on, ids in mask_stretches(row.ids, row.mask)]
        for row in chat.token_rows(prompted_replies(PROTOCOL, conversation), DAY)
    ]


def learnt(chat: ChatTokens, conversation: Conversation) -> list[str]:
    return [text for row in rows_of(chat, conversation) for on, text in row if on]


def contexts(chat: ChatTokens, conversation: Conversation) -> list[tuple[int, ...]]:
    """The ids before each reply, whatever the rows are."""
    rows = chat.token_rows(prompted_replies(PROTOCOL, conversation), DAY)
    if len(rows) > 1:
        return [row.ids[: row.mask.index(1)] for row in rows]
    starts = [i for i, on in enumerate(rows[0].mask) if on and not rows[0].mask[i - 1]]
    return [rows[0].ids[:start] for start in starts]


@pytest.mark.parametrize("name", every_nth(3, SHIPPED))
def test_what_is_trained_on_is_what_was_served(folder: Path, name: str) -> None:
    """Under every rule of sending back, prompt by prompt and token by token."""
    chat = chat_of(name)
    for replay in REPLAYS:
        for thoughts in ((thinking("THOUGHT0"), thinking("THOUGHT1")),
                         (tagged("THOUGHT0"), tagged("THOUGHT1")), (None, None)):  # fmt: skip
            conversation = talk(replay, thoughts)
            assert contexts(chat, conversation) == served(folder, name, conversation)


@pytest.mark.parametrize("name", SHIPPED)
def test_reasoning_is_learnt_or_left_out(name: str) -> None:
    end = chat_of(name).tokenizer.decode([chat_of(name).end_of_turn])
    conversation = talk("never", (thinking("THOUGHT0"), thinking("THOUGHT1")))
    loss, drop = (learnt(chat_of(name, mode), conversation) for mode in ("loss", "drop"))
    for number, text in enumerate(loss):
        frame = chat_of(name).frame
        assert text.startswith(("THOUGHT", frame.opens))
        assert text.endswith(f"THOUGHT{number}{frame.closes}POLICY{number}{end}")
    frame = chat_of(name).frame
    spoken = [text.removeprefix(frame.head).removeprefix(frame.closes) for text in drop]
    assert spoken == [f"POLICY0{end}", f"POLICY1{end}"]
    assert "THOUGHT" not in str(rows_of(chat_of(name, "drop"), conversation))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_thought_is_written_as_the_template_writes_it(name: str) -> None:
    """Where the template has a place for it: its own rendering of the last turn is the oracle."""
    chat = chat_of(name)
    conversation = talk("never", (None, thinking("THOUGHT1")))
    turn = prompted_replies(PROTOCOL, conversation)[-1]
    messages = [*turn.messages, {"role": "assistant", "content": "POLICY1",
                "reasoning": turn.reply.reasoning}]  # fmt: skip
    whole = chat.render_messages(messages, day=DAY)
    prompt = chat.render_prompt(turn.messages, DAY)
    shows = "THOUGHT1" in whole
    if not shows or not whole.startswith(prompt):
        assert not shows or "nothink" in name
        return
    ids = chat.reply_ids(prompt, chat.prompt_ids(turn.messages, DAY), turn.reply)[:-1]
    said = prompt + chat.tokenizer.decode(ids)
    assert whole.startswith(said)


@pytest.mark.parametrize("name", SHIPPED)
def test_text_that_was_cut_out_of_a_reply_is_put_back_word_for_word(name: str) -> None:
    chat = chat_of(name)
    conversation = talk("never", (tagged("THOUGHT0"), tagged("THOUGHT1")))
    end = chat.tokenizer.decode([chat.end_of_turn])
    opened = chat.render_prompt([{"role": "user", "content": "x"}]).endswith(chat.frame.opens)
    first = "" if opened else "<think>\n "
    assert learnt(chat, conversation) == [
        f"{first}THOUGHT{i}\n</think>\n\n\nPOLICY{i}{end}" for i in range(2)
    ]


def test_a_shipped_models_name_alone_is_answered_with_its_reference() -> None:
    with pytest.raises(TrainError, match=r"found no config\.json.*; give --model local:pocket$"):
        check_model("pocket")
