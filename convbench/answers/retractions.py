"""Words that retract what was just said, and words that put it in doubt."""

from __future__ import annotations

import re

_BEGIN = (
    r"(?:[.!?…\n(—–;-][ \t\"'*_(-]{0,6}+|,\s(?=but\b|yet\b|though\b))"
    r"(?:(?:hm++|oh|but|ah|uh|ok(?:ay)?|well|and|so|no)\b(?!,?\s+no\b),?\s*+)?"
)
_AGAIN = (
    r"(?:looking|thinking|reading|going|checking|considering|reflecting|come\s+to\s+think"
    r"|now\s+that\s+i\s+(?:think|look|read))\b[^.!?\n]{0,30}?\b(?:again|over|through|back|closer"
    r"|more\s+carefully|of\s+it|about\s+it|on\s+(?:it|this|that))\b"
)
_SLIP = (
    r"(?:mistake|slip|typo|error|hasty|rash|premature|wrong|incorrect|too\s+(?:quick|fast|hasty))\b"
)
WITHDRAWN = (
    re.compile(
        rf"{_BEGIN}(?:(?:wait|hold\s+on|hang\s+on)\s*(?:[,.!…:—-]|(?:i|that|no)\b)"
        r"|on\s+(?:further\s+|closer\s+|second\s+|more\s+|some\s+|careful\s+)*+(?:reflection|thoughts?"
        r"|consideration|inspection|look|reading|examination)\b"
        r"|(?:let\s+me|i\s+(?:need\s+to|should|must|have\s+to|will|want\s+to)|i['’]ll)\s+(?:re-?\s?"
        r"(?:consider|think|visit|evaluate|assess|vise|do)|correct|rephrase|think\s+again|start\s+over"
        r"|take\s+that\s+back|fix|change|try\s+again)\b(?:\s+(?:that|this|it|(?:my|the)\s+answer|myself))?"
        r"|(?:correction|edit(?:ed)?|erratum|updated?|rectification)\s*[:,]"
        r"|(?:scratch|strike|forget|ignore|disregard|cancel|drop)\s+(?:that|this|my\b|what"
        r"|the\s+(?:above|last|first|previous))"
        r"|(?:oops|whoops|my\s+(?:mistake|bad|apologies|error)|apologies|never\s+mind|sorry)\b"
        r"|actually,?\s+no\b|(?:just\s+)?(?:kidding|joking)\b"
        r"|(?<=[hu][mh], )no\b|no,?\s+(?:wait|that|this|sorry|it|actually|hold)\b"
        rf"|no[,:]?\s+(?=[(*]*+[a-hj-z][)*]*+(?:[.,;!\n]|$))|{_AGAIN}"
        r"|change\s+of\s+(?:mind|heart|plan)\b)"
    ),
    re.compile(
        rf"{_BEGIN}(?:non?,\s|nein,|nee,|moment\b|halt[,!]|wacht[,!]|pardon\b|perd[oó]n\b|não,|hayır,"
        r"|нет,|стоп|لا،|لا,|عفوا|عذرا|नहीं,|माफ़|不对|不對|等等|いや|待って|아니,|잠깐)"
    ),
    re.compile(
        r"je\s+me\s+(?:corrige|suis\s+tromp)|me\s+equivoqu|me\s+corrijo|(?:mi\s+correggo|mi\s+sono\s+sbagliat)"
        r"|ich\s+(?:korrigiere|habe\s+mich\s+(?:vertan|geirrt|verlesen|vertippt))|habe\s+ich\s+mich\s+(?:\w+\s+)?(?:vertan|geirrt)"
        r"|ik\s+(?:heb\s+me\s+vergist|vergis\s+me|corrigeer)|dat\s+klopt\s+niet|das\s+stimmt\s+nicht"
        r"|me\s+enganei|eu\s+errei|yanıldım|düzelt(?:iyorum|eyim)|yanlış\s+(?:yazdım|söyledim)|я\s+ошиб|أخطأت|ग़?लती\s+(?:हो|की)"
    ),
    re.compile(
        r"i(?<!\wi)(?:['’]ve|\s+(?:have|now|just|then|also|actually))*+\s+(?:"
        r"(?:was|am)\s+(?:wrong|mistaken|too\s+(?:quick|fast|hasty))|stand\s+corrected"
        r"|made\s+an?\s+(?:\w+\s+)?(?:mistake|error|slip)|changed?\s+my\s+(?:mind|answer)"
        r"|mis(?:read|spoke|remembered|counted|calculated|took|wrote|stated|typed|placed|applied)"
        r"|mixed\s+(?:\w+\s+){0,2}up|confused|overlooked|slipped\s+up|forgot"
        r"|should\s+have\s+(?:said|written|chosen|picked|answered)|(?:take|took)\s+(?:that|it|this"
        r"|my\s+answer)\s+back|retract|withdraw|meant?\b(?:\s+to\s+(?:say|write))?"
        r"|no\s+longer\s+(?:think|believe))"
    ),
    re.compile(
        r"(?:answer|choice|guess|pick|conclusion)\s+(?:above\s+|before\s+)?(?:was|is)\s+(?:an?\s+)?"
        rf"(?:mere\s+)?{_SLIP}"
        r"|chang(?:e|ing)\s+my\s+(?:mind|answer|choice)|revising\s+my\s+(?:answer|choice)"
        r"|no(?:t|\s+longer)\s+(?:so\s+|quite\s+)?(?:sure|certain|convinced)\s+(?:of\s+\w+\s+)?any\s?more"
        r"|no\s+longer\s+(?:sure|certain|convinced)\b|(?:flip|toss)\s+a\s+coin\b"
        r"|before\s+i\s+(?:can|could)\s+(?:give|say|answer|choose|decide|pick|name)\b"
    ),
)
"""Words of a reply, in lower case, that retract the answer before them."""
DENIED = re.compile(
    rf"{_BEGIN}(?:(?:that|this|it|which)(?:['’]s|\s+(?:is|was))\s+(?:not\s+(?:right|correct|it|true)"
    r"|wrong|incorrect|false|an?\s+(?:mistake|slip|typo|error))|(?:that|this|it)\s+(?:(?:isn['’]t"
    r"|wasn['’]t|can['’]?t\s+be|cannot\s+be|(?:doesn['’]t|does\s+not)\s+(?:seem|look|sound))\s+"
    r"(?:right|correct|true|it)|(?:doesn['’]t|does\s+not|cannot|can['’]t|won['’]t)\s+(?:fit|work|hold)))\b"
)
"""Words, in lower case, that retract an answer if no other option is named in between."""
DOUBTED = re.compile(
    rf"{_BEGIN}(?:actually|hm++|however|although|then\s+again|yet|but\s+(?:wait|no|actually)"
    r"|let\s+me\s+(?:double|check|verify|re-?check|see|look|go\s+through|make\s+sure)"
    r"|is\s+(?:it|that)\b[^.!?\n]{0,30}\?|am\s+i\s+sure|are\s+you\s+sure|really\?)"
)
"""Words, in lower case, after which another option may replace the answer."""
UNSURE = re.compile(
    r"\b(?:not|no\s+longer|un|less)[\s-]*(?:so\s+|quite\s+|really\s+|that\s+|entirely\s+)?(?:sure|certain|convinced|clear)\b"
    r"|\b(?:don['’]t|do\s+not|cannot|can['’]t)\s+(?:know|tell|decide|say)\b",
    re.IGNORECASE,
)
"""How doubt may end."""
INSTEAD = re.compile(
    r"[\s,.:;!—–)-]*+(?:(?:so|then|rather|instead|now|no|yes|sorry|of\s+course)[\s,:]++)*"
    r"(?:(?:it|that|this)(?:['’]s|\s+(?:is|was|should\s+be|must\s+be|has\s+to\s+be|should\s+have\s+been|ought\s+to\s+be))\s+"
    r"|i\s+(?:meant?|should\s+have\s+(?:said|written|chosen|picked)|say|choose|pick)\s+(?:to\s+(?:say|write)\s+)?|make\s+(?:it|that)\s+|rather\s+|indeed\s+|to\s+|instead\s+)?",
    re.IGNORECASE,
)
"""What may come between words of retraction and the option that replaces the answer."""
