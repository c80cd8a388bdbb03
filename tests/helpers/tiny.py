"""A tiny model, its tokenizer and a judged run for the tests of learning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.schema import (
    Conversation,
    Example,
    Failure,
    ModelConfig,
    ProtocolSpec,
    RunManifest,
    TaskSpec,
    Turn,
    Verdict,
)
from convbench.store.run import Run
from tests.helpers.runs import write
from tests.helpers.templates import ALL

SPECIAL = (
    "<bos>", "<eos>", "<pad>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>",
)  # fmt: skip


@lru_cache
def tokenizer(style: str = "llama-3.1") -> Any:
    """A byte-level tokenizer with merges (two line ends are one token) and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    line = "\u010a"  # the byte-level letter of a line end
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(line, line), ("t", "h"), ("th", "e"), ("\u0120", "a")]
    words = [*letters, *("".join(pair) for pair in merges)]
    inner = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(SPECIAL))
    found = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    found.chat_template = ALL[style]
    return found


def save_model(
    folder: Path, *, seed: int = 0, layers: int = 2, style: str = "llama-3.1", **shape: Any
) -> Path:
    """Save a Llama with random weights, of some 40 thousand parameters or another shape, and its
    tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    words = tokenizer(style)
    usual = {
        "vocab_size": len(words), "hidden_size": 32, "intermediate_size": 48,
        "num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.15,
    }  # fmt: skip
    config = LlamaConfig(
        num_hidden_layers=layers, max_position_embeddings=2048, bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
        tie_word_embeddings=False, **{**usual, **shape},
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


PROTOCOL = ProtocolSpec.model_validate(
    {
        "name": "talk",
        "title": "a teacher says two things",
        "turns": {"default": 2, "min": 1, "max": 4},
        "speakers": {
            "student": {"policy": True, "system": "Be brief."},
            "teacher": {},
        },
        "steps": [
            {"loop": [
                {"id": "ask", "speaker": "teacher", "say": "x"},
                {"id": "reply", "speaker": "student"},
            ]},
        ],
    }
)  # fmt: skip
TASK = TaskSpec.model_validate(
    {"name": "tiny", "title": "tiny questions", "source": {"file": "none.jsonl"}}
)


def example(name: str, split: str = "train") -> Example:
    """A question."""
    return Example.model_validate(
        {
            "example_id": name, "task": "tiny", "split": split, "group_id": name,
            "question": f"question {name}", "answer": "A",
            "choices": [{"label": "A", "text": "one"}, {"label": "B", "text": "two"}],
        }
    )  # fmt: skip


def conversation(
    example_id: str, sample: int, replies: Sequence[str], *, cut: int | None = None, **more: Any
) -> Conversation:
    """A conversation of as many turns as replies; the reply at `cut` was cut by its limit."""
    turns = []
    for number, text in enumerate(replies):
        turns.append(Turn(speaker="teacher", step="ask", content=f"{example_id} ask {number}",
                          finish_reason="scripted"))  # fmt: skip
        reason = "length" if number == cut else "stop"
        turns.append(Turn(speaker="student", step="reply", content=text, finish_reason=reason))
    values: dict[str, Any] = {
        "key": f"{example_id}/{sample}",
        "conversation_id": f"run-{example_id}-{sample}",
        "example_id": example_id,
        "sample": sample,
        "systems": {"student": "Be brief."},
        "turns": tuple(turns),
        "stop": "complete",
        "specs": "s1",
        "ended": "2026-11-20T10:00:00Z",
    }
    return Conversation(**{**values, **more})


def verdict(
    conversation: Conversation, reward: float | None, judge: str = "j", version: str = "v1"
) -> Verdict:
    """A verdict; without a reward it failed."""
    failed = Failure(kind="JudgeError", message="unreadable") if reward is None else None
    scores = {} if reward is None else {"overall": reward * 10, "accuracy": 5.0}
    return Verdict(
        conversation_id=conversation.conversation_id, judge=judge, fingerprint=version,
        scores=scores, reward=reward, failure=failed,
    )  # fmt: skip


def make_run(
    folder: Path,
    judged: Sequence[tuple[Conversation, Sequence[Verdict]]],
    examples: Sequence[Example],
    *,
    model: str = "local:nowhere",
) -> Run:
    """Write a run to disk."""
    manifest = RunManifest(
        id="20261120-100000-tiny", created="2026-11-20T10:00:00Z", version="0", task=TASK,
        protocol=PROTOCOL, mode="standard", turns=2, samples=3, temperatures=(1.0,), seed=0,
        cast={"student": ModelConfig(model=model), "teacher": ModelConfig(model="script")},
        fingerprints={"specs": "s1"},
    )  # fmt: skip
    talks = [item for item, _ in judged]
    return write(folder, manifest, examples, talks, [one for _, some in judged for one in some])


REWARDS = ((0.0, 0.0, 1.0), (0.6, 0.9, 0.1), (0.3, 0.3, 0.3))
"""Rewards of three questions' conversations; the last question tells nothing apart."""


def judged_run(folder: Path, model: str = "local:nowhere") -> Run:
    """Three questions of three conversations, of unequal lengths, and one test question."""
    judged = []
    names = ("q0", "q1", "q2")
    for number, (name, rewards) in enumerate(zip(names, REWARDS, strict=True)):
        for sample, reward in enumerate(rewards):
            replies = [f"reply{' the cat' * (number + sample)}", f"end {name} {sample}"]
            item = conversation(name, sample, replies)
            judged.append((item, [verdict(item, reward)]))
    held = conversation("t0", 0, ["TEST", "TEST"])
    judged.append((held, [verdict(held, 1.0)]))
    examples = [*(example(name) for name in names), example("t0", "test")]
    return make_run(folder, judged, examples, model=model)
