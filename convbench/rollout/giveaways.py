"""Detect texts that give a question's answer away.

A text does if

- a sentence names the gold option and no other, and says more of it than a plain fact: it is what
  the sentence comes to, or stands with words of the question, praise, advice, a conclusion, or
  next to a confirmation;
- a turn opens by confirming whatever was proposed, or advises to keep it;
- all other options are ruled out, or a question takes the answer for granted;
- first letters, a count of letters or a picture sign leave the gold option only.

An option is named by its letter, its text or its position in the list (`option_names`). What is
supposed, denied, or somebody else's view gives nothing away, and neither does a bare "yes" or
"correct": `talk` reads what these confirm. Paraphrases are not detected.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator

from convbench.answers.disguises import disguise_readings, only_letters
from convbench.answers.final import final_answer
from convbench.answers.normalize import normalize_text
from convbench.answers.options import option_matcher
from convbench.answers.statements import find_statements
from convbench.rollout.option_names import (
    GOLD,
    GOLD_BY_LETTER,
    OTHER,
    SIGN,
    labels_in,
    mark_options,
    number_words,
    radio_letters,
    sign_options,
)
from convbench.schema import Example

MOST_CHARACTERS = 20_000
"""Characters of a turn that are read; no teacher writes as many."""
SHORTEST_GOLD = 6
"""Shortest gold option text, in letters, that is searched for in disguises; shorter ones occur by
chance."""

_SENTENCES = re.compile(r"[^.!?\n]++(?:\.(?=\S)[^.!?\n]++)*+[.!?]*+")
_QUESTION_BEHIND = re.compile(
    r",\s*(?:(?:but|and|so|now|then)\s+)?(?=(?:can|could|do|does|did|what|why|how|would|will|which"
    r"|where|when|who|don't|isn't|wouldn't|aren't|right|correct|yes|no|agreed)\b[^,.]*\?)"
)
"""Where a question follows a statement in its sentence: "it is marble, don't you think?"."""
_ASKS = re.compile(
    r"^[^\w◆◈◇]*(?:(?:and|so|now|but|then) )?(?:how|what(?! an?\b)|which|why|who)\b", re.IGNORECASE
)
"""How a question begins that has no question mark."""
IN_YOUR_PLACE = re.compile(
    r"\bif\s+(?:i\s+were\s+(?:you|in\s+your\s+\w+)|(?:it|that|this)\s+were\s+(?:me|mine|my\s+\w+"
    r"|up\s+to\s+me))"
    r"|\bin\s+your\s+(?:place|shoes|position)\b"
    r"|\bif i were \w+ing\b[^,]{0,40},"
    r"|\bif (?:the|your|you're|time|it helps|in doubt|stuck|unsure|that helps)\b[^,]{0,30},"
    r"|\b(?:no|none) other than\b|\bno (?:doubt|need)\b|\bas you (?:\w+ )?s(?:ay|aid)\b"
    r"|\bif (?:you (?:please|like|ask me)|i may)\b"
    r"|\bif (?:this|it) were an? [^,]{0,30},|\bnothing but\b",
    re.IGNORECASE,
)
"""Words of doubt and denial that neither doubt nor deny."""
_PRETENDED = re.compile(
    r"\b(?:i|we|you)\b[^.;?!]{0,30}?(?:not|n't|never|hardly)\b[^.;?!]{0,25}?"
    r"\b(?:say|tell|reveal|mention|admit|give away|let on|let slip|disclose|hear|confess"
    r"|whisper)(?:ing)?\b"
    r"(?! (?:\w+ )?(?:whether|if|which)\b)"
    r"|\b(?:far be it|unfair|naughty|officially|unofficially|slip\w*|blurt\w*)\b",
    re.IGNORECASE,
)
"""Words that say something by claiming not to: "I shouldn't tell you that it is marble"."""
_SAY = (
    r"(?:think\w*|thought|sa(?:y|ys|id|ying)|believe\w*|cho(?:se|oses|osing|sen)|pick(?:s|ed|ing)"
    r"|went (?:for|with)|mean|meant|propose\w*|claim\w*|reckon\w*|state\w*|suggest\w*|wrote|write"
    r"|answer\w*|named|lean\w*|guess\w*|vote\w*|swear\w*|insist\w*|call\w*|mix\w*)"
)
_UNSAID = re.compile(
    r"\b(?:not|never|whether|if|unless|might|may|perhaps|maybe|suppose|supposing|imagine|pretend"
    r"|cannot|could|hardly|without|neither|nor|no|instead of|rather than|such as|like"
    r"|for example)\b|n't\b"
    r"|\b(?:you|they|he|she|who|some|many|most|others|people|students|learners|sister|brother|dad"
    r"|mum|friend\w*|somebody|someone|everyone|everybody|classmates?)(?:'re|'ve| are| have)?"
    rf" (?:\w+ )?{_SAY}\b|\b(?:they|who|some|many|most|others|people|students|learners)"
    r" (?:\w+ )?(?:pick|choose|go for|take|write)\b"
    r"|\byour (?:\w+ )?(?:suggestion|proposal|answer|guess|choice|idea)(?:'s| is| was|:)"
    r"(?! (?:right|correct|indeed))"
    rf"|{GOLD} (?:says?|states?|reads?|mentions?|speaks?|talks?|claims?)\b",
    re.IGNORECASE,
)
"""Words of a sentence whose statement is denied, supposed, or somebody else's view."""
_PARTS = re.compile(
    r"[;:—–]|, (?:and|but|so)\b(?= \w)|\bbut\b|\band (?=\w+ing\b|leave\b|not\b|we\b)"
)
_NUMERIC_PARTS = re.compile(r"[;:—–]|, |\b(?:and|but|so)\b")
_CHOOSE = (
    r"(?:choos\w+|pick|select|go (?:with|for)|put|write|mark|answer|circle|tick|opt|settle|say"
    r"|enter|submit|note|vote|bet|lean|commit|try|favou?r|prefer|take|use|trust|keep|recommend"
    r"|suggest)"
)
_CUES = re.compile(
    r"\b(?:right|correct|proper|true|best|ideal|accurate|valid|fitting|perfect|real|actual|only"
    r"|expected|required|intended|answer|solution|option|choice|pick|winner|response|result|key|one"
    r"|thing|candidate|bravo|spot on|bang on|clever|well done|congratulations|good|great"
    r"|excellent|brilliant|hats off|reward\w*|holds? up|deserv\w*|earn\w*|applause|proud"
    r"|smart|sharp|splendid|superb|stands?|safe|therefore|thus|hence|so|together|total|sum|finally"
    r"|conclusion|must|root|product|difference|quotient|gets?|obtain|left|remains?|obviously|clearly"
    rf"|of course|exactly|precisely|indeed|affirmative)\b|{GOLD} (?:it (?:is|was|has to)\b|"
    rf"(?:is|was) what (?:[\w']+ ){{0,4}}?(?:need|want|get|look|seek|ask|after))|="
    rf"|\b{_CHOOSE}(?: [\w']+){{0,3}} ?{GOLD}",
    re.IGNORECASE,
)
"""Praise, verdicts and conclusions, which a plain fact about an option does not have."""
_BUT = re.compile(rf"\b(?:but|while|whereas|yet|however)\b[^{OTHER}]*{GOLD}", re.IGNORECASE)
_RESULT = re.compile(
    rf"\d[^.;]{{0,60}}?\b(?:gives?|makes?|is|equals|leaves|get|comes to)"
    rf"(?: [\w']+){{0,2}} {GOLD}(?=\W|$)",
    re.IGNORECASE,
)
"""A number that is worked out."""
_LISTED = re.compile(
    rf"{OTHER}(?:,? (?:and|or)|,) {GOLD}|{GOLD}(?:,? (?:and|or)|,) {OTHER}", re.IGNORECASE
)
_PREDICATE = re.compile(
    r"\b(?!(?:so|and|but|now|then|when|while|as|because|since|yes|no|ok|okay|though|although|ah|oh"
    rf"|hm+|well)\b)\w[\w']* {GOLD}",
    re.IGNORECASE,
)
"""The gold option is what the words before it come to, not their subject."""
_CONFIRMS = re.compile(
    r"\b(?:spot[\s-]on|bingo|jackpot|bull's[\s-]?eye|nailed (?:it|that)|i agree"
    r"|i (?:can|do) confirm|well (?:spotted|reasoned|guessed|chosen|picked|done)"
    r"|you(?:'ve| have)? (?:\w+ )?(?:got|found|cracked|solved|hit|guessed|nailed|figured"
    r"|worked)\b(?: (?:it|that|out|right))+"
    r"|you(?:'re| are| were) (?:\w+ )?(?:right|correct|spot on)"
    r"|(?:that|this|it)(?:'s| is) (?:\w+ )?(?:right|correct|it|exactly)\b"
    r"|(?:good|great|nice|excellent|right|correct|perfect|wise|fine|lovely|superb|clever|brilliant)"
    r" (?:choice|pick|answer|guess|call|catch|job|work|eye|thinking|one|instinct|hunch|intuition)"
    r"|(?:your|the) (?:\w+ )?(?:answer|choice|guess|pick|hunch|instinct|intuition|option"
    r"|conclusion)\b(?: \w+){0,3}? (?:is|was|looks|were)(?: \w+)? "
    r"(?:right|correct|perfect|accurate|valid|true|good))"
    r"|^\W*(?:\w+[,!] ){0,2}(?:yes|yep|yeah|yup|right|correct|exactly|precisely|absolutely"
    r"|perfect|true|great|excellent|brilliant|bravo|congratulations|indeed|lovely|super|wonderful"
    r"|quite so)\b(?=\s*[,.!:;—–-])"
    r"|^\W*(?:great|good|excellent|brilliant|wonderful|lovely|nice|superb|fantastic|impressive)"
    r"(?: [\w']+){1,2}!",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"(?:^\W*|[,:;—–-] ?|\b(?:is|was|with|of|as|it's|that's|on|about|say|for|by|chose|picked"
    r"|choosing|picking|spotted|spotting|naming|named|to|identif\w+|recogni\w+) )"
    rf"{GOLD}(?=\W|$)(?! \w+s\b)",
    re.IGNORECASE,
)
"""The gold option without any statement about it: what an adjacent confirmation confirms."""
_GRANTED = re.compile(
    r"\bwhy (?:it |the \w+ )?(?:is|are|was|were|must|does|has|had)(?: be)? (?!you\b)"
    rf"(?:[\w']+ ){{0,3}}?{GOLD}"
    r"|\b(?:since|because|given that|now that|knowing that|as|obvious|clear|plain|evident|agree"
    rf"|see|(?:is|was|would|does|do|are)n't) (?:that )?(?:[\w']+ ){{0,4}}?{GOLD}"
    rf"|\b(?:how|that) (?:\w+ )?{GOLD} (?:is|was|gets to be|came to be|must be) (?:the|our)\b"
    r"|\b(?:how|what) (?:[\w']+ ){0,6}?(?:makes|made|make|tells us|shows|proves) (?!you\b)"
    rf"(?:[\w']+ ){{0,3}}?{GOLD}",
    re.IGNORECASE,
)
"""A question that takes the answer for granted."""
_REASONS = re.compile(
    r"\b(?:why|how|what makes|what made|since|because|explain|see now)\b", re.IGNORECASE
)
_AGAINST = re.compile(rf"\b(?:not|rather than|instead of|unlike)(?: \w+){{0,2}}? {OTHER}")
_RULES_OUT = re.compile(
    r"\b(?:not|never|cannot|neither|nor|none|no|wrong|incorrect|false|impossible|out|off|away|aside"
    r"|drop|eliminat\w+|exclud\w+|discard\w*|dismiss\w*|reject\w*|ignore|forget|fail\w*|gone"
    r"|too \w+)\b|n't\b",
    re.IGNORECASE,
)
_NONE_OF_THESE = re.compile(
    r"\b(?:none|neither|not one|all) of (?:them|these|those|the)\b"
    r"|\bthem (?:all|out)\b|\ball 3\b"
    r"|\b(?:those|these|the other) 3 (?:are|is|do|were|can|will|have|won)\b",
    re.IGNORECASE,
)
_LOOKS = re.compile(
    r"^\W*(?:(?:now|then|so|please|just|first) )?(?:look|compare|consider|think|read|study|examine"
    r"|remember|let['’]s|let us|describe|tell|take|imagine|try|test|recall|we have|there (?:are|is)"
    r"|here (?:are|is)|you)\b",
    re.IGNORECASE,
)
"""How a sentence begins that names options without saying what they are."""
_BESIDE_NAMED = re.compile(
    r"\b(?:listed|printed|written|sitting|sits|wedged|option|line|row|choice|entry|one|list)\b"
    r"[^.;]{0,12}?\b(?:(?P<between>between)|(?:just|right|directly|straight"
    r"|immediately) (?:(?P<ahead>above|before)"
    rf"|below|after|under)) {SIGN}(?(between),? and {SIGN}(?:\W{{1,3}}{SIGN})?)"
)
"""An option by its position in the list next to one that is named, or between two."""
_ONE_IS_LEFT = re.compile(
    r"\b(?:left|leaves?|remain\w*|only (?:1|one|\w+ one)|one more|just one|last one|(?:the )?fourth"
    r"|the other one|still standing|narrows?|conclusions?|case|conclude)\b",
    re.IGNORECASE,
)
"""Words that point to the option that was not spoken of."""
_NO = re.compile(r"^\W*(?:no|nope|nah|not|wrong|out|gone|never)\b", re.IGNORECASE)
_WAY = (
    r"equation|step|approach|method|formula|operation|way|idea|track|direction|path|lines?\b"
    r"|question|start"
)
_CLOSED = r"(?= ?(?:[.,;!)—–]|-|$))"
_OPENS = re.compile(
    r"^\W*(?:\w+\b\W+){0,3}?(?:(?:that|this|it)(?:'s| is| was)(?: \w+)? (?:it|him|her|them"
    rf"|the (?:very )?one|the (?:correct|right) (?!{_WAY})\w+){_CLOSED}"
    r"|(?:bingo|bull'?s[- ]?eye|jackpot|spot[- ]on|(?:you )?nailed (?:it|that)|well spotted)"
    rf"{_CLOSED}"
    r"|you(?:'ve| have)? (?:\w+ )?(?:got|found|cracked|solved|worked|hit|guessed|nailed|figured)"
    rf"(?: it| that(?: one)?)(?: (?:in one|out|right|all|exactly|on (?:\w+ ){{0,2}}try))?{_CLOSED}"
    r"|you(?:'ve| have)? (?:\w+ )?(?:got|found|picked|chosen|chose|named|given|selected|identified"
    rf"|hit (?:on|upon)|arrived at|landed on) the (?:right|correct|proper) (?!{_WAY})\w+"
    r"|(?:good|great|excellent|perfect|right|correct|fine|wise|nice) (?:choice|pick|answer|call)"
    rf"{_CLOSED})"
    r"|\b(?:your|the) (?:final )?(?:\w+ )?(?:answer|choice|guess|pick|option|conclusion|solution"
    r"|selection|suggestion)(?: of [^.!?]{1,40}?)? (?:is|was|looks) (?:(?!almost|nearly|partly"
    r"|mostly|half|not|never|close)\w+ )?(?:right|correct|spot on|perfect|accurate|valid|true)"
    r"(?= ?(?:[.,;!—–]|-|$| and\b))|\b(?:stick|stay) with your (?:answer|choice)\b"
    r"|\b(?:sure|confident) of your (?:answer|choice)\b"
    r"|\bno (?:reason|need) to (?:change|revise|doubt) your (?:answer|choice)\b",
    re.IGNORECASE,
)
"""Openings of a turn that confirm what was proposed, whatever it was."""
_KEEP = re.compile(
    r"\byour (?:first|initial|original|earlier|previous|gut|old) (?:thought|hunch|instinct|guess"
    r"|idea|answer|impression|choice|pick|feeling|reaction|suggestion)\b[^.;!?]{0,20}?"
    r"\b(?:right|correct|better|best|spot on)\b"
    r"|\bwhat you (?:said|had|wrote|thought|chose|picked)(?: \w+){0,3} (?:was|is) (?:\w+ )?"
    r"(?:right|correct)\b"
    r"|\b(?:go|switch|return|come) back to (?:what you (?:said|had|wrote|chose|picked)"
    r"|your (?:first|initial|original|earlier))"
    r"|\bi (?:wouldn't|would not|would never) (?:change|touch|alter) (?:a thing|anything|it|that"
    rf"|your \w+){_CLOSED}"
    r"|\bno (?:reason|need) to (?:change|revise|doubt|alter) (?:it|that|anything|your mind)\b"
    r"|\b(?:leave|keep) (?:it|that)(?: one)?(?: (?:as it is|as is|just so|at that|that way))?"
    rf"{_CLOSED}"
    rf"|\bst(?:ick|ay) with (?:that|your \w+)(?: one)?{_CLOSED}"
    r"|\b(?:don't|do not|no need to|stop) second[- ]guess(?:ing)? (?:yourself|it|that|your)\b",
    re.IGNORECASE,
)
"""Advice to keep what was proposed, or to return to it."""
_ON_THE_WAY = re.compile(
    r"\b(?:almost|nearly|close|keep going|so far|not|if|whether|think|but|however|step|part"
    r"|half(?:way)?|except|still|yet|until|first|next|same)\b|n't\b",
    re.IGNORECASE,
)
"""Words that limit a confirmation: it is of no answer, or not of all of it."""
_SPELT = re.compile(
    r"\b(?:start|begin)(?:s|ning|ing)? (?:with|on|in)(?: (?:the|a|an|letters?))* [\"']?"
    r"(?P<start>[a-z](?![\w'])|\w{2,}(?=[\"']))"
    r"|\bend(?:s|ing)? (?:in|on|with)(?: (?:the|a|an|letters?))* [\"']?-?(?P<end>\w+)"
    r"|\b(?P<count>\d+) letters"
    r"|(?P<spelt>(?<![\w-])(?:[^\W\d_](?:-|[,.]? )){2,}[^\W\d_](?![\w'-]))"
    r"|\b(?P<rhyme>rhym(?:es|ing)) with\b",
    re.IGNORECASE,
)
_OF_ANSWER = (
    r"\b(?:answer|solution|result|option|number|value|choice|it|(?:one|what) (?:you|we) \w+)\b"
    r"[^.;]{0,25}?"
)
_DESCRIBED = re.compile(
    r"\b(?P<length>longest|shortest) (?:of|option|answer|choice|one|word|sentence|line|text)\b"
    r"|\bonly (?:one|choice|option|answer|line|word)\b[^.;]{0,20}?"
    r"\b(?P<has>with|without|containing|lacking) (?:an? |any |the )?[\"']?(?P<word>[^\W\d_]+)"
    r"(?:[\"']? (?:or|nor|and) (?:an? )?[\"']?(?P<or>[^\W\d_]+))?"
    rf"|{_OF_ANSWER}\b(?:(?P<below>below|under|less than|smaller than|lower than)|(?:above|over"
    r"|more than"
    r"|greater than|larger than|bigger than|higher than)) (?P<bound>-?\d{1,12}(?:\.\d{1,9})?"
    r"|zero)\b"
    rf"|{_OF_ANSWER}\b(?:is|be|was) (?P<sign>negative|positive)\b",
    re.IGNORECASE,
)
"""A size or a wording that is ascribed to the answer."""
_DESCRIBES_NOTHING = re.compile(
    r"\b(?:not|if|whether|when|like|always|every)\b|n't\b", re.IGNORECASE
)
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "the and for are was his her its who how why not can did does has had you one two may all "
        "any per out our most likely best first mean means give gives given each kind type main "
        "which what that this these those with from have were when where whose there their they "
        "them into than then more many much following would could should about between called name "
        "named statement true correct answer",
    )
)
"""Words of any question, which do not describe its subject."""
_KIND = re.compile(
    r"\b(?:which|what)(?: (?:\d+|one|kind|type|sort))?(?: of (?:these|the following|the))? "
    r"(?!is\b|are\b|was\b|does\b|do\b|has\b)(?P<kind>\w+)"
)
"""Part of a question that names the kind of the options."""
_RUN_ON = re.compile(r"(the)?(?:correct)?(answer|option|choice)(is)(?=\w)", re.IGNORECASE)
"""Words that run together when letters were picked out of a text."""
_MAY_SAY = re.compile(r"answer|option|choice|correct|right|best|boxed", re.IGNORECASE)
"""A disguised text is read for an answer only if it has one of these words."""


def gives_answer_away(text: str, example: Example, *, asked_about: Collection[str] = ()) -> bool:
    """Return whether a text gives the answer away; only its first 20,000 characters are read.

    It does if a sentence states an answer as its own, right or wrong, and for options in the other
    ways that the module lists. Naming an option of `asked_about` in reply points to none.
    """
    words = IN_YOUR_PLACE.sub(
        "", radio_letters(number_words(normalize_text(text[:MOST_CHARACTERS])))
    )
    sentences = list(split_sentences(words))
    declared = [sentence for sentence in sentences if not is_question(sentence)]
    if any(
        _states_answer(sentence, example) for sentence in declared if not _UNSAID.search(sentence)
    ):
        return True
    if example.answer not in example.letters:
        return False
    marked = [mark_options(sentence, example) for sentence in sentences]
    read = [sentence for sentence, _ in marked]
    return (
        _confirms_proposal(sentences[:1])
        or any(map(_advises_to_keep, declared))
        or _shows_picture(text, example)
        or any(
            _points_to_gold(read, i, example, example.answer in asked_about)
            for i in range(len(read))
        )
        or _leaves_one(sentences, marked, example)
        or any(_points_beside(sentence, example) for sentence in declared)
        or any(_spells_gold(sentence, example) for sentence in declared)
        or any(_describes_gold(sentence, example) for sentence in declared)
    )


def is_question(sentence: str) -> bool:
    """Return whether a sentence ends with a question mark, or with a full stop after a question
    word at its start ("And why is that.")."""
    ended = sentence.rstrip(" \"')")
    return ended.endswith("?") or (ended.endswith(".") and _ASKS.match(sentence) is not None)


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text with their end marks; a line break ends one. A statement and
    the question after it in one sentence are two, and the statement gets a full stop."""
    for match in _SENTENCES.finditer(text):
        sentence = match[0]
        behind = _QUESTION_BEHIND.search(sentence) if sentence.rstrip().endswith("?") else None
        if behind:
            yield sentence[: behind.start()] + "."
            yield sentence[behind.end() :]
        else:
            yield sentence


def _states_answer(sentence: str, example: Example) -> bool:
    """Return whether a sentence states an answer as the speaker's own, be it the gold one or
    not."""
    if final_answer(sentence, example.letters, strict=True) is not None:
        return True
    asserted = find_statements(sentence, option_matcher(example.options), strict=False)
    return any(sentence.letter and (sentence.firm or not sentence.by_text) for sentence in asserted)


def _confirms_proposal(opening: list[str]) -> bool:
    """Return whether a turn's opening confirms what was proposed."""
    return any(
        _OPENS.search(" ".join(sentence.split())) and not _ON_THE_WAY.search(sentence)
        for sentence in opening
        if not is_question(sentence)
    )


def _advises_to_keep(sentence: str) -> bool:
    """Return whether a sentence advises to keep what was proposed."""
    return bool(_KEEP.search(sentence)) and not _ON_THE_WAY.search(_KEEP.sub("", sentence))


def _shows_picture(text: str, example: Example) -> bool:
    """Return whether a picture sign shows the gold option, and none shows another."""
    signs = [unicodedata.name(sign, "").lower() for sign in set(text) if sign > "\u2190"]
    shown = {
        choice.label
        for choice in example.choices
        for sign in signs
        if f" {_without_article(choice.text)} " in f" {sign} "
    }
    return shown == {example.answer}


def _without_article(text: str) -> str:
    return re.sub(r"^(?:an?|the)\s+", "", text.lower()).strip(" .") or "\n"


def _points_to_gold(read: list[str], i: int, example: Example, asked_about: bool) -> bool:
    """Return whether the i-th sentence names the gold option and points to it.

    `read` are the turn's sentences with their options marked; `asked_about` says that the gold
    option is what was asked about.
    """
    sentence = read[i]
    if not re.search(GOLD, sentence):
        return False
    if pretences := list(_PRETENDED.finditer(sentence)):
        return any(
            re.search(GOLD, words) and OTHER not in words
            for pretended in pretences
            for words in _PARTS.split(sentence[pretended.end() :])[:1]
        )
    on_topic = shares_words(sentence, example, most=asked_about)
    if is_question(sentence):
        question = _AGAINST.sub("", sentence)
        granted = _GRANTED.search(question) or (on_topic and _REASONS.search(question))
        return OTHER not in question and bool(granted)
    numeric = example.options[example.answer or ""].strip()[:1].isdigit()
    if OTHER in sentence and not (
        numeric or on_topic or _RULES_OUT.search(sentence) or _BUT.search(sentence)
    ):
        return False
    if _LISTED.search(sentence):
        return False
    beside = " ".join(
        sentence for sentence in read[max(0, i - 1) : i + 2] if not is_question(sentence)
    )
    confirmed = _CONFIRMS.search(beside) and not _ON_THE_WAY.search(beside)
    if numeric and _RESULT.search(sentence):
        return True
    pointed = on_topic or _CUES.search(sentence)
    return any(
        pointed
        or (
            not asked_about
            and (
                GOLD_BY_LETTER in part
                or _PREDICATE.search(part)
                or (confirmed and _BARE.search(part))
            )
        )
        for part in (_NUMERIC_PARTS if numeric else _PARTS).split(sentence)
        if re.search(GOLD, part) and OTHER not in part and not _is_unsaid(part)
    )


def _is_unsaid(part: str) -> bool:
    """Return whether a part of a sentence denies or supposes the gold option, or ascribes it to
    others."""
    match = re.search(rf"{GOLD}(?: [\w']+){{0,3}}", part)
    return match is not None and _UNSAID.search(part[: match.end()]) is not None


def shares_words(sentence: str, example: Example, most: bool = False) -> bool:
    """Return whether a sentence has enough of the question's words that are in no option: one, or
    two if the question has more than three; with `most` more than half (`topic_words`)."""
    topic, kind = topic_words(example)
    words = {*topic, *kind}
    shared = words & {word[:4] for word in re.findall(r"[a-z]{3,}", sentence.lower())}
    return len(shared) > (len(words) / 2 if most else len(words) > 3)


def topic_words(example: Example) -> tuple[list[str], list[str]]:
    """Return the first four letters of the question's words that are in no option, as two lists:
    words of what is asked, and of the kind that all options are of ("which of these animals").
    Each is listed once, in order; common words and those of fewer than three letters are not."""
    options = " ".join(choice.text.lower() for choice in example.choices)
    kind = _KIND.search(example.question.lower())
    start, end = kind.span("kind") if kind else (0, 0)
    question = example.question
    parts = (question[end:] + " " + question[:start], question[start:end])
    topic, of_kind = (
        dict.fromkeys(
            word[:4]
            for word in re.findall(r"[a-z]{3,}", part.lower())
            if word not in _COMMON and word not in options
        )
        for part in parts
    )
    return list(topic), list(of_kind)


def _points_beside(sentence: str, example: Example) -> bool:
    """Return whether a sentence points to the gold option by its position next to others that it
    names."""
    for match in _BESIDE_NAMED.finditer(sign_options(sentence, example)):
        at = [example.letters.index(label) for label in labels_in(match[0], example)]
        spans = len(at) == 2 and at[1] - at[0] == 2 if match["between"] else len(at) == 1
        pointed_at = at[0] + (-1 if match["ahead"] else 1)
        if spans and pointed_at >= 0 and example.letters[pointed_at:][:1] == (example.answer,):
            return True
    return False


def _leaves_one(sentences: list[str], marked: list[tuple[str, set[str]]], example: Example) -> bool:
    """Return whether all options but the gold one are ruled out, or said to be something else.

    `marked` are the sentences with their options marked, and the labels that each names.
    """
    gone: set[str] = set()
    seen: set[str] = set()
    pointed = any(map(_ONE_IS_LEFT.search, sentences))
    for i, (sentence, (read, named)) in enumerate(zip(sentences, marked, strict=True)):
        if example.answer in named:
            return False
        denied = is_question(sentence) and any(map(_NO.search, sentences[i + 1 : i + 2]))
        if denied or _NONE_OF_THESE.search(sentence):
            gone |= seen
        seen |= named
        if denied or (not is_question(sentence) and _rules_out_named(sentence, read, pointed)):
            gone |= named
    return gone == set(example.letters) - {example.answer} and len(gone) > 1


def _rules_out_named(sentence: str, read: str, pointed: bool) -> bool:
    """Return whether a sentence rules out the options that it names, or, if the turn points to the
    one that is left, says what they are."""
    if _RULES_OUT.search(sentence):
        return True
    return pointed and not _LOOKS.search(sentence) and len(re.findall(r"\w{2,}", read)) > 1


def _spells_gold(sentence: str, example: Example) -> bool:
    """Return whether how a word is written tells the gold option from all others."""
    words = {c.label: re.findall(r"\w+", c.text.lower()) for c in example.choices}
    for match in _SPELT.finditer(sentence):
        start = (match["start"] or re.sub(r"\W", "", match["spelt"] or "")).lower()
        end, count = (match["end"] or "").lower(), int((match["count"] or "0")[:6])
        if match["rhyme"]:
            return True
        fits = {
            label
            for label, of_option in words.items()
            if any(
                (start and word.startswith(start))
                or (end and word.endswith(end))
                or len(word) == count
                for word in of_option
            )
        }
        if fits == {example.answer}:
            return True
    return False


def _describes_gold(sentence: str, example: Example) -> bool:
    """Return whether the size or the wording that a sentence ascribes to the answer fits the gold
    option only."""
    match = None if _DESCRIBES_NOTHING.search(sentence) else _DESCRIBED.search(sentence)
    if match is None or (match["length"] and match["length"][:-3] in example.question.lower()):
        return False
    if match["length"]:
        longest = match["length"].lower() == "longest"
        sizes = [len(choice.text) * (1 if longest else -1) for choice in example.choices]
        fits = [size == max(sizes) for size in sizes]
    elif match["has"]:
        words = {word.lower() for word in match.group("word", "or") if word}
        lacks = match["has"].lower() in ("without", "lacking")
        fits = [
            lacks != bool(words & set(re.findall(r"\w+", choice.text.lower())))
            for choice in example.choices
        ]
    else:
        fits = [_is_within(choice.text, match) for choice in example.choices]
    return fits == [choice.label == example.answer for choice in example.choices]


def _is_within(text: str, match: re.Match[str]) -> bool:
    """Return whether an option's number is on the side of a bound that is spoken of."""
    number = re.search(r"-?\d+(?:\.\d+)?", normalize_text(text).replace(",", ""))
    bound = float(match["bound"]) if (match["bound"] or "zero") != "zero" else 0.0
    if number is None:
        return False
    below = match["below"] or (match["sign"] or "").lower() == "negative"
    return float(number[0]) < bound if below else float(number[0]) > bound


def gives_away_disguised(text: str, example: Example) -> bool:
    """Return whether a text states an answer, openly or in a disguise. The gold option's text is
    enough in a turned or encoded reading if it has six letters and is not said openly too."""
    gold = only_letters(example.options.get(example.answer or "", ""))
    named = len(gold) >= SHORTEST_GOLD and gold not in only_letters(text)
    if _states_answer(" ".join(text.split()), example):
        return True
    for kind, words in disguise_readings(text):
        if _MAY_SAY.search(words) and _states_answer(_RUN_ON.sub(r"\1 \2 \3 ", words), example):
            return True
        if named and kind in ("turned", "decoded") and _has_words(words, gold):
            return True
    return False


def _has_words(text: str, gold: str) -> bool:
    """Return whether the words of an option stand in the text, as words."""
    words = r"(?<![^\W_])" + r"[\W_]*+".join(gold) + r"(?![^\W_])"
    return re.search(words, text.lower()) is not None
