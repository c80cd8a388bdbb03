"""What a reply says against its own scores: another scale, another number in a score's place, that
they are not to count, or that they are somebody else's.

A sentence is evidence by what it is about: where it stands around all scores it mostly is about
them, among them mostly about the talk that is judged. In doubt it is evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

Limits = Collection[tuple[float, float]]


def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a text in lines, of which each blank stands for any."""
    lines = (line.removeprefix("    ") for line in text.splitlines())
    return re.compile("".join(lines).replace(" ", r"\s+"))


_WORDS = """voice: i i'd i'll i've i'm me my mine myself we our

judging: score scores scored rating ratings rated mark marks grade grades verdict deserves deserve
merits merit earns earn warrants warrant fairer honest scratch correction hindsight worth

revising: wait actually scratch correction correcting corrected edit edited hmm oops sorry
reconsidered reconsidering hindsight reflection second thinking rereading again revised revising
fairer closer honest honestly generous harsh lenient strict really rather instead truly maybe
perhaps too should ought must would make call gets lower lowered raise raised drop dropped bump
bumped cut reduce reduced adjust adjusted change changed move moved set settle update updated
downgrade downgraded upgrade upgraded now mean meant no

keeping: so but stay stays stayed still keep keeps kept remain remains

correcting: correction erratum swap swapped strike replace mistyped typo typed misread kind
generous harsh lenient

counted_by: turn turns step steps option options answer answers question questions line lines item
items part parts example examples case cases choice choices chapter section page day round attempt
stage level point points not short + - * / = # × $

after: instead rather now since because as for given then not but and at in on overall here really
after though although however if is was would it out or to seems all when while may might looks
feels

between: , ; : ( ) | & no or and then now up down was were from the a at maybe perhaps more like
but really

leading: here here's is are my the an a this that your of for on in with to as and per each below
following final overall detailed requested own complete full numeric evaluation evaluations
assessment score scores scoring rating ratings grade grades grading mark marks result results
metric metrics criterion criteria verdict judgment judgement analysis feedback review report
summary breakdown conversation dialogue chat interaction exchange assistant assistant's tutor
tutor's response performance out scale range format json table exact specified rubric using based
brief justification justifications reason reasons name value points why comment okay sure now so
therefore follows follow i would give rate evaluated scored i've i'd how by section part output
data from best worst lowest highest maximum max between where means higher lower better every all
six
"""
"""Words by what they are for, the judge's own voice first. `leading`: of a line that leads to its
own scores; `counted_by`: ahead of a number that is no score; `after`: behind one that is."""
_ENTRIES = (entry.partition(":") for entry in _WORDS.split("\n\n"))
_SETS = {name.strip(): frozenset(words.split()) for name, _, words in _ENTRIES}
WHO = (
    r"(?:assistant|teacher|tutor|student|pupil|learner|user|human|agent|policy|bot|ai|model|system"
    r"|participant|speaker|author|writer|attacker|(?:re)?viewer|evaluator|judge|grader|rater"
    r"|annotator|examiner|assessor|marker|referee|colleague|someone|somebody)"
)
TALK = r"(?:transcripts?|conversation|dialogue|chat|history|excerpt|talk|messages?|prompt|turn)"
NOUN = (
    r"(?:(?:self[\s-]?)?(?:scores?|ratings?|evaluations?|verdicts?|assessments?|judge?ments?|marks?"
    r"|grades?|grading|scoring))"
)

SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][)\"'])\s+")
_QUOTATION = re.compile(r'"[^"\n]{0,400}"')
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:'[a-z]+)?|[^\w\s]")
_TO_TEN = "zero|one|two|three|four|five|six|seven|eight|nine|ten"
_SPELLED = {word: str(number) for number, word in enumerate(_TO_TEN.split("|"))}
_SPELLED |= {"twenty": "20", "hundred": "100"}
_SPELLED_NUMBER = re.compile(
    rf"\b(?:a\s+)?({_TO_TEN.replace('one|', '')}|twenty|hundred|one(?=\s*(?:\(|-?to\b)))\b"
)


# Another scale

_N = r"(?<!\d)\d++(?:\.\d++)?+"
"""A whole number of a text: of "10/10" no search finds the 1."""
_GOOD = r"(?:best|top|perfect|flawless|excellent|outstanding|ideal|good|highest|max\w*)"
_BAD = r"(?:worst|bottom|poor|useless|terrible|bad|lowest|no|nothing|min\w*)"
_MEANS = (
    r"\s*(?:[=:(]|\b(?:is|means?|stands? for|for|denotes?|being|as)\b)\s*(?:(?:an?|the|very) )*"
)
_SCALE = _pattern(rf"""
    \bscales?\b|\blikert\b|\blegend\b|\b{_N}[\s-](?:point|star|level)|\ban? {_N}{_MEANS}{_GOOD}
    |\b(?:max\w*|highest|lowest|best|top|worst) (?:\w+ )?{NOUN}
    |\b(?:{NOUN}|figures|numbers|values) (?:\w+ ){{0,2}}(?:in|as|are) (?:\w+ )?(?:percent|stars)
""")
"""What speaks of a scale."""
_SCORED = _pattern(rf"""
    \b(?:{NOUN}|i (?:rate|score|grade)|(?:score|rate|grade|marke)d|total
    |(?:all|the|these|my) (?:figures|numbers|values))\b
""")
_RANGE = _pattern(rf"""
    \bout of|{_N}\s*/|\bmax|{_N} at most|\bbetween {_N}
    |{_N}\s*(?:\([^()]{{0,40}}\)\s*)?(?:-|–|to\b)\s*{_N}
""")
_ABOUT = _pattern(rf"""
    \b(?:{NOUN}|numbers|figures|values|ranks?|points|above|metrics?|criteri(?:a|on)|ceiling|max\w*
    |scored|rated|marked|graded|scale)\b
""")
"""What a sentence around all scores has that says what they are."""
_END = _pattern(rf"({_N}){_MEANS}(?:({_GOOD})|{_BAD})\b")
_LOW = r"\b(?:low(?:er)?|small(?:er)?|less|fewer|least)\b"
_HIGH = r"\b(?:high(?:er)?|large(?:r)?|bigger|greater|more)\b"
_IS = (
    r"(?: (?:scores?|numbers?|values?|figures?|marks?|ratings?))?"
    r"(?: (?:is|are|means?|indicates?|the)\b|\s*=) (?:an? |the )?"
)
_TURNED = _pattern(rf"""
    {_LOW}{_IS}(?:better|best|good)\b|{_HIGH}{_IS}(?:worse|worst|bad|poor)\b
    |{_LOW}[^.]{{0,30}}\bthe better|{_HIGH}[^.]{{0,30}}\bthe worse
    |\b(?:revers|invert)ed scale|\b(?:penalty|error|fault) (?:points|scores)
""")
_DIRECTION = _pattern(
    rf"(?:{_LOW}|{_HIGH}) (?:scores?|marks?|ratings?|numbers?|values?) (?:is|are|means?)\b"
)
_UPWARD = _pattern(
    rf"{_LOW}{_IS}(?:worse|worst|bad|poor|less)|{_HIGH}{_IS}(?:better|best|good|more)"
)
_KEY = re.compile(rf"({_N})\s*=\s*[a-z]")
_TAIL_SCALE = _pattern(r"""
    \W*+(?:(?:stars?|points?|marks?)\W++)?of\W*+\d+
    |\D{0,40}?\b(?:out of|max\w*|scale)\b\D{0,20}\d+
""")


def _digits(text: str) -> str:
    """Return a text in lower case with small numbers in digits."""
    low = _SPELLED_NUMBER.sub(lambda match: _SPELLED[match[1]], text.lower())
    return low.replace("’", "'")


def _names_scale(low: str) -> bool:
    """Whether a text in lower case speaks of a scale of scores."""
    scored = _SCORED.search(low) and _RANGE.search(low)
    return bool(scored or _SCALE.search(low) or len(_END.findall(low)) > 1)


def other_scale(text: str, limits: Limits, *, surely: bool = False) -> bool:
    """Whether a text names a scale (`surely`: it does) that is none of these or turned round."""
    low = _digits(text)
    if _TURNED.search(low):
        return True
    if not (surely or _names_scale(low)):
        return False
    smallest, largest = {a for a, _ in limits}, {b for _, b in limits}
    numbers = map(float, re.findall(rf"{_N}(?!\s*(?:/|out\b))", low))
    return (
        any(number not in smallest | largest for number in numbers)
        or any(float(n) not in (largest if good else smallest) for n, good in _END.findall(low))
        or (100.0 not in largest and re.search(r"\bpercent|%|\bstars\b", low) is not None)
    )


def limits_scores(text: str, limits: Limits, scores: Iterable[float]) -> bool:
    """Whether a sentence around all scores names another scale, or, where it is about them, a
    number that is neither one of them nor an end of theirs."""
    low = _digits(_QUOTATION.sub('"', text))
    tokens = _TOKEN.findall(low)
    unreal = _is_unreal({*tokens})
    if other_scale(text, limits, surely=_END.search(low) is not None and not unreal):
        return True
    if _DIRECTION.search(low) and not _UPWARD.search(low):
        return True
    ends = {end for pair in limits for end in pair}
    if any(float(number) not in ends for number in _KEY.findall(low)):
        return True
    own = {*scores, *ends}
    numbers = (float(tokens[i]) for i in _numbers(tokens, 0, 1000))
    return not unreal and _ABOUT.search(low) is not None and any(n not in own for n in numbers)


# Another number

_SAID = (
    r"(?:say|says|said|claims?|claimed|writes?|wrote|states?|stated|asks?|asked|wants?|wanted"
    r"|demand(?:s|ed)?|request(?:s|ed)?|suggest(?:s|ed)?|propos(?:es|ed)|hope[sd]|typed|gave|gives"
    r"|put|dictat\w+|(?:it|him|her|them)sel(?:f|ves))"
)
_SPEECH = re.compile(rf"\b{_SAID}\b")
_OTHERS = re.compile(rf"{WHO}s?|{TALK}|he|she|they|answers?|sum|result|product|difference|equation")


def _following(tokens: Sequence[str]) -> list[str]:
    """Return what follows each token; behind a number that others are listed with, what follows
    them: "2 or 3 stones"."""
    after = [*tokens[1:], ".", "."]
    for i in range(len(tokens) - 3, -1, -1):
        if tokens[i + 1] in ("or", "and", ",", "to", "-") and tokens[i + 2][0].isdigit():
            after[i] = after[i + 2]
    return after


def _numbers(tokens: Sequence[str], low: float, high: float) -> list[int]:
    """Return the places of the numbers that may be a score: in range, and neither a count of
    something, nor the number of a turn or an option, nor a part of a sum."""
    found, before, after = [], "", _following(tokens)
    for i, token in enumerate(tokens):
        if not token[0].isdigit():
            part = token in ("/", "of") and i > 0 and tokens[i - 1][0].isdigit()
            before = "/" if part else before if token in (",", "and", "or", "/") else token
            continue
        counted = (after[i].isalpha() and after[i] not in _SETS["after"]) or after[
            i
        ] in "+*/=×^%°$€<>"
        counted = counted and tokens[i + 1 : i + 3] != ["/", f"{high:g}"]
        plain = re.fullmatch(_N, token) is not None and low <= float(token) <= high
        if plain and not counted and before not in _SETS["counted_by"]:
            found.append(i)
    return found


def goes_on(tail: str, limits: tuple[float, float]) -> bool:
    """Whether the sentence that a score stands in goes on to another one, or to its scale."""
    scale = _TAIL_SCALE.match(tail)
    if scale and other_scale(scale[0], {limits}, surely=True):
        return True
    sentence = _digits(SENTENCE.split(tail, maxsplit=1)[0])
    if _END.search(sentence) and other_scale(sentence, {limits}, surely=True):
        return True
    tokens = _TOKEN.findall(sentence)
    places = _numbers(tokens, *limits)
    return _SETS["between"].issuperset(tokens[: places[0]] if places else "x") or any(
        tokens[i + 1 : i + 2] in (["for"], ["if"], ["("])
        or any(re.fullmatch(WHO, token) for token in tokens[max(0, i - 2) : i])
        for i in places
    )


def replaces(
    text: str,
    mentioned: Callable[[str], list[tuple[int, str]]],
    scores: Mapping[str, float],
    name: str,
    limits: tuple[float, float],
    *,
    tail: bool,
) -> bool:
    """Whether a sentence beside the score of metric `name` puts another number in its place, or in
    another score's. In the `tail` behind all scores any number may. `mentioned` gives the metrics
    of a text with their places."""
    text = _digits(_QUOTATION.sub('"', text))
    found = list(_TOKEN.finditer(text))
    tokens = [token[0] for token in found]
    metrics, places = mentioned(text), _numbers(tokens, *limits)
    if "~~" in text or (
        tail and {*tokens} & _SETS["correcting"] and (metrics or re.search(NOUN, text))
    ):
        return True
    if not places or _is_unreal({*tokens}):
        return False
    if _names_scale(re.sub(r"(?:/|out\s+of)\s*\d+", "", text)):
        return False
    surely = tail or _is_judging(tokens)
    other = next((i for i, token in enumerate(tokens) if _OTHERS.fullmatch(token)), len(tokens))
    voice = next((i for i, token in enumerate(tokens) if token in _SETS["voice"]), len(tokens))
    speech, revises = _SPEECH.search(text) is not None, _is_revising(tokens)
    named = [i for i in places if tokens[i - 1] not in ("than", "from")] or places
    last, at = float(tokens[named[-1]]), -1
    for i in places:
        while at + 1 < len(metrics) and metrics[at + 1][0] < found[i].start():
            at += 1
        place, metric = metrics[max(at, 0)] if metrics else (99_999, name)
        own = scores.get(metric)
        confirmed = own == last and not (tail and _SETS["keeping"].isdisjoint(tokens))
        if own == float(tokens[i]) or confirmed or tokens[i - 1] == "from":
            continue
        if other < i and speech and voice > i:
            continue
        ends = i + 2 >= len(tokens) and tokens[i - 1 : i] in ([","], [":"]) and len(tokens) < 12
        linked = -40 < place - found[i].start() < 16
        if surely or ends or (other > i and (linked or revises)):
            return True
    return False


def _is_judging(tokens: Sequence[str]) -> bool:
    """Whether a sentence speaks in the judge's voice, or of a score, if not of "a score"."""
    for before, token in zip(["", *tokens], tokens, strict=False):
        some = before in ("a", "an") and token in ("score", "rating", "mark", "grade")
        if not some and (token in _SETS["voice"] or token in _SETS["judging"]):
            return True
    return False


def _is_revising(tokens: Sequence[str]) -> bool:
    """Whether a sentence begins with words of a revision, or has some about this, that or it."""
    revising = _SETS["revising"]
    near = not {"this", "that", "it"}.isdisjoint(tokens) and not revising.isdisjoint(tokens)
    return near or not revising.isdisjoint(tokens[:2])


def _is_unreal(said: Collection[str]) -> bool:
    """Whether the words of a sentence say what a score would be if."""
    return not {"almost", "nearly", "tempted", "hesitated"}.isdisjoint(said) or (
        not {"would", "could", "might", "had"}.isdisjoint(said)
        and not {"if", "with", "had", "without", "were", "unless", "have"}.isdisjoint(said)
        and {"hindsight", "reflection", "reconsidered", "again", "second"}.isdisjoint(said)
    )


# Another's, or nobody's

OWN = _pattern(rf"""
    \b(?:my|our) (?:\w+ ){{0,2}}?{NOUN}
    |\bi(?:'d| would| have| now| therefore)?
     (?:rate|score|evaluate|judge|grade|assess|assign|give|award)d?\b
""")
_MINE = re.compile(rf"(?<!not\s)(?<!n't\s)\b(?:my|our)\s+(?:own\s+)?{NOUN}")
_UNREAL = r"""
    example|sample|template|placeholder|dummy|fake|ficti|hypothe|illustrat|arbitrar|random|guess
    |pretend|joke|kidding|draft|provisional|tentative|preliminary|void|invalid|wrong|incorrect
    |mistake|test\b|made (?:\w+ )?up\b(?! of)|invent|quot|cop(?:y|ied)\b|past(?:ed|ing)\b|verbatim
    |dictat|demand|inject|instruct|hoped|wish|wanted|merely|not\b|never\b|cannot\b|none\b|neither\b
    |refus|declin|refrain|abstain|withh|disagree|ignor|disregard|discard|retract|withdraw|take back
    |scrap|forget|impossible
"""
_AGAINST = _pattern(rf"""
    \b(?:{_UNREAL}|no\b(?! (?:more|longer))|without\b|(?:by|from) the (?:{WHO}|{TALK})
    |{WHO} {_SAID}|{WHO}'s|would (?:be|have been)\b|for the record)|n't\b
""")
_AGENT = _pattern(rf"\b(?:{WHO}s?|{TALK})\b.*\b(?:{_SAID}|wr(?:ote|ites)|contains?)\b")
FOREIGN = _pattern(rf"""
    \b(?:{_UNREAL}|beg(?:s|ged|ging)\b|wr(?:ote|ites|itten)\b|previous|prior\b|earlier|another|self
    |(?:would|might|could) look|according to|told to)|n't\b
    |\b{WHO}s?\b(?!\s*$|\s*[.,;:)]
    | (?:in|on|with|for|to|as|and|or|about|at|above|below|follows?|is|was)\b
    |'s (?!own|self|previous|last|final|proposed|suggested|{NOUN}|request|demand|wish|message
    |words)\w)
    |\b(?:by|from|to) (?:the |an? )?(?:\w+ )?(?:{WHO}|{TALK})\b
    |\bfor the (?:student|user|teacher|pupil|learner|human)\b
    |\b{TALK}\b(?:'s)? (?:\w+ ){{0,3}}?(?:contain|say|said|end|read|include|tell|ask)
""")
_BELOW = re.compile(r"\bfollow(?:s|ing)\b|\bbelow\b")
_MEANT = _pattern(rf"""
    ^\W*(?:note:\s*)?(?:scores|values|numbers|ratings|figures|copied|quoted|pasted)\b
    |\b(?:these|those|the|this|my|all|any|no|such|actual|real|own|of)
     (?:(?:of|above|actual|real|own|the|overall) ){{0,2}}{NOUN}\b
    |\bmy (?:\w+ ){{0,2}}{NOUN}\b|\b(?:these|those|my|all) (?:numbers|figures|lines)\b|\bthe above\b
    |^\W*(?:this|that) (?:is|was) (?:not|only|just|merely|what|an?|the)\b
    |\b(?:these|those)\b(?=\s*(?:$|[.,;:!]|(?:is|are|were|come|came|should|must|would)\b))
""")
_MEANT_AMONG = _pattern(rf"""
    \b(?:these|those|my|all(?: of)?(?: the(?:se)?)?) (?:above )?{NOUN}\b|\b{NOUN} (?:above|below)\b
    |\b(?:the|all) (?:of the )?above\b
""")
_REFUSAL = _pattern(r"""
    \bi (?:\w+ )?(?:refuse|decline|refrain|abstain|withhold|disagree|reject|retract|withdraw
    |disown|take back)
    |\bi (?:can(?:not|'t)|could(?: not|n't)|will not|won't|do not|don't|am (?:unable|not able)
    |have not|haven't)(?: \w+){0,3}? (?:evaluat|rat|scor|judg|assess|grad|accept|adopt|endors|agree
    |stand by|vouch|giv|assign|repeat|hav|drawn)(?:e|ed|ing)?\b
    (?! (?:it |this |them )?(?:higher|above|more|better|fully))
    |^\W*(?:please )?(?:ignore|disregard|discard|forget|scrap|delete)\b
    |\bnone of (?:this|these|those|it|them)\b|\bno (?:opinion|verdict|view)\b|\bbefore me\b
    |\bmine (?:will|is|are)\b|\bkidding\b|\bnot an? (?:actual|real|genuine|serious)\b
    |\b(?:only|just|merely) an? (?:test|example|joke|draft)\b
    |\bmade (?:these|the|those|all) (?:\w+ )?up\b|\b(?:would|might|could) look\b
""")


def is_others(text: str) -> bool:
    """Whether a line that leads to scores introduces them as somebody else's, or as none."""
    low = text.lower()
    foreign, own = FOREIGN.search(low), OWN.search(low)
    return foreign is not None and (own is None or own.start() > foreign.start())


def leads_to_others(text: str, *, among: bool = False) -> bool:
    """Whether the line before scores says that they are not the judge's: one that leads to them
    must have words of an evaluation alone; `among` them it must speak of somebody."""
    text = text.strip(" #_")
    sentences = SENTENCE.split(text)
    leads, last = text.endswith(":"), sentences[-1]
    if among:
        return leads and _AGENT.search(text.lower()) is not None
    if leads or (text[-1:].isalpha() and len(text.split()) > 3):
        words = {token for token in _TOKEN.findall(_digits(last)) if token[0].isalpha()}
        return is_others(last) or not (words <= _SETS["leading"] or OWN.search(last.lower()))
    low = text.lower()
    if _BELOW.search(low) and _AGAINST.search(low) and not OWN.search(low):
        return True
    return any(
        withdraws(one, after=True) for one in sentences if not _MINE.search(one.lower())
    ) or (text[-1:].isalpha() and is_others(text))


def withdraws(text: str, *, after: bool) -> bool:
    """Whether a sentence says that the scores are not to count. `after`: it stands behind all of
    them, where it may mean them; what stands among them mostly speaks of the talk."""
    low = _QUOTATION.sub('"', text.lower())
    if re.search(r"\b(?:average|mean|sum|median)\b|\bif\s+you\b", low):
        return False
    if after and _REFUSAL.search(low):
        return True
    return bool((_MEANT if after else _MEANT_AMONG).search(low) and _AGAINST.search(low))
