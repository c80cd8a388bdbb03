"""The words and signs around an answer: what `final` reads by, in plain text (`plain`).

Quantifiers that could fight over the same characters are possessive: time stays linear. What is
looked for before a word is looked for in at most 80 characters.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_MARKS = r"[\s*_`~]*+"
_OPENING = r"[\s*_`~'\"$(\[{<#]*+"
_ADVERB = (
    r"(?:still|indeed|clearly|definitely|certainly|probably|likely|most\s+likely|therefore|thus"
    r"|obviously|simply|actually|really|now|option|choice)"
)
_WRAP = r"\\?(?:f?boxed|text|math|bold)[a-z]{0,10}+\s*+\{"

NOUN = re.compile(
    r"(?<![^\W_])(?:answer|option|choice|letter|ans(?=\s*[.:=])|respuesta(?:\s+correcta)?|réponse"
    r"|antwort|resposta|risposta|ответ)(?![^\W_])|答案|答え|정답"
)
"""What an answer is called; the last ones in other languages."""
_QUALIFIED = re.compile(r"(?:correct|right|best|final|answer)[*_]*\s+$")
_ANOTHERS = re.compile(
    r"\b(?:wrong|incorrect|false|not\s+(?:the|an)|their|his|her|(?<!question)(?<!problem)['’]s)\s+"
    r"(?:(?:first|initial|original|own|final|correct|best|chosen)\s+)?(?:answer\s+)?$"
)
_THE = r"\s+(?:that\s+)?(?:(?:the|my|an?)\s+)?(?:(?:correct|right|best|final)\s+)?(?:answer\s+)?$"
_DENIED = re.compile(
    r"(?:n['’]t|\bnot|\bnever|\bcannot|\bhardly)\s+(?:(?:really|fully|quite|yet|at\s+all)\s+)?"
    r"(?:think|believe|say|agree|mean|true|sure|certain|clear|convinced|know|right|correct"
    rf"|the\s+case|claim|conclude|accept|see|possible|obvious)(?:\s+(?:if|whether|why|how))?{_THE}"
    rf"|\b(?:if|whether|unless|doubt|suppos(?:e|ing)|assum(?:e|ing)|imagine|pretend){_THE}"
    r"|\b(?:wrong|mistake|error|false|untrue|incorrect)(?:\s+to\s+(?:say|think|conclude|claim))?"
    rf"{_THE}"
    r"|\b(?:some|others|nobody|no\s+one|few|one|you|people|someone|they|he|she|students?|many)\s+(?:people\s+)?"
    r"(?:(?:might|may|could|would|will|also)\s+)*"
    rf"(?:think|say|said|argue|guess|believe|claim|thought)s?{_THE}"
)
CHANGED = re.compile(
    r"\b(?:chang|switch|revis|updat|amend)(?:e|es|ed|ing)?\s+(?:my|the)\s+(?:final\s+)?$"
)
CHANGED_TO = re.compile(
    rf"(?:\s++from\s++{_OPENING}[\w']+[*_`)\]\"']*+)?\s++to\s++(?:option\s++|choice\s++)?"
    rf"{_OPENING}(?P<letter>[^\W_])(?!\w)",
    re.IGNORECASE,
)

LINK = re.compile(
    r"[*_`]*+(?:\s++(?:to|for|of|here)\b(?:\s++(?!(?:is|was)\b)[\w'’-]++){0,6}?)?"
    r"(?:,\s*+(?:then|therefore|thus|clearly|of\s+course)\s*+,)?"
    r"(?P<link>\s++(?:is|remains|(?:would|must|should|will|has\s+to)"
    rf"(?:\s++{_ADVERB})?\s++be)(?![^\W_])(?:{_MARKS}(?::|[—–]|\.{{2,}}))?|['’]s\b"
    rf"|\s++(?:es|est|ist|lautet|é|è)(?:\s++la)?\b|\s*+(?:是|为|選|选|は|은|는)|{_MARKS}[\"']?\s*+[:=–—-]++>?)"
    rf"{_MARKS}(?:(?<=\n)[-•]\s)?"
    rf"(?:,?\s*+{_ADVERB}\b,?\s*+[:-]?|that\s+option\b|that\b"
    r"|not\s++(?:option\s++)?[\w()*]++,?\s++but\s++)?",
    re.IGNORECASE,
)
"""What joins the noun to the answer."""
OPENING = re.compile(_OPENING)
BARE = re.compile(
    rf"{_OPENING}(?:{_WRAP}{_OPENING}){{0,3}}"
    rf"(?P<word>(?:option|choice|letter)\b[\s:-]*+{_OPENING})?"
    r"(?P<letter>[A-Za-z0-9])(?=(?-i:[぀-ヿ一-鿿가-힣])|$|[^\w+#%]|_(?!\w))(?!['’]\w|-\w|♭|♯|(?-i:\.[a-z0-9]|\.[A-Z]\.))",
    re.IGNORECASE,
)
"""An option's letter in its dress."""
BOXED = re.compile(r"\\f?boxed\s*+\{")
WRAPPERS = re.compile(rf"(?:{_WRAP}{_OPENING}){{0,3}}", re.IGNORECASE)
ALONE = re.compile(
    rf"[ \t*_`~:#]*+\n{_OPENING}(?:-\s)?"
    r"|[*_ #]*+(?=\(?[A-Z]\)?[*_]*+[.!]?[*_]*+\s*+(?:\n|$))"
)
"""A noun that ends its line, with the answer below; or `Answer C` and no more in the line."""
_LINE_START = re.compile(
    r"(?:^|\n)[\s#*_>\d.)-]*(?:(?:the|my)\s+)?(?:(?:final|correct|best)\s+)?$", re.IGNORECASE
)

ENDS = frozenset(".,;:!?)]}*_~`'\"’”$<>\n")
OPENERS = frozenset("*_~`'\"“‘$([{<")
_FUNCTION = (
    "because|since|as|for|due|given|based|and|but|so|which|is|it|not|rather|over|by|from|in|on"
    "|with|without|when|if|while|after|although|though|that|or|here|there|again|then|therefore"
    "|thus|hence|instead|where|who|whose|this|these|those|i|we|you|he|she|they|its|only|alone"
    "|obviously|clearly|indeed|too|also|to|than|at|per|via|according|considering|meaning|seeing"
    "|unless|until|despite|thanks|even|just|my|our|the|has|was|would|can|does"
)
NOUN_AFTER = re.compile(rf"[ \t]+(?!(?:{_FUNCTION})\b)[a-z]")
"""What follows an article and never a letter: a word that is no function word."""
ARTICLE = re.compile(r"(?:an?|the)\s+")
ENDED = re.compile(rf"\s*(?:$|[.,;:!?)\]}}*_~`'\"$<>\n]|\(|[–—]|-\s|(?<=\s)(?:{_FUNCTION})\b)")
OR = re.compile(r"[\s*_`'\")]*(?:,\s*)?(?:and/or|or|and|/|&)\b")

_CLOSING = r"[\s*_`~'\")\]]*+"
_NEXT = (
    r"[\s*_`~'\"(\[]*+(?:(?:maybe|perhaps|possibly|even|also|either|else)\s+)?"
    r"(?:option\s+|choice\s+)?[A-Z]\b"
)
_TWO = re.compile(
    rf"{_CLOSING}(?:/|&|\||\+|[,.…]*\s*+\(?(?:and/)?or(?:\s+is\s+it)?\b|through\b|to\b){_NEXT}"
    rf"|{_CLOSING}(?:,|;|,?\s*+\band\b){_NEXT}{_CLOSING}(?:[.,;:!?}}]|$|\n|\bor\b|\band\b)"
    r"|[^\n\w]*\\text\{\s*(?:or|and)\b"
)
_BESIDE = re.compile(r"[ \t]+(?P<letter>[A-Z])[ \t]*(?:[.,;!?]|$|\n)")

INSTEAD = re.compile(
    r"\s*+(?:(?:it|that)(?:['’]s|\s+is|\s+should\s+be|\s+must\s+be)\s+|i\s+meant?\s+|make\s+it\s+)?"
    rf"(?:option\s++|choice\s++)?{_OPENING}(?P<letter>(?-i:[A-Z]))(?=[\s]*(?:$|\n)|[.,;!)*_\]\"'])",
    re.IGNORECASE,
)


def is_stated(noun: str, before: str) -> bool:
    """Tell "the answer" from another's, a denied or a supposed one, and "option" from "the best
    option"; `before` are up to 80 characters, in lower case."""
    before = before.rpartition("\n")[2]
    if noun in ("option", "choice", "letter") and not _QUALIFIED.search(before):
        return False
    return not _ANOTHERS.search(before) and not _DENIED.search(before)


def speaks_of_an_answer(before: str) -> bool:
    """Whether the sentence so far has a noun, by whose rules what follows is read, or a "not"."""
    sentence = re.split(r"[.!?\n]", before)[-1]
    return bool(NOUN.search(sentence)) or bool(re.search(r"(?:\bnot|n['’]t|\bno)\W*$", sentence))


def begins_a_line(text: str, end: int) -> bool:
    """Whether the noun that ends at `end` is the heading or the label of its line."""
    line = text[max(0, end - 80) : end]
    noun = list(NOUN.finditer(line.lower()))
    start = noun[-1].start() if noun else 0
    if start and noun[-1][0] in ("choice", "option", "letter"):
        start = start - len("answer ")
    return _LINE_START.search(line[: max(0, start)]) is not None


def names_two(text: str, end: int, letters: Collection[str]) -> bool:
    """Whether a second option follows the letter that ends at `end`."""
    if _TWO.match(text, end):
        return True
    beside = _BESIDE.match(text, end)
    return beside is not None and beside["letter"] in letters and beside["letter"] != "I"
