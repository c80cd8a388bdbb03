"""Words that take back what was just said, and words that put it in doubt."""

from __future__ import annotations

import re

_BEGIN = r"(?:[.!?…\n(—–;-]|^)[ \t\"'*_(]*(?:(?:hmm+|oh|but|ah|ok(?:ay)?|well|and|so|no),?\s*+)?"
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

_AGAIN = (
    r"(?:looking|thinking|reading|going|checking|considering|reflecting|come\s+to\s+think|now\s+that\s+i"
    r"\s+(?:think|look|read))\b[^.!?\n]{0,30}?\b(?:again|over|through|back|closer|more\s+carefully|of\s+it"
    r"|about\s+it|on\s+(?:it|this|that))\b"
)
WITHDRAWN = re.compile(
    rf"{_BEGIN}(?:(?:oh,?\s+)?(?:wait|hold\s+on|hang\s+on)\s*(?:[,.!…:—-]|i\b|that\b|no\b)"
    r"|on\s+(?:further\s+|closer\s+|second\s+|more\s+|some\s+)*(?:reflection|thoughts?|consideration|inspection|look"
    r"|reading|examination)\b|(?:let\s+me|i\s+(?:need\s+to|should|must|have\s+to|will|want\s+to)|i['’]ll)"
    r"\s+(?:re-?\s?(?:consider|think|visit|evaluate|assess|vise|do)|correct|rephrase|think\s+again"
    r"|start\s+over|take\s+that\s+back|fix\s+that|change|try\s+(?:that\s+)?again)\b"
    r"|(?:correction|edit(?:ed)?|erratum|update[d]?|rectification)\s*:"
    r"|(?:scratch|strike|forget|ignore|disregard|cancel|drop)\s+(?:that|this|the\s+(?:above|last|first|previous)|my\b|what)"
    r"|(?:oops|whoops|my\s+(?:mistake|bad|apologies|error)|apologies|never\s+mind|sorry)\b"
    r"|actually,?\s+no\b|no,?\s+(?:wait|that|this|sorry|it|actually|hold)\b|no[,:]?\s+(?=[(*]*(?-i:[A-HJ-Z])[)*]*(?:[.,!;]|$|\n))"
    rf"|{_AGAIN})"
    r"|\bi\s+(?:was\s+(?:wrong|mistaken|too\s+(?:quick|fast|hasty))|stand\s+corrected|am\s+(?:wrong|mistaken)"
    r"|(?:have\s+|['’]ve\s+)?(?:(?:just|just\s+now)\s+)?(?:made\s+an?\s+(?:\w+\s+)?(?:mistake|error|slip)|mis(?:read|spoke|remembered|counted|calculated|took|wrote|stated|typed)"
    r"|mixed\s+(?:up|\w+\s+up|\w+\s+\w+\s+up)|confused|overlooked|slipped|changed\s+my\s+mind|should\s+have\s+(?:said|written|chosen|picked))"
    r"|(?:take|took)\s+(?:that|it|this|my\s+answer)\s+back|retract|withdraw|meant?\s+(?:to\s+(?:say|write)\s+)?)"
    r"|\bi['’]ve\s+(?:changed\s+my\s+mind|made\s+a\s+mistake|mixed)|\b(?:changing|change|revising)\s+my\s+(?:mind|answer|choice)"
    r"|\b(?:my|that|this|the)\s+(?:first|initial|earlier|previous|original|above|last)?\s*(?:answer|choice|guess|pick|one)?\s*"
    r"(?:(?:above|before)\s+)?(?:was|is|were)\s+(?:a\s+|an\s+)?(?:mistake|slip|typo|error|hasty|rash|premature|too\s+(?:quick|hasty))\b"
    rf"|{_BEGIN}(?:(?:that|this|it|which)\s+(?:(?:is|was)\s+(?:not\s+right|wrong|incorrect|not\s+correct|false)"
    r"|(?:isn['’]t|wasn['’]t|can['’]?t\s+be|cannot\s+be|is\s+not|doesn['’]t\s+(?:seem|look))\s+(?:right|correct|true|it)|(?:doesn['’]t|does\s+not|cannot|can['’]t)\s+(?:fit|work|hold))"
    r"|that['’]s\s+(?:not\s+(?:right|it|correct)|wrong|incorrect))\b",
    re.IGNORECASE,
)
"""Words of a reply that take back the answer before them."""
DOUBTED = re.compile(
    rf"{_BEGIN}(?:actually|hmm+|however|although|then\s+again|but\s+(?:wait|no|actually)|yet"
    r"|let\s+me\s+(?:double|check|verify|re-?check|see|look|go\s+through|make\s+sure)"
    r"|is\s+(?:it|that)\b[^.!?\n]{0,30}\?|am\s+i\s+sure|are\s+you\s+sure|really\?)",
    re.IGNORECASE,
)
"""Words after which another option may take the answer's place."""
INSTEAD = re.compile(
    r"[\s,.:;!—–)-]*+(?:(?:so|then|rather|instead|now|no|yes|sorry|of\s+course)[\s,:]++)*"
    r"(?:(?:it|that|this)(?:['’]s|\s+(?:is|was|should\s+be|must\s+be|has\s+to\s+be|should\s+have\s+been|ought\s+to\s+be))\s+"
    r"|i\s+(?:meant?|should\s+have\s+(?:said|written|chosen|picked)|say|choose|pick)\s+(?:to\s+(?:say|write)\s+)?|make\s+(?:it|that)\s+|rather\s+|indeed\s+|to\s+|instead\s+)?",
    re.IGNORECASE,
)
"""What may stand between words that take back and the option put in its place."""
