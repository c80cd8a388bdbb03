"""Cut a reply off where it continues with a question or a turn of its own.

A model without chat training ends its answer and writes on, as its training texts did: a next
question with its options, "User:", a template's marks. That is not part of the reply. A question at
the reply's beginning is (it restates the question), and so is a later one with the same options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_SPEAKERS = (
    r"user|human|student|teacher|instructor|interviewer|tutor|customer|system|examiner|professor"
    r"|questioner|moderator|utilisateur|usuario|benutzer|用户|用戶|ユーザー"
)
_SELF = r"assistant|ai|bot|model|chatbot|response|output|助手"
_QUESTION_WORDS = (
    r"question|problem|exercise|quiz|puzzle|frage|aufgabe|pregunta|pergunta|domanda|vraag|soru|вопрос"
    r"|問題|问题|题目|سؤال|السؤال|प्रश्न"
)
_DRESS = r"[ \t#*_>\[(-]{0,12}"
_MARK = re.compile(
    rf"(?:^|\n){_DRESS}(?:"
    rf"(?P<other>(?:{_SPEAKERS})(?:\s*\d{{1,3}})?\s?[*_\])]{{0,3}}:)"
    rf"|(?P<own>(?:{_SELF})\s?[*_\])]{{0,3}}:)"
    rf"|(?P<asked>(?:(?:next|new|another|second|follow-?up|practice|bonus|example|sample)\s+)?(?:{_QUESTION_WORDS})"
    r"(?:\s*(?:\#|no\.?\s*)?\d{1,4})?[*_\])]{0,3}\s?(?::|：|\.|[*_]{0,2}(?=\n|$))"
    r"|q\s?\d{0,4}\s?[.:)]\s|(?:next|another|new)\s+(?:one|question|problem)\b[^\n]{0,60}(?=\n))"
    r"|(?P<listed>[^\n]{1,400}[?？][ \t*_]*\n{1,3}"
    r"[ \t(*-]{0,4}A[*]{0,2}[.):][^\n]{1,300}\n{1,2}[ \t(*-]{0,4}B[*]{0,2}[.):])"
    r"|(?P<follow>(?:now,?\s)?(?:answer|solve|consider|try)\s(?:the\s|this\s)?(?:following|next|another|new)\b)"
    r"|(?P<inline>[^\n]{1,400}[?？][^\n]{0,20}?[ (]A[.)][^\n]{1,200}[ (]B[.)])"
    r")"
    r"|(?<=[.!?] )(?P<next>(?:next|another)(?:\s+(?:one|question|problem))?:)"
    r"|(?<=[.!?] )(?P<running>(?:question|problem|exercise|user|human)(?:\s\d{1,3})?:)"
    r"|(?P<mark><\|(?:im_end|im_start|eot_id|endoftext|end_of_text|start_header_id|user)\|>"
    r"|</s>|<s>|<start_of_turn>|<end_of_turn>|\[INST\]|###\s*(?:instruction|human|user|input)\b)",
    re.IGNORECASE,
)
_FURTHER = re.compile(rf"\s*{_DRESS}(?:next|new|another|second|follow-?up|bonus)\b", re.IGNORECASE)
"""How a question begins that follows the answered one."""
QUESTION_KINDS = ("asked", "listed", "inline", "running")
"""Marks of a question."""
_LIST = re.compile(
    r"(?:^|[\n ])[*(]{0,3}[A-H][*]{0,2}[.):][*]{0,2}\s+([^\n]{1,200}?)"
    r"(?=\n|$|\s[(*]{0,3}[A-H][*]{0,2}[.)])"
)


class ReplyPiece(NamedTuple):
    """A piece of a reply, and the kind of mark it begins with: empty for the reply's start."""

    kind: str
    text: str


def split_reply(text: str) -> list[ReplyPiece]:
    """Return the reply's pieces, cut at the marks of another turn or question, in order; one piece,
    of kind "", if it has no mark.

    A piece that is a question includes its mark; other pieces begin after their mark. Pieces may be
    empty.
    """
    pieces, kind, start = [], "", 0
    for mark in _MARK.finditer(text):
        pieces.append(ReplyPiece(kind, text[start : mark.start()]))
        kind = mark.lastgroup or ""
        start = mark.start() if kind in QUESTION_KINDS else mark.end()
    pieces.append(ReplyPiece(kind, text[start:]))
    return pieces


def own_parts(text: str, texts: frozenset[str]) -> Iterator[str]:
    """Yield the pieces of a reply that may hold its own answer, in order.

    They end before the first other turn, template mark or other question after the reply has begun.
    Turns of others before that are skipped. `texts` are the options' texts in lower case: a
    question that lists other options is another one.
    """
    begun = False
    for kind, piece in split_reply(text):
        is_question = kind in QUESTION_KINDS
        if begun and (
            kind in ("other", "mark", "next", "follow")
            or (is_question and (_FURTHER.match(piece) or _is_other_question(piece, texts)))
        ):
            return
        if kind != "other":
            begun = begun or (bool(re.search(r"\w", piece)) and not _is_introduction(piece))
            yield piece


def _is_introduction(piece: str) -> bool:
    """Return whether a piece only introduces a question that is restated."""
    last = piece.strip().rpartition("\n")[2].lower()
    return last.endswith(":") and len(piece) < 300


def _is_other_question(piece: str, texts: frozenset[str]) -> bool:
    """Return whether a question is another one: it lists options that are not these."""
    listed = [match[1].strip(" .;*").lower() for match in _LIST.finditer(piece)]
    return len(listed) > 1 and not texts.issuperset(listed[:2])
