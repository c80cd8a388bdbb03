"""A model of our own that calls tools in its text, in the form of Hermes and Qwen: served with the
template's `tools=`, read, run, told the result through the template, masked and trained."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest

from convbench.learn.rows import mask_stretches, prompted_replies
from convbench.learn.tokens import ChatTokens, load_tokenizer
from convbench.schema import Conversation
from convbench.store import Run
from tests.helpers import stages, tiny
from tests.helpers.tokenizers import SHIPPED

pytestmark = pytest.mark.filterwarnings("ignore")
CALL = {"name": "lookup", "arguments": {"item": "eggs"}}
WORDS = "The answer is A. So it seems."
TEMPLATE, END = SHIPPED["qwen2_5"], "<|im_end|>"
TOLD = f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"
"""A call as it is written: one token of the model below."""


def caller(folder: Path) -> Path:
    """Save a model that calls `lookup` or answers, by the toss of a coin: each token is the answer
    to the one before it, written into embeddings and head of a Llama whose layers do nothing."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    words = copy.deepcopy(tiny.tokenizer())
    words.chat_template = TEMPLATE
    words.add_tokens([TOLD, WORDS])
    chat = [{"role": "user", "content": "x"}]
    shown = words.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    last = words(shown, add_special_tokens=False)["input_ids"][-1]
    call, said, stop = words.convert_tokens_to_ids([TOLD, WORDS, END])
    follows = {last: [call, said], call: [stop], said: [stop]}
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=8192,
        eos_token_id=stop, pad_token_id=words.pad_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.zero_()
        model.model.embed_tokens.weight[:, 0] = 1
        model.lm_head.weight.zero_()
        for place, (token, after) in enumerate(follows.items(), 1):
            model.model.embed_tokens.weight[token] = torch.eye(32)[place]
            model.lm_head.weight[after, place] = 8
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Run]:
    folder = caller(tmp_path / "model")
    shape = {"mode": "standard", "samples": 4, "temperatures": (1.0,)}
    result = stages.build_result(
        "market", model=f"local:{folder}", tasks=6, run=tmp_path / "run", **shape
    )
    assert result.built is not None
    assert not result.built.failed, result.built.failures
    return folder, Run.open(tmp_path / "run")


def test_calls_are_read_run_told_and_trained_as_they_were_served(
    built: tuple[Path, Run],
) -> None:
    folder, run = built
    protocol = run.manifest.protocol
    talks: list[Conversation] = list(run.conversations())
    counts = {len(talk.turns[-1].rounds) for talk in talks}
    assert {0, 1} <= counts, "it tosses a coin"
    tools = protocol.speakers[protocol.policy].tool_schemas
    chat = ChatTokens(load_tokenizer(str(folder)), options={"tools": tools})
    for talk in talks:
        turn = talk.turns[-1]
        assert turn.content == WORDS
        for one in turn.rounds:
            assert one.raw == TOLD
            (result,) = one.results
            assert re.fullmatch(r"eggs: \d+ pence", result.content) is not None
        replies = prompted_replies(protocol, talk)
        served = [one.prompt_tokens for one in turn.rounds]
        assert [len(chat.prompt_ids(r.messages, talk.ended[:10])) for r in replies][:-1] == served
        pieces = [
            (on, chat.tokenizer.decode(ids))
            for row in chat.token_rows(replies, talk.ended[:10])
            for on, ids in mask_stretches(row.ids, row.mask)
        ]
        learnt = [text for on, text in pieces if on]
        assert sum(TOLD in text for text in learnt) == len(turn.rounds)
        assert sum(WORDS in text for text in learnt) == 1
        assert not any(" pence" in text for text in learnt)
        told = "".join(text for on, text in pieces if not on)
        assert (" pence" in told.partition("Choices:")[2]) is bool(turn.rounds)
        assert "Look up today's price" in told, "the template's tools="


def test_a_model_is_trained_on_its_calls(built: tuple[Path, Run]) -> None:
    """Dry run and a real step."""
    folder, run = built
    stages.judge(run.path, "rules")
    sets = (
        "recipe.fit.epochs=1", "recipe.fit.max_steps=1", "recipe.fit.precision=fp32",
        "recipe.fit.gradient_checkpointing=false", "recipe.fit.batch_size=4",
        "recipe.fit.accumulation=1",
    )  # fmt: skip
    asked = {"recipe": "refit", "run": run.path, "model": str(folder), "set": sets,
             "launch": "none"}  # fmt: skip
    shown = "\n".join(stages.train(**asked, dry_run=True).preview)
    assert re.search(rf"  LOSS +\d+  .{re.escape(repr(TOLD)[1:-1])}", shown)
    assert not re.search(r"  LOSS .*\d pence", shown)
    stages.train(**asked, in_process=True)
    training = json.loads((run.checkpoints_folder / "refit" / "training.json").read_text())
    assert training["steps"] == 1
