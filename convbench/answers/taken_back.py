"""Words that take back what was just said."""

from __future__ import annotations

import re

TAKEN_BACK = re.compile(
    r"(?:[.!?…\n—–-]|^)[ \t\"'*_]*(?:(?:hmm+|oh|but|ah|ok(?:ay)?|well),?\s*+)?"
    r"(?:(?:wait|hold\s+on|hang\s+on)\s*[,.!…—-]+(?:\s*no\b[,.!]*)?|no,(?=\s+(?:it(?:['’]s|\s+is)\s+)?[(*]*(?-i:[A-HJ-Z])[)*]*(?:[.,!;]|$|\n))|no,?\s+wait\b[,.!]*|actually,?\s+no\b[,.!]*"
    r"|scratch\s+that\b[,.!]*|on\s+second\s+thoughts?\b,?|(?:actually,?\s+)?i\s+take\s+(?:that|it)\s+back\b"
    r"[,.!]*|(?:actually,?\s+)?i\s+(?:was|am)\s+wrong\b[,.!]*|(?:actually,?\s+)?i\s+made\s+a\s+mistake\b"
    r"[,.!]*|let\s+me\s+(?:reconsider|correct\s+myself)\b[,.!:]*|correction\s*:|sorry,?\s+i\s+meant?\b"
    r"|i\s+meant?\b|never\s+mind\b[,.!]*|oops\b[,.!]*)",
    re.IGNORECASE,
)
"""Words that take back what was just said; "wait" and the like only where a sentence begins."""
