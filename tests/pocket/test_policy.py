"""The shipped policy: sizes, template, tokenizer, seeded generation."""

from __future__ import annotations

import json
import random
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from convbench.pocket import rows, texts
from convbench.pocket.world import PROPERTIES, VALUES, make_world
from tests.lab.pocket import corpus
from tests.lab.pocket.habits import pose_question
from tests.support.later import needs

needs("torch", "transformers")


WEIGHTS = Path(rows.__file__).parent / "weights"


@cache
def tokenizer() -> Any:
    """The shipped tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(WEIGHTS)


@cache
def model() -> Any:
    """The shipped weights, in fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32).eval()


def conversations(count: int) -> list[list[dict[str, str]]]:
    """Conversations of every protocol, as pre-training holds them."""
    rng = random.Random(7)
    return [corpus.chat_row(make_world(), 1.0, rng) for _ in range(count)]


def rendered(messages: list[dict[str, str]], *, prompt: bool = False) -> list[int]:
    """Token ids of these messages through the chat template."""
    text = tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    return list(tokenizer().encode(text, add_special_tokens=False))


def test_size_limits() -> None:
    assert (WEIGHTS / "model.safetensors").stat().st_size <= 6_000_000
    assert sum(p.numel() for p in model().parameters()) <= 3_000_000


def test_architecture_runs_where_llama_does() -> None:
    config = json.loads((WEIGHTS / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["head_dim"], config["tie_word_embeddings"]) == (32, True)


def test_shipped_tokenizer_is_what_the_code_builds() -> None:
    from tests.lab.pocket.tokenizer import build_tokenizer

    assert build_tokenizer(make_world()).get_vocab() == tokenizer().get_vocab()


def test_every_world_word_is_one_token_with_and_without_a_space() -> None:
    world = make_world()
    values = [value for prop in PROPERTIES for value in VALUES[prop]]
    for word in (*world.known, *world.strangers, *world.newcomers, *world.titles, *values):
        assert len(tokenizer().encode(f" {word}", add_special_tokens=False)) == 1
        assert len(tokenizer().encode(word, add_special_tokens=False)) == 1


@pytest.mark.parametrize("text", ["naïve 漢字 🙂\t\n x", "  two  spaces ", "<thinking>a<"])
def test_any_text_survives_encoding(text: str) -> None:
    assert tokenizer().decode(tokenizer().encode(text, add_special_tokens=False)) == text


def test_template_is_prefix_stable() -> None:
    for messages in conversations(60):
        whole = rendered(messages)
        for k in range(1, len(messages)):
            assert whole[: len(rendered(messages[:k]))] == rendered(messages[:k])
            if messages[k]["role"] == "assistant":
                asked = rendered(messages[:k], prompt=True)
                assert whole[: len(asked)] == asked


def test_template_has_a_system_role_and_one_token_for_each_mark() -> None:
    messages = [{"role": role, "content": "x"} for role in ("system", "user", "assistant")]
    tokens = tokenizer().convert_ids_to_tokens(rendered(messages))
    assert tokens == [
        "<|system|>",
        "x",
        "<|end|>",
        "<|user|>",
        "x",
        "<|end|>",
        "<|assistant|>",
        "x",
        "<|end|>",
    ]


def test_training_ids_are_the_template_s_ids() -> None:
    """Pre-training builds ids message by message; the template must give the same."""
    from tests.lab.pocket.tokenizer import ROLES

    tok = tokenizer()
    for messages in conversations(60):
        ids: list[int] = []
        for message in messages:
            content = tok.encode(message["content"], add_special_tokens=False)
            ids += [tok.convert_tokens_to_ids(ROLES[message["role"]]), *content, tok.eos_token_id]
        assert ids == rendered(messages)


def first_prompts(count: int) -> list[str]:
    """The first prompts of that many test questions."""
    from convbench.pocket.questions import draw_fact_question

    rng = random.Random(3)
    questions = [draw_fact_question(make_world(), rng) for _ in range(count)]
    return [f"{pose_question(question)}\n\n{texts.SOLVE['thinking']}" for question in questions]


def sampled(seed: int) -> list[int]:
    """Ids of one sampled reply."""
    import torch

    torch.manual_seed(seed)
    ids = torch.tensor([rendered([{"role": "user", "content": first_prompts(1)[0]}], prompt=True)])
    reply = model().generate(ids, do_sample=True, temperature=1.0, max_new_tokens=80)
    return list(reply[0, ids.shape[1] :].tolist())


def test_a_seed_gives_the_same_reply_and_seeds_differ() -> None:
    replies = {tuple(sampled(seed)) for seed in range(8)}
    assert sampled(0) == sampled(0)
    assert len(replies) > 1


def test_replies_end_by_themselves() -> None:
    assert all(sampled(seed)[-1] == tokenizer().eos_token_id for seed in range(4))


def test_weights_have_learnt_the_known_facts_and_no_new_ones() -> None:
    recalled = [closed_book(name) for name in islice(make_world().known, 40)]
    new = [closed_book(name) for name in islice(make_world().newcomers, 40)]
    assert sum(recalled) >= 38
    assert sum(new) <= 14


def closed_book(name: str) -> bool:
    """Whether the policy answers one closed-book question right, greedily."""
    import torch

    from convbench.pocket.notes import Fact
    from tests.lab.pocket.edits import closed_book

    prop = PROPERTIES[len(name.encode()) * ord(name[0]) % len(PROPERTIES)]
    fact = Fact(name, prop, make_world().value(name, prop))
    prompt = next(iter(closed_book(fact, make_world().titles[0])))
    ids = torch.tensor([rendered([prompt], prompt=True)])
    reply = model().generate(ids, do_sample=False, max_new_tokens=20)[0, ids.shape[1] :]
    return f"The answer is {fact.value}." in tokenizer().decode(reply)
