"""Decide whether a reply asserts what it says at a position: as its own view, about this question.

The sentence around the position is read. Not asserted is what is asked, denied, conditional,
ascribed to somebody else or to a first thought, or quoted. Most rules say what is allowed, not what
is forbidden: a noun phrase is "the correct answer" by its words alone, so that "a tempting answer"
needs no entry of its own.
"""

from __future__ import annotations

import re

from convbench.answers.normalize import lower_case

REACH = 240
"""Characters that are read before and after a position."""

_BOUNDARY = re.compile(r"(?<!\bi\.e)(?<!\be\.g)[.!?…]++[)\"'*_`\]]*+(?=\s|$)|\n(?![a-z]{2})")
_MARKS = str.maketrans("", "", "*_`")
_BLANKS = re.compile(r"\s+")

_OWN_DETERMINERS = frozenset(["the", "my", "our", "this", "its", "that"])
_OTHERS_DETERMINERS = re.compile(
    r"another|other|every|each|any|no|some|one|your|his|her|their|these|those|most|many"
    r"|which|what|whose|either|neither|both"
)
_OF_THE_QUESTION = re.compile(r"(?:question|problem|quiz|item|exercise|puzzle|riddle|test)['’]?s?")
_ADJECTIVES = re.compile(
    r"correct|right|best|final|own|true|actual|proper|likely|probable|most|only|single"
    r"|appropriate|suitable|accurate|plausible|reasonable|logical|ultimate|definitive"
    r"|overall|revised|new|updated|corrected|amended|chosen|selected|short|simple|direct"
    r"|complete|full|unique|obvious|clear|better|good|precise|exact|closest|answer"
    r"|multiple-choice|letter|test|real|intended|expected|and|or|resulting|fitting"
    r"|sensible|likeliest|official"
)
_GOOD = frozenset(["correct", "right", "better", "good", "best"])
_JSON_KEY = re.compile(r"[{,]\s*[\"']$|\w\($")
_WORDS = re.compile(r"[\w'’-]+|[^\w\s]")

_SAY = (
    r"(?:sa(?:y|ys|id)|thinks?|thought|believe[sd]?|argue[sd]?|claim(?:s|ed)?|guess(?:es|ed)?"
    r"|assume[sd]?|insist(?:s|ed)?|maintain(?:s|ed)?|writes?|wrote|state[sd]?|answer(?:s|ed)"
    r"|repl(?:y|ies|ied)|report(?:s|ed)?|suppose[sd]?|expect(?:s|ed)?|imagine[sd]?|feels?|felt"
    r"|holds?|held|suggested|propose[sd]?|assert(?:s|ed)?|decide[sd]|concluded|tells?|told|swears?"
    r"|pick(?:s|ed)?|cho(?:se|oses?)|choose|selected|select|declare[sd]?|figured?|suspect(?:s|ed)?"
    r"|mark(?:s|ed)?|call(?:s|ed)?|took|prefer(?:s|red)?)"
)
_BELIEVED = re.compile(
    r"thought|believed|assumed|guessed|supposed|expected|suspected|figured|felt|took"
)
_AUX = (
    r"(?: (?:would|might|could|may|will|can|must|should|also|often|sometimes|usually|always|still"
    r"|now|then|just|simply|already|probably|really|do|does|did|have|has|had|first|initially"
    r"|originally|once|at first|strongly|firmly|therefore|thus|almost|nearly|mistakenly|wrongly"
    r"|wrote and|is|are|was|were|been|be|tempted to|inclined to)\b){0,4}+"
)
_SPEECH = re.compile(
    rf"(?<![\w’'])(?P<subject>[\w’']++),?(?P<aux>{_AUX}) (?P<verb>{_SAY})"
    r"(?: (?:me|us|you|him|her|them|it|down|to me|as))?(?: that)? ?[:,]? ?[\"']? ?$"
)
_SAYS = re.compile(rf"\b(?!i\b|we\b)\w+ {_SAY}\b")
_FIRST_PERSON = re.compile(
    r"(?:i|we|me|us)(?:['’](?:d|ll|ve|m|re))?|to|so|therefore|can|this|that|which|it|my|our|final|passage|text"
    r"|question|definition|evidence|rule|table|clues?|facts?|data"
)
_FIRST_THOUGHT = re.compile(
    r"\b(?:at first(?: (?:sight|glance|blush|look))?|at a (?:quick )?glance|naively"
    r"|on the (?:face|surface)(?: of it)?|superficially|initially|originally|intuitively"
    r"|previously|earlier|before) ?,? ?(?:i (?:said|thought|wrote) )?(?:that )?$"
    r"|\b(?:first|initial|original|earlier|previous|old|gut) (?:answer|thought|guess|instinct"
    r"|choice|impression|reaction|idea)\b[^.;]{0,20}$"
)
_ACCORDING = re.compile(
    r"\baccording to (?!(?:the |this |these |that |our |my |its )?(?:passage"
    r"|text|question|table|definition|rule|law|data|article|information|fact|formula|given|hint"
    r"|principle|theory|analysis|calculation|above|order|schema|description)s?\b)"
    r"[^,;:]{1,60}[,:]? ?$"
    r"|\bin (?!my\b|our\b)[\w'’ ]{1,40}?\b(?:view|opinion|eyes|mind|book|words|version) ?,? ?$"
    r"|\b(?:for|to) (?:him|her|them|some|others|many|most)\b[^,;:]{0,30}, ?$"
)

_CLAUSE = re.compile(
    r"[,;:—–(]| - |\b(?:but|so|and|yet|however|therefore|thus|hence|because|since|although|though"
    r"|then|instead)\b"
)
_NO_DOUBT = re.compile(
    r"\b(?:no|without|beyond|little) (?:a |any )?(?:doubt|question)\b|\bnot only\b"
    r"|\bno other\b|\bnot (?:hard|difficult) to\b"
)
_DENIES = re.compile(
    r"\b(?:not|never|no|nor|neither|hardly|cannot|nobody|none|doubts?|wrong(?:ly)?|mistake|mistaken"
    r"|error|false|untrue|incorrect|unlikely|impossible|den(?:y|ies)|unsure|uncertain|whether"
    r"|unclear|disagree|rejects?|against|avoid|excludes?|dismiss|rules? out)\b|n['’]t\b"
)

_SCOPE = re.compile(r"\b(?:so|therefore|thus|hence|but|however|consequently)\b|;")
_INVERTED = r"(?:had|were|should) (?:it|the|this|that|these|we|they|he|she|you|its|a|an|there)\b"
_CONDITION = re.compile(
    r"\b(?:if|unless|suppos(?:e|ing)|assum(?:e|ing)|imagine|imagining|pretend|otherwise|whether"
    r"|in case|provided|in (?:that|this|which|such a) case|depending)\b"
    rf"|(?:^|[,;(—–] ?|\b(?:and|or|but) ){_INVERTED}"
    r"|^\W*(?:for|with|in|of|on) an?\s[^,]{1,60},"
)
_ABOUT = re.compile(
    r"\W*(?:but |and )?(?:for|with|among|under|when|where|in) (?!(?:this|that|these|those|all|my"
    r"|our|me|the (?:question|reasons?|above|end|given|problem|case above)|conclusion|summary"
    r"|short|fact|other words|total|view|light|general|particular|sum|brief|each|multiple|such"
    r"|any case|order)\b)[^,;.]{2,60}?,? ?$"
)
_OWN_CONDITION = re.compile(
    r"\bif (?:i|we|one|you) (?:['’]?d )?(?:had|have|must|were|was|am|are|need|needed)"
    r"(?: (?:forced|pressed|asked|obliged))?(?: to)? (?:choose|pick|guess|decide|say|answer"
    r"|commit|select|bet|settle|name|give|put)\b|\bif (?:pressed|forced|i['’]m not mistaken)\b"
)
_PROCEDURE = re.compile(
    r"\bif (?:i|we|one)\b(?! (?:needed|wanted|were|was|had|asked|spoke|talked)\b)|\bif you (?:look"
    r"|consider|count|add|multiply|subtract|divide|read|check|compare|work|apply|put|take|go|follow"
    r"|plug)\b"
)
_CONDITION_AFTER = re.compile(
    rf"\b(?:if|unless|provided|assuming|in case)\b|(?:^|[,(—–] ?|\s){_INVERTED}"
    r"|\bfor an?\s[^,.]{0,40}\b(?:question|rock|case|version)"
)
_IF_NEXT = re.compile(
    r"\W*(?:(?:only|but only|just) )?(?:if|when|whenever|where) "
    r"(?!(?:i|we|my|our)\b)(?!you (?:look|ask)\b)"
)
_REASON = re.compile(r"\b(?:because|since|as|given)\b")
_HYPOTHESIS = re.compile(
    r"^\W*(?:but |now |and )?(?:suppose|imagine|assume|say|let['’]s (?:say|suppose|pretend|imagine)"
    r"|pretend|consider (?:instead|now)|what if)\b"
)
_TAG_QUESTION = re.compile(r",\s*(?:right|no|isn['’]t\s+it|correct|ok(?:ay)?|yes)\s*\?*$")
_QUOTED = re.compile(r"\"[^\"\n]{8,400}\"")


def sentence_start(text: str, at: int) -> int:
    """Return the index after the last sentence mark or line break before index `at`.

    If there is none in the 240 characters (`REACH`) before it, the index 240 before it, at least 0.
    A blank after the mark belongs to the sentence. A line break before two small letters is none.
    """
    start = max(0, at - REACH)
    for match in _BOUNDARY.finditer(text, start, at):
        start = match.end()
    return start


def sentence_end(text: str, at: int) -> int:
    """Return the index after the first sentence mark or line break from index `at` on.

    If there is none in the next 240 characters (`REACH`), the index 240 after it, at most the
    text's length.
    """
    match = _BOUNDARY.search(text, at, at + REACH)
    return match.end() if match else min(len(text), at + REACH)


def own_noun_phrase(before: str, noun: str, label: bool = False) -> int | None:
    """Return the index in `before`, which is lower case, where the noun phrase begins whose noun
    follows it; None unless it is "the answer", "my final answer", "the best option" and the like.

    A noun that is only sometimes an answer needs a word that says so ("the best option"), or must
    be the label of its line (`label`: a colon follows).
    """
    words = list(_WORDS.finditer(before[-80:]))
    offset, i = max(0, len(before) - 80), len(words) - 1
    seen: set[str] = set()
    while i >= 0 and _ADJECTIVES.fullmatch(words[i][0]):
        seen.add(words[i][0])
        i -= 1
    begin = offset + words[i + 1].start() if i + 1 < len(words) else len(before)
    word = words[i][0] if i >= 0 else ""
    mine = word in ("my", "our") and noun != "option" and noun != "letter"
    labelled = _JSON_KEY.search(before[:begin]) or not before[:begin].strip("{[\"' \n#>-")
    if labelled and label:
        return begin
    if noun not in ("answer", "ans") and not mine and not seen - {"and", "or", "most", "own"}:
        return None
    if word in _OWN_DETERMINERS:
        return offset + words[i].start()
    if word in ("a", "an"):
        return offset + words[i].start() if seen & _GOOD else None
    if _OTHERS_DETERMINERS.fullmatch(word):
        return None
    if word.endswith(("'s", "’s", "s'", "s’")):
        return begin if _OF_THE_QUESTION.fullmatch(word) else None
    return begin if not word[:1].isalnum() or not _in_a_phrase(words[: i + 1]) else None


def _in_a_phrase(words: list[re.Match[str]]) -> bool:
    """Return whether the last word describes what follows: "the popular", "a most tempting"."""
    for match in reversed(words[-4:-1]):
        word = match[0]
        if word in ("the", "my", "a", "an") or _OTHERS_DETERMINERS.fullmatch(word):
            return True
        if not word[0].isalnum():
            return False
    return False


def about_another(before: str) -> bool:
    """Return whether all of the text before an answer is a phrase that names another subject than
    the question: "For igneous rocks," before "the answer is".

    False for phrases such as "for this reason" or "in summary".
    """
    return _ABOUT.match(_normalize_words(before)) is not None


def own_aside(aside: str) -> bool:
    """Return whether a phrase between commas leaves the answer the speaker's own: ", in my view,".

    False if it ascribes the answer to somebody else, sets a condition, or has a word of denial.
    True if it is empty.
    """
    aside = _normalize_words(aside)
    return not (
        _ACCORDING.search(aside + ",")
        or _CONDITION.search(aside)
        or _DENIES.search(aside)
        or _SAYS.search(aside)
    )


def is_asserted(text: str, start: int, end: int, subjunctive: bool = False) -> bool:
    """Return whether the reply itself asserts the text from index `start` to `end`, about this
    question.

    False if its sentence is a question, or if it is denied, conditional, quoted, or ascribed to
    somebody else or to a first thought. `subjunctive` says that it is said with "would"; then a
    condition after it counts like one before it.
    """
    opening = sentence_start(text, start)
    before = _normalize_words(text[opening:start]).lstrip()
    after = _normalize_words(text[end : sentence_end(text, end)])
    is_question = after.rstrip(" \"')]").endswith("?") and not _TAG_QUESTION.search(after.rstrip())
    if is_question or _is_ascribed(before) or _is_denied(before):
        return False
    if _is_conditional(before, after, subjunctive) or _is_quoted(text, opening, start, end):
        return False
    if subjunctive or re.match(r"\W*(?:then|there|here)\b", before):
        previous = text[sentence_start(text, max(0, opening - 2)) : opening]
        return not _HYPOTHESIS.search(_normalize_words(previous))
    return True


def _is_ascribed(before: str) -> bool:
    """Return whether the text before ascribes the answer to somebody else or to a first thought."""
    if _FIRST_THOUGHT.search(before) or _ACCORDING.search(before):
        return True
    match = _SPEECH.search(before[-120:])
    if match is None:
        return False
    if _FIRST_PERSON.fullmatch(match["subject"]):
        past = _BELIEVED.fullmatch(match["verb"]) is not None and "have" not in match["aux"]
        return (
            past
            or re.search(r"\b(?:first|initially|originally|once|tempted)\b", match["aux"])
            is not None
        )
    return True


def has_denial(sentence: str) -> bool:
    """Return whether a sentence has a word of denial, such as "not", "never" or "wrong".

    "No doubt", "without question", "not only", "no other" and "not hard to" are none.
    """
    return _DENIES.search(_NO_DOUBT.sub(" ", _normalize_words(sentence))) is not None


def _normalize_words(text: str) -> str:
    """Return a text in lower case without emphasis, its words separated by single blanks."""
    return _BLANKS.sub(" ", lower_case(text).translate(_MARKS))


def _is_denied(before: str) -> bool:
    return has_denial(_CLAUSE.split(before)[-1])


def _is_conditional(before: str, after: str, subjunctive: bool) -> bool:
    scope = _SCOPE.split(before)[-1]
    conditional = _CONDITION.search(scope) and not _OWN_CONDITION.search(scope)
    if conditional and (subjunctive or not _PROCEDURE.search(scope)):
        return True
    if not subjunctive:
        return _IF_NEXT.match(after) is not None
    after = _REASON.split(after)[0]
    return bool(_CONDITION_AFTER.search(after)) and not _OWN_CONDITION.search(after)


def _is_quoted(text: str, opening: int, start: int, end: int) -> bool:
    """Return whether the text is in a quotation that words before it introduce, or in a quoted
    line."""
    line = text.rfind("\n", 0, start) + 1
    if text[line : line + 2] in ("> ", ">\t") and text[:line].strip():
        return True
    if '"' not in text[max(0, start - REACH) : start]:
        return False
    lead = text[max(0, start - REACH) : line].rstrip()
    if lead.endswith(":") and not text[line:start].strip(' \t*_"'):
        line -= len(text[:line]) - len(text[:line].rstrip()) + len(lead.rpartition("\n")[2])
    low = max(line, start - REACH)
    for match in _QUOTED.finditer(text, low, min(len(text), end + REACH)):
        if match.start() < start and end < match.end():
            introduced = re.search(r"\w", text[low : match.start()]) is not None
            return introduced and not re.search(
                r"\b(?:i|we)\s+(?:\w+\s+)?\w+\W*$|\bmy\b[^.]*$|\banswer\W*$",
                lower_case(text[low : match.start()]),
            )
    return False
