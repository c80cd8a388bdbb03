"""Tokens and masks: sentinels of every speaker and turn, under four styles of template."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from convbench.errors import TrainError
from convbench.learn.rows import mask_stretches, prompted_replies
from convbench.learn.tokens import ChatTokens
from convbench.schema import Conversation, Sampling, Turn
from tests.helpers import tiny
from tests.helpers.templates import ALL

ENDS = {"llama-3.1": "<|eot_id|>", "llama-3.2": "<|eot_id|>", "qwen3": "<|im_end|>",
        "gemma": "<end_of_turn>"}  # fmt: skip


def talk(*replies: str, cut: int | None = None) -> Conversation:
    """A conversation whose system prompt, questions and replies are sentinels."""
    found = tiny.conversation("Q", 0, replies, cut=cut)
    return found.model_copy(update={"systems": {"student": "SYSTEM"}})


def learnt(chat: ChatTokens, conversation: Conversation) -> list[list[str]]:
    """The stretches with loss of each row, decoded."""
    return [
        [chat.tokenizer.decode(ids) for on, ids in mask_stretches(row.ids, row.mask) if on]
        for row in chat.token_rows(prompted_replies(tiny.PROTOCOL, conversation), "2026-11-20")
    ]


def contexts(chat: ChatTokens, conversation: Conversation, day: str = "") -> list[tuple[int, ...]]:
    """The ids before each reply in the training rows, whatever the rows are."""
    rows = chat.token_rows(prompted_replies(tiny.PROTOCOL, conversation), day)
    if len(rows) > 1:
        return [row.ids[: row.mask.index(1)] for row in rows]
    starts, at = [], 0
    for on, ids in mask_stretches(rows[0].ids, rows[0].mask):
        if on:
            starts.append(at)
        at += len(ids)
    return [rows[0].ids[:start] for start in starts]


def prompts_agree(chat: ChatTokens, conversation: Conversation) -> None:
    """Whatever the rows are: the ids before each reply are those of the prompt it answered."""
    day = "2026-11-20"
    turns = prompted_replies(tiny.PROTOCOL, conversation)
    prompts = [tuple(chat.prompt_ids(turn.messages, day)) for turn in turns]
    assert contexts(chat, conversation, day) == prompts


@pytest.mark.parametrize("style", ALL)
def test_one_row_with_loss_on_the_policys_words_alone(style: str) -> None:
    chat = ChatTokens(tiny.tokenizer(style))
    conversation = talk("POLICY0", "POLICY1 the end")
    end = ENDS[style]
    assert learnt(chat, conversation) == [[f"POLICY0{end}", f"POLICY1 the end{end}"]]
    row = chat.token_rows(prompted_replies(tiny.PROTOCOL, conversation), "2026-11-20")[0]
    others = "".join(
        chat.tokenizer.decode(ids) for on, ids in mask_stretches(row.ids, row.mask) if not on
    )
    for sentinel in ("SYSTEM", "Q ask 0", "Q ask 1"):
        assert others.count(sentinel) == 1
    assert "POLICY" not in others
    assert len(row.ids) == len(row.mask)
    prompts_agree(chat, conversation)


@pytest.mark.parametrize("style", ["llama-3.1", "llama-3.2", "qwen3"])
def test_prompts_are_the_tokenizers_own(style: str) -> None:
    """What the policy is asked with elsewhere: apply_chat_template with a generation prompt."""
    tokenizer = tiny.tokenizer(style)
    for turn in prompted_replies(tiny.PROTOCOL, talk("POLICY0", "POLICY1")):
        wanted = tokenizer.apply_chat_template(
            list(turn.messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert ChatTokens(tokenizer).prompt_ids(turn.messages) == wanted


@pytest.mark.parametrize("style", ALL)
def test_a_cut_turn_has_no_loss_on_its_end(style: str) -> None:
    chat = ChatTokens(tiny.tokenizer(style))
    end = ENDS[style]
    first = talk("POLICY0", "POLICY1", cut=0)
    assert learnt(chat, first) == [["POLICY0", f"POLICY1{end}"]]
    row = chat.token_rows(prompted_replies(tiny.PROTOCOL, first))[0]
    after = next(i for i, on in enumerate(row.mask) if on and not row.mask[i + 1]) + 1
    assert chat.tokenizer.decode([row.ids[after]]) == end, "it stands in the context all the same"
    assert learnt(chat, talk("POLICY0", "POLICY1", cut=1)) == [[f"POLICY0{end}", "POLICY1"]]


def test_a_template_that_trims_splits_rows_only_where_it_changes_a_reply() -> None:
    chat = ChatTokens(tiny.tokenizer("llama-3.1"))
    spaced = talk("POLICY0 ", "POLICY1 ")
    assert learnt(chat, spaced) == [["POLICY0 <|eot_id|>"], ["POLICY1 <|eot_id|>"]]
    prompts_agree(chat, spaced)
    last_only = talk("POLICY0", "POLICY1 ")
    assert learnt(chat, last_only) == [["POLICY0<|eot_id|>", "POLICY1 <|eot_id|>"]]


def test_a_template_that_drops_thinking_splits_rows() -> None:
    chat = ChatTokens(tiny.tokenizer("qwen3"))
    thought = talk("<think>\nwhy\n</think>\n\nPOLICY0", "POLICY1")
    assert learnt(chat, thought) == [
        ["<think>\nwhy\n</think>\n\nPOLICY0<|im_end|>"],
        ["POLICY1<|im_end|>"],
    ]
    prompts_agree(chat, thought)
    second = chat.token_rows(prompted_replies(tiny.PROTOCOL, thought))[1]
    assert "why" not in chat.tokenizer.decode(second.ids), "the policy did not see it again"


def test_no_thinking_block_is_put_into_the_policys_mouth() -> None:
    chat = ChatTokens(tiny.tokenizer("qwen3"))
    row = chat.token_rows(prompted_replies(tiny.PROTOCOL, talk("POLICY0", "POLICY1")))[0]
    assert "<think>" not in chat.tokenizer.decode(row.ids)


def test_tokens_that_would_merge_across_the_border_do_not() -> None:
    chat = ChatTokens(tiny.tokenizer("qwen3"))
    conversation = talk("\nPOLICY0", "POLICY1")  # the prompt ends with a line end too
    prompts_agree(chat, conversation)
    assert learnt(chat, conversation) == [["\nPOLICY0<|im_end|>"], ["POLICY1<|im_end|>"]]


def test_the_date_is_the_conversations() -> None:
    chat = ChatTokens(tiny.tokenizer("llama-3.2"))
    messages = prompted_replies(tiny.PROTOCOL, talk("POLICY0"))[0].messages
    assert "Today Date: 03 Feb 2025" in chat.render_prompt(messages, "2025-02-03")


def test_gemma_gets_its_system_prompt_in_the_first_user_message() -> None:
    chat = ChatTokens(tiny.tokenizer("gemma"))
    assert chat.folds_system
    messages = prompted_replies(tiny.PROTOCOL, talk("POLICY0"))[0].messages
    assert chat.render_prompt(messages) == (
        "<bos><start_of_turn>user\nSYSTEM\n\nQ ask 0<end_of_turn>\n<start_of_turn>model\n"
    )
    assert not ChatTokens(tiny.tokenizer("llama-3.1")).folds_system


def test_scripted_words_of_the_policy_are_not_learnt() -> None:
    chat = ChatTokens(tiny.tokenizer("llama-3.1"))
    found = talk("POLICY0", "POLICY1")
    turns = list(found.turns)
    turns[1] = Turn(speaker="student", step="reply", content="GIVEN", finish_reason="scripted")
    scripted = found.model_copy(update={"turns": tuple(turns)})
    assert learnt(chat, scripted) == [["POLICY1<|eot_id|>"]]


def test_a_tokenizer_without_template_is_refused(tmp_path: Path) -> None:
    bare = tiny.tokenizer("llama-3.1").__class__.from_pretrained(
        tiny.tokenizer("llama-3.1").save_pretrained(tmp_path)[0].rsplit("/", 1)[0]
    )
    bare.chat_template = None
    with pytest.raises(TrainError, match="no chat template"):
        ChatTokens(bare)


@pytest.mark.parametrize("style", ALL)
def test_a_local_build_asks_with_the_ids_that_are_trained_on(style: str, tmp_path: Path) -> None:
    """Also where the template refuses a system message (gemma)."""
    pytest.importorskip("torch")
    from convbench.models.local import LocalModel

    weights = tiny.save_model(tmp_path, style=style)
    chat = ChatTokens(tiny.tokenizer(style))
    conversation = talk("POLICY0", "POLICY1 the end")
    turns = prompted_replies(tiny.PROTOCOL, conversation)

    async def build() -> list[tuple[int, ...]]:
        model = LocalModel(f"local:{weights}", device="cpu")
        await model.start()
        try:
            said = await model.complete(turns[0].messages, Sampling(max_tokens=2), key="a")
            assert said.prompt_tokens == len(model.prompt_tokens(turns[0].messages))
            return [tuple(model.prompt_tokens(turn.messages)) for turn in turns]
        finally:
            await model.aclose()

    built = asyncio.run(build())
    assert built == contexts(chat, conversation)
    assert chat.tokenizer.decode(built[0]).count("SYSTEM") == 1
