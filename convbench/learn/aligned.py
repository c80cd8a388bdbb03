"""Log-probabilities that were recorded of a reply, laid on the trainer's own tokens, or refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from convbench.errors import TrainError
from convbench.schema.token_probs import TokenProbs

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>\Z")


class Unaligned(TrainError):
    """The recorded tokens are not those that training reads."""


def by_ids(
    tokenizer: Any, said: Sequence[int], end_of_turn: int, probs: TokenProbs, end: int
) -> tuple[list[int], list[float]]:
    """Return (ids, log pi_0) of a reply whose token ids were recorded; the values have one more
    where the end of the turn was sampled too.

    A model may sample other tokens than its tokenizer makes of the same text; then the sampled
    ones are what is learnt. Unaligned where they spell another text, or end in another token.
    """
    ids, values = list(probs.ids), list(probs.log_probs)
    if end and ids[-1] != end_of_turn and len(ids) == len(said) + 1:
        raise Unaligned(
            f"it ended with token {ids[-1]}, and training ends a turn with {end_of_turn}"
        )
    if end and ids[-1] == end_of_turn:
        ids = ids[:-1]
    known = max(ids, default=0) < len(tokenizer)
    if ids != list(said) and not (known and _text(tokenizer, ids) == _text(tokenizer, said)):
        raise Unaligned("its recorded token ids spell another text in this tokenizer")
    return ids, values


def by_sizes(
    tokenizer: Any, said: Sequence[int], probs: TokenProbs
) -> tuple[list[int], list[float]]:
    """Return (ids, log pi_0) of a reply whose tokens' lengths in bytes were recorded; the values
    have one more where there is one more token, the end of the turn. Unaligned where the text is
    cut into other tokens here."""
    own, n = sizes(tokenizer, said), len(said)
    if len(probs.sizes) not in (n, n + 1) or list(probs.sizes[:n]) != own:
        raise Unaligned("its recorded tokens are cut at other places than this tokenizer cuts")
    return list(said), list(probs.log_probs)


def sizes(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Return how many bytes of text each token is. Unaligned where the tokenizer's tokens do not
    add up to its text, as where it drops a space."""
    names = tokenizer.convert_ids_to_tokens(list(ids))
    total = len(_text(tokenizer, ids).encode("utf-8", "surrogatepass"))
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    for size in (_letters, _pieces):
        found = [_plain(name) if name in added else size(name) for name in names]
        if sum(found) == total:
            return found
    raise Unaligned("this tokenizer does not tell how many bytes of text a token is")


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return text


def _plain(name: str) -> int:
    return len(name.encode())


def _letters(name: str) -> int:
    """Bytes of a byte-level token: every letter stands for one."""
    return len(name)


def _pieces(name: str) -> int:
    """Bytes of a SentencePiece token: a mark stands for a space, `<0x0A>` for a byte."""
    return 1 if _BYTE.match(name) else len(name.replace("\u2581", " ").encode())
