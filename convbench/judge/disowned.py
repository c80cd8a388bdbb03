"""Words by which a judge's reply disowns the scores in it.

They may stand before the scores or after them. Every reply is looked through, and a pattern that
minds no case takes three times as long; so a text in ASCII is looked through in lower case, and
only where a word begins with the two letters that one of these begins with.
"""

from __future__ import annotations

import re

_NUMBERS = r"(?:scores?|ratings?|numbers?|values?|evaluations?|verdicts?|figures?)"
_THESE = r"(?:these|those|the|this|my|all\s+(?:of\s+)?(?:these|the))"
_WORDS = (
    r"(?:ignore|disregard|discard|retract|withdraw|take\s+back|scrap|forget"
    rf"|(?:do\s+not|don['’]t)\s+(?:use|trust|count|record|rely\s+on))\s+(?:{_THESE}\s+(?:above\s+)?{_NUMBERS}"
    r"|(?:the|all)\s+(?:of\s+the\s+)?above)\b"
    rf"|{_THESE}\s+(?:above\s+)?{_NUMBERS}\s+(?:above\s+)?(?:are|is|were|was|merely|only|just)\s+"
    r"(?:only\s+|just\s+|merely\s+|simply\s+|purely\s+)?(?:an?\s+)?(?:example|placeholder|hypothetic"
    r"|illustrat|show|not\b|made\s+up|random|wrong|incorrect|invalid|draft|sample|template|arbitrary"
    r"|guess|fiction|the\s+assistant)"
    r"|(?:these|those|they|this)\s+(?:are|is|were)\s+(?:only\s+|just\s+|merely\s+)?"
    rf"(?:not\s+(?:my|the|real|actual|final|meant)\b|(?:an?\s+)?(?:example|placeholder)"
    rf"|(?:the\s+)?{_NUMBERS}\s+(?:that\s+)?the\s+(?:assistant|student|teacher|model|agent|policy))"
    r"|i\s+(?:can(?:not|['’]t)|could\s+not|couldn['’]t|will\s+not|won['’]t|refuse|decline"
    r"|am\s+(?:unable|not\s+able)|have\s+not|haven['’]t)(?:\s+[\w]+){0,3}?\s+(?:evaluat|rat|scor|judg"
    r"|assess|grad)(?:e|ed|ing)?\b(?!\s+(?:it\s+|this\s+|them\s+)?(?:higher|above|more|better|fully))"
    rf"|(?:made|make)\s+(?:{_THESE}\s+{_NUMBERS}\s+up|up\s+{_THESE}\s+{_NUMBERS})"
    rf"|{_NUMBERS}\s+(?:should|must|are\s+to)\s+be\s+(?:ignored|disregarded|discarded)"
    rf"|(?:format|{_NUMBERS})\s+(?:would|might|could)\s+(?:look|read)\b"
    rf"|{_NUMBERS}\s+(?:merely|only|just)\s+(?:show|illustrate)"
    r"|just\s+kidding\b|(?:not\s+an?\s+(?:actual|real|genuine)|only\s+a\s+test|just\s+a\s+test)\b"
)
"""What begins at a word's beginning."""
_BEGUN = r"(?=al|d[io]|ev|f[io]|i[g\s]|ju|m[ay]|n[ou]|on|r[ae]|sc|t[ah]|v[ae]|wi)"
_LOWER = re.compile(rf"[^a-z0-9_]{_BEGUN}(?:{_WORDS})")
_ANY_CASE = re.compile(rf"\b(?:{_WORDS})", re.IGNORECASE)


def disowned(text: str) -> str | None:
    """Return the words that disown the scores, None where none do."""
    if not text.isascii():
        found = _ANY_CASE.search(text)
        return found[0] if found else None
    low = _LOWER.search("\n" + text.lower())  # so that the first word has a sign before it too
    return text[low.start() : low.end() - 1] if low else None
