"""A policy of a few million random weights, with a tokenizer of its own and a real context length.

It has read nothing, so what it says is noise; it is as large as the machinery needs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers.excerpts import EXCERPTS

WORDS = 4096
POSITIONS = 8192
SPECIAL = ("<|pad|>", "<|start|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>"
    "{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def made(folder: Path, seed: int = 0) -> int:
    """Write the policy into a folder as safetensors, unless it is there; return its weights."""
    import torch
    from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

    if not (folder / "config.json").exists():
        _tokenizer().save_pretrained(folder)
        torch.manual_seed(seed)
        LlamaForCausalLM(_config(LlamaConfig)).save_pretrained(folder, safe_serialization=True)
    model = LlamaForCausalLM(AutoConfig.from_pretrained(folder))
    return sum(weight.numel() for weight in model.parameters())


def _config(kind: Any) -> Any:
    return kind(
        vocab_size=WORDS, hidden_size=128, intermediate_size=384, num_hidden_layers=10,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=POSITIONS,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip


def _tokenizer() -> Any:
    """Train byte-level BPE on rows of our own and on the words of the specs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.train_from_iterator(
        _texts(),
        trainers.BpeTrainer(
            vocab_size=WORDS, special_tokens=list(SPECIAL), show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=found, pad_token=SPECIAL[0], bos_token=SPECIAL[1], eos_token=SPECIAL[2],
        model_max_length=POSITIONS,
    )  # fmt: skip
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _texts() -> Iterator[str]:
    """Yield what a policy meets: questions, and the wording of the protocols."""
    for file in sorted(EXCERPTS.rglob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield " ".join(_strings(json.loads(line)))
    for file in sorted((EXCERPTS.parents[1] / "specs").rglob("*.yaml")):
        yield file.read_text(encoding="utf-8")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:2000]
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
