"""Build the tokenizer of the pocket policy: bytes, and a token for every word of its world."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from convbench.pocket import texts
from convbench.pocket.world import LETTERS, PROPERTIES, VALUES, World
from tests.lab.pocket import corpus
from tests.lab.pocket.thoughts import UNKNOWN

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

ROLES: Final = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>"}
END, PAD = "<|end|>", "<|pad|>"
TAGS: Final = ("<thinking>", "</thinking>")
CHAT_TEMPLATE: Final = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
_SPOKEN: Final = (
    "I guess. say So Fine. I said The answer is What about not is Which need yes no maybe"
)


def _iter_strings(value: object) -> Iterator[str]:
    """Yield every string in nested tuples and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _iter_strings(tuple(value.values()))
    elif isinstance(value, tuple):
        for item in value:
            yield from _iter_strings(item)


def world_words(world: World) -> list[str]:
    """Return every word that the world, its wordings and its habits use, in a fixed order."""
    wordings = [v for k, v in sorted(vars(texts).items()) if k.isupper()]
    spoken = " ".join([*_iter_strings(tuple(wordings)), _SPOKEN, corpus.SYSTEM, UNKNOWN])
    words = re.findall(r"[A-Za-z]+", re.sub(r"\{[^{}]*+\}+", " ", spoken))
    values = [value for prop in PROPERTIES for value in VALUES[prop]]
    names = [*world.known, *world.strangers, *world.newcomers, *world.titles]
    return list(dict.fromkeys([*LETTERS, *words, *PROPERTIES, *values, *names]))


def token_vocabulary(world: World) -> dict[str, int]:
    """Return ids by token: 256 bytes, then every word with a space before it and without."""
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = sorted(ByteLevel.alphabet())
    tokens += [mark + word for word in world_words(world) for mark in ("\u0120", "")]
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}


def build_tokenizer(world: World) -> PreTrainedTokenizerFast:
    """Return the tokenizer with its chat template; any text can be encoded and decoded."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    bpe = models.BPE(vocab=token_vocabulary(world), merges=[], ignore_merges=True)
    inner = Tokenizer(bpe)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([*ROLES.values(), END, PAD])
    inner.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return with_chat_template(inner, longest=1024)


def with_chat_template(inner: Tokenizer, *, longest: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer as transformers loads it, with the chat template, for texts of at most
    `longest` tokens."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(ROLES.values()),
        clean_up_tokenization_spaces=False,
        model_max_length=longest,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
