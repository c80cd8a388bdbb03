"""Build the tokenizer of the grids' policy: a token for each cell and piece of an edit, else bytes.

A cell's token encodes its position and its colour, for grids of up to 6x6."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from convbench.tasks.arc_agi.edit import STRATEGIES, SWITCHES
from tests.lab.pocket.grids_corpus import ASK, RATES
from tests.lab.pocket.tokenizer import END, PAD, ROLES, with_chat_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def cell_text(down: int, right: int, colour: int) -> str:
    """Return the text of a cell's token, with a space before all but a grid's first cell."""
    return f"{'' if down == right == 1 else ' '}r{down}c{right}={colour}"


def token_pieces() -> list[str]:
    """Return every text that is one token, longest first: cells, digits (also after a line break),
    separators of grids, and the pieces of an edit."""
    cells = [mark + str(colour) for colour in range(10) for mark in ("\n", "")]
    cells += [cell_text(*position, colour) for position in PLACES for colour in range(10)]
    marks = [
        " -> ",
        "#\n",
        "#",
        "Input:\n",
        "\nOutput:\n",
        "\n\nInput:\n",
        "\n------\n",
        ASK,
    ]
    switches = [f'"{name}": ' for name in SWITCHES]
    edits = [
        '{"data_generation": {',
        *switches,
        *(f", {piece}" for piece in switches),
        "true",
        "false",
        '}, "training": {"strategy": "',
        *STRATEGIES,
        '", "learning_rate": ',
        *map(json.dumps, RATES),
        ', "num_train_epochs": ',
        "}}",
    ]
    return sorted({*cells, *marks, *edits}, key=lambda piece: (-len(piece), piece))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer with its chat template; any text can be encoded and decoded."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from tokenizers.pre_tokenizers import ByteLevel

    table = bytes_to_signs()
    known = ["".join(table[byte] for byte in piece.encode()) for piece in token_pieces()]
    tokens = dict.fromkeys([*sorted(ByteLevel.alphabet()), *known])
    vocabulary = {token: i for i, token in enumerate(tokens)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    pattern = "|".join(re.escape(piece) for piece in token_pieces())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([*ROLES.values(), END, PAD])
    return with_chat_template(inner, longest=LONGEST)


LONGEST: Final = 512
PLACES: Final = tuple((down, right) for down in range(1, 7) for right in range(1, 7))
"""(row, column) of the cells that have tokens."""


def bytes_to_signs() -> dict[int, str]:
    """Return the character that stands for each byte in byte-level vocabularies: its own if it is
    printable, else the next one from U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in table]
    return table | {byte: chr(256 + i) for i, byte in enumerate(others)}
