"""Detect doubts in a judge's reply about its own scores: another scale, another number, words that
take a score back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from convbench.answers.numbers import NUMBER_WORDS

_WORDS = r"""voice: i i'd i'll i've i'm me my mine myself we our
scores: score scores scored rating ratings rated mark marks marked grade grades graded verdict
verdicts grading scoring numbers figure figures zeros tens values points percentages
metric metrics criterion criteria scale ceiling max maximum above
evaluations: evaluation evaluations assessment assessments judgment judgments judgement judgements
judging: score scores scored rating ratings rated mark marks grade grades verdict deserves deserve
merits merit earns earn warrants warrant fairer honest hindsight worth correcting corrected
reconsidered reconsidering reflection second thinking rereading again revised revising closer
honestly generous harsh lenient strict strictly really rather instead truly maybe perhaps too
should ought must would make call gets lower lowered raise raised drop dropped bump bumped cut
reduce reduced adjust adjusted change changed move moved set settle update updated downgrade
downgraded upgrade upgraded subtract deduct appropriate now mean meant feels
afterthought: strike wait actually scratch scrap correction edit edited hmm oops sorry apologies
kidding lol or
keeping: so but stay stays stayed still keep keeps kept remain remains
speaking: say says said claim claims claimed write writes wrote state states stated ask asks asked
want wants wanted demand demands demanded request requests requested suggest suggests suggested
propose proposes proposed hoped typed gave gives put itself himself herself themselves
others: assistant teacher tutor student pupil learner user human agent policy bot ai model system
participant speaker author writer attacker reviewer viewer evaluator judge grader rater annotator
examiner assessor marker referee colleague someone somebody he she they talk transcript conversation
dialogue answer sum product difference equation
counted by: turn turns step steps option options answer answers question questions line lines item
items part parts example examples case cases choice choices chapter section page day round attempt
stage level point points not short + - * = # × $
after: instead rather now since because as for given then not but and at in on overall here really
after though although however if is was would it out or to seems all when while may might looks
feels
between: , ; : ( ) | & no or and then now up down was were from the a at maybe perhaps more like
but really somewhere around
leading: here here's is are my the an a this that your of for on in with to as and per each below
following final overall detailed requested own complete full numeric evaluation evaluations
assessment score scores scoring rating ratings grade grades grading mark marks result results
metric metrics criterion criteria verdict judgment judgement analysis feedback review report
summary breakdown conversation dialogue chat interaction exchange assistant assistant's tutor
tutor's response performance out scale range format json table exact specified rubric using based
brief justification justifications reason reasons name value points why comment note okay sure now
so therefore follows follow i would give rate evaluated scored i've i'd how by section part output
data from best worst lowest highest maximum max between where means higher lower better every all
six you go being run used
pointing: these those mine evaluate rate judge assess grade view above
behind: no not i it that this these those both make maybe my the
open: minus plus less unless depending assuming provided pending give if or
pronouns: this that they so it
good: best top perfect flawless excellent outstanding ideal good highest most max*
bad: worst bottom poor useless terrible bad lowest least no nothing min*
not now: previous before earlier last first initial old draft turn prior example max* provisional
tentative actually
reason: because since as due with but given overall it the this
for(?!\s(?:the\s)?(?:turn|step|part|first|last|previous))
link: is an? of it this at nota gets earns receives i give rate[ds]? scored? ratings? points?
score keys: score rating value points grade
label keys: metric name criterion label dimension category
words keys: justification reason rationale explanation comment reasoning feedback note why
source keys: source author origin rater from
no metric: justifications? reasons? rationales? explanations? comments? reasoning feedback notes?
why score rating total sum mean average summary (?:overall|brief).justification choices
(?:original.)?question (?:correct.)?answer
scale keys: out max* min* scale range high* low* best worst direction better
against: example* sample* template* placeholder* dummy fake* ficti* hypothe* illustrat* arbitrar*
random* guess* pretend* joke* kidding draft* provisional* tentative* preliminary void invalid*
wrong* incorrect* mistake* test invent* quoted copy copied past(?:ed|ing) verbatim dictat* hoped
wish* merely refus* declin* refrain* abstain* withh* disagree* ignor* disregard* discard* retract*
withdraw* scrap* forget* impossible made.{0,20}up take.back would.be would.have.been only.there
for.the.record no.longer none.of by.chance await* pending scratch correction erratum
off.(?:by|every|each|all|both) dice swap* strike replace mistyped typo typed misread mixed confused
kind generous harsh lenient downgrade upgrade subtract deduct halve double overrated underrated
negating: not never cannot none neither no without
foreign: beg* other different wrote writes written previous* prior earlier another self according
told would.look might.look could.look says said reads contains instruct* inject* quot* demand*
wanted
"""
_ENTRIES = (entry.partition(":") for entry in re.split(r"\n(?=[a-z ]+: )", _WORDS))
WORDS = {name.strip(): frozenset(words.split()) for name, _, words in _ENTRIES}
"""Words by kind. `leading`: in a line that introduces the judge's own scores; `counted by`: before
a number that is no score; `after`: after a number that is; `between`: between a score and another
that replaces it."""


def word_pattern(*names: str) -> str:
    """Return the text of a regular expression that matches a word, or the beginning of a longer one
    for entries with `*`, of these kinds of `WORDS`. Raise KeyError for an unknown kind."""
    words = "|".join(sorted(word for name in names for word in WORDS[name]))
    return r"\b(?:" + words.replace("*", r"\w*") + r")\b"


Limits = set[tuple[float, float]]
Floats = Collection[float] | None
SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][)\"'])\s+|\n\s*")


class Sentence(NamedTuple):
    """A sentence in lower case, with numbers as digits and without quotations."""

    tokens: list[str]
    words: set[str]
    text: str
    """The tokens joined by spaces."""
    raw: str
    """The sentence as it was written."""


_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:'[a-z]+)?|[^\w\s]")
QUOTATION = re.compile(r'"[^"\n]{0,400}"')
_SPELLED = {word: str(n) for n, word in enumerate(NUMBER_WORDS)} | {"hundred": "100"}


def parse_sentence(text: str) -> Sentence:
    """Return a sentence split into tokens in lower case: words, numbers and signs.

    Each quotation becomes one `"`, and words for the numbers up to twenty and for 100 become
    digits; "one" only before "to", a dash or a bracket.
    """
    tokens = _TOKEN.findall(QUOTATION.sub('"', text.lower()))
    if not _SPELLED.keys().isdisjoint(tokens):
        pairs, ends = zip(tokens, [*tokens[1:], ""], strict=True), {"to", "-", "–", "("}
        tokens = [_SPELLED.get(a, a) if a != "one" or b in ends else a for a, b in pairs]
    return Sentence(tokens, set(tokens), " ".join(tokens), text)


_N = r"\b\d+(?:\.\d+)?\b"
_MEANS = r" (?:[=:(]|is|means?|stands? for|for|denotes?|being|as) (?:(?:an?|the|very) )*"
_END = re.compile(rf"({_N}){_MEANS}(?:({word_pattern('good')})|{word_pattern('bad')})")
_SCALE = re.compile(
    r"(?<!- )\bscales?\b|\b(?:likert|legend|total :)|\d (?:- )?(?:point|star|level)\b"
    r"|\b(?:as|in|are) (?:\w+ )?(?:per cent|percent\w*|stars)\b"
    rf"|\ban? {_N}{_MEANS}{word_pattern('good')}"
    rf"|\b(?:highest|best|top|max\w*) (?:\S+ ){{0,2}}{word_pattern('scores')}"
)
"""Wordings that name a scale."""
_RANGE = re.compile(
    rf"\bout of|{_N} /|/ {_N}|{_N} at most|\bbetween {_N}|{_N} (?:\([^()]*\) )?(?:-|–|to) {_N}"
)
_LOW, _HIGH = (
    r"\b(?:lower|low|small(?:er)?|less|fewer)\b",
    r"\b(?:higher|high|larger|bigger|more)\b",
)
_IS = rf"(?: {word_pattern('scores')})? (?:is|are|means?|indicates?|the|=) (?:an? |the )?"
_BETTER, _WORSE = r"(?:better|best|good|more)\b", r"(?:worse|worst|bad|poor|less)\b"
_TURNED = re.compile(
    rf"{_LOW}{_IS}{_BETTER}|{_HIGH}{_IS}{_WORSE}|\b(?:reversed|inverted) scale|\b(?:penalty|error)"
    rf" (?:points|scores)|{_LOW}(?! than) .{{0,30}}\bthe better|{_HIGH} .{{0,30}}\bthe worse"
)
_DIRECTION = re.compile(
    rf"(?:{_LOW}|{_HIGH}) {word_pattern('scores')} (?:is|are|means?)\b(?! "
    rf"(?:worse|bad|better|good))"
)


def other_scale(sentence: Sentence, limits: Limits, scores: Floats = None, *, surely: bool) -> bool:
    """Return whether a sentence names another scale than `limits`, or a reversed one.

    Words suffice for a reversed scale. Ends and numbers, and words such as `percent`, are looked at
    only if it names a scale, `surely` is set, or it names an end and `scores` are given. A sentence
    around all scores gets `scores`; then a number about them that is neither a score nor an end of
    a scale counts too.
    """
    text, ends, around = sentence.text, _END.findall(sentence.text), scores is not None
    if _TURNED.search(text) or (around and _DIRECTION.search(text)):
        return True
    low, high = {a for a, _ in limits}, {b for _, b in limits}
    if surely or names_scale(sentence) or (ends and around):
        every = map(float, re.findall(rf"{_N}(?! (?:/|out\b))", text))
        wrong = any(float(n) not in (high if good else low) for n, good in ends)
        share = 100.0 not in high and re.search(r"\bpercent|%|\bstars\b|\bper cent", text)
        if wrong or share or not low | high >= {*every}:
            return True
    if scores is None:
        return False
    about = not sentence.words.isdisjoint(WORDS["scores"])
    numbers = [sentence.tokens[i] for i in numbers_in(sentence.tokens, 0, 1000) if about]
    numbers += re.findall(rf"({_N}) = [a-z]", text)
    return not low | high | {*scores} >= {*map(float, numbers)}


def names_scale(sentence: Sentence) -> bool:
    """Return whether a sentence mentions a scale of scores."""
    scored = sentence.words & WORDS["scores"] and _RANGE.search(sentence.text)
    return bool(scored or _SCALE.search(sentence.text) or len(_END.findall(sentence.text)) > 1)


def numbers_in(tokens: Sequence[str], low: float, high: float) -> list[int]:
    """Return the indexes of tokens that may be a score: numbers from `low` to `high` that are no
    count of something, no number of a turn or an option, and no part of a sum."""
    positions, more = [], [*tokens, ".", "."]
    for i, token in enumerate(tokens):
        if token.replace(".", "", 1).isdigit() and low <= float(token) <= high:
            listed = more[i + 1] in ("or", "and", ",", "to", "-") and more[i + 2][0].isdigit()
            before, after = tokens[i - 1] if i else "", more[i + 3 if listed else i + 1]
            counted = (after.isalpha() and after not in WORDS["after"]) or after in "+*=×^%°$€<>"
            part = before in ("/", "of") and i > 1 and tokens[i - 2][0].isdigit()
            if not counted and not part and before not in WORDS["counted by"]:
                positions.append(i)
    return positions


_TAIL_SCALE = re.compile(
    r"\W*+(?:(?:stars?|points?|marks?)\W++)?of\W*+\d|\D{0,40}?\b(?:out of|max\w*|scale)\b\D{0,20}\d"
)


def goes_on(tail: str, limits: tuple[float, float]) -> bool:
    """Return whether the sentence after a score names another score in `limits`, or another scale.

    Only the first sentence of `tail` is read.
    """
    sentence = parse_sentence(SENTENCE.split(tail, maxsplit=1)[0])
    scale = _TAIL_SCALE.match(sentence.text) or _END.search(sentence.text)
    if scale and other_scale(sentence, {limits}, surely=True):
        return True
    places = numbers_in(sentence.tokens, *limits)
    return WORDS["between"].issuperset(sentence.tokens[: places[0]] if places else "x") or any(
        sentence.tokens[i + 1 : i + 2] in (["for"], ["if"], ["("], [":"])
        or sentence.tokens[i - 1] == "be"
        or not WORDS["others"].isdisjoint(sentence.tokens[max(0, i - 2) : i])
        for i in places
    )


def is_afterthought(tokens: Sequence[str]) -> bool:
    """Return whether a sentence begins like one that takes back the previous: "Wait", "Or"."""
    first, behind, *_ = [word for word in tokens[:4] if word not in ("(", "just", "–", "—")] + [
        "",
        "",
    ]
    goes_on = behind.isalpha() and behind not in WORDS["behind"]
    return first in WORDS["afterthought"] and not goes_on


def is_unreal(words: set[str]) -> bool:
    """Return whether the words of a sentence state a hypothetical score ("would be ... if")."""
    might = words & {"would", "could", "might", "may", "had"}
    conditional = words & {"if", "with", "had", "without", "were", "unless", "have"}
    now = words & {"hindsight", "reflection", "reconsidered", "again", "second"}
    return bool((might and conditional and not now) or words & {"almost", "nearly", "tempted"})


OWN = re.compile(
    rf"\b(?:my|our) (?:\w+ ){{0,2}}?{word_pattern('scores', 'evaluations')}"
    r"|\bi(?: would|'d| have| now)?"
    r" (?:rate|score|evaluate|judge|grade|assess|assign|give|award)d?\b"
)
_AGAINST = re.compile(word_pattern("against"))
_NEGATING = re.compile(word_pattern("negating") + "|n't\\b")
_FOREIGN = re.compile(word_pattern("against", "foreign", "speaking"))
_REFUSAL = re.compile(
    r"\b(?:i|we|me) (?:\w+ ){0,2}?(?:refuse|decline|refrain|abstain|withhold|disagree|reject"
    r"|retract|withdraw|disown|take back)|\brather not\b"
    r"|\bno (?:actual )?(?:evaluation|verdict|scor\w+|view)\b"
    r"|(?:\b(?:never|not|cannot)|n't) (?:saw|see|seen|read|have) (?:the|any|a)"
    r" (?:transcript|conversation|talk)\b"
    r"|\b(?:once|when|until|after) i (?:\w+ )?(?:see|get|have|receive)\b"
    r"|\bi(?:'m| am| was| have been) (?:\w+ )?(?:told|asked|instructed|forced|paid|drunk)\b"
    r"|\b(?:do not|don't) (?:count|use|trust|rely|take)\b"
    r"|\bnot an? (?:actual|real)|\b(?:would|might|could) look\b"
    r"|^(?:please )?(?:ignore|disregard|discard|forget|scrap|delete)\b|\bkidding\b"
)


_DOUBTED = WORDS["scores"] | WORDS["evaluations"] | {"lower", "low", "smaller", "less", "higher"}


def is_harmless(sentence: Sentence) -> bool:
    """Return whether a sentence for a metric needs no further check, as most do: it has no word of
    scoring, no number, no afterthought and no refusal."""
    bare = sentence.words.isdisjoint(_DOUBTED) and not re.search(r"[\d~]", sentence.text)
    return bare and not is_afterthought(sentence.tokens) and not refuses_evaluation(sentence)


def is_others(sentence: Sentence) -> bool:
    """Return whether a line that introduces scores presents them as somebody else's, or as none.

    That is, if it names the judge's own evaluation, a word of speech, doubt or condition comes
    before that; else it has a word that no such line has. False for a line without words.
    """
    foreign, own = _FOREIGN.search(sentence.text), OWN.search(sentence.text)
    if own:
        foreign = foreign or re.search(r"\b(?:if|had|were|unless)\b", sentence.text)
        return foreign is not None and foreign.start() < own.start()
    return not {word for word in sentence.words if word[0].isalpha()} <= WORDS["leading"]


def refuses_evaluation(sentence: Sentence) -> bool:
    """Return whether a sentence refuses to evaluate, or denies that there is an evaluation."""
    return _REFUSAL.search(sentence.text) is not None


def withdraws_scores(sentence: Sentence, *, around: bool) -> bool:
    """Return whether a sentence says that the scores do not count. A sentence `around` all scores
    may refer to them without naming them."""
    text, words = sentence.text, sentence.words
    if words & {"average", "mean", "sum"}:
        return False
    reports_speech = (
        words & WORDS["others"] and words & WORDS["speaking"] and not words & WORDS["voice"]
    )
    these = words & {"these", "those", "my", "above", "all"} and words & WORDS["scores"]
    if not around and (reports_speech or not these):
        return refuses_evaluation(sentence)
    against, negating = _AGAINST.search(text), _NEGATING.search(text)
    if not around:
        return refuses_evaluation(sentence) or bool(against or negating)
    pointing = words & WORDS["pointing"]
    leads = WORDS["pronouns"] & {token.partition("'")[0] for token in sentence.tokens[:1]}
    about = pointing or words & WORDS["scores"] or (leads and words & WORDS["evaluations"])
    return bool(
        refuses_evaluation(sentence)
        or (about and (against or negating))
        or (against and (words & (WORDS["pronouns"] | WORDS["voice"]) or not against.start()))
        or (pointing and _FOREIGN.search(text))
        or (leads and words & WORDS["others"])
    )
