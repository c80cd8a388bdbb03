"""Wordings by which the faults of a simulated human are recognised."""

from __future__ import annotations

import re
from collections.abc import Collection

from convbench.answers.final import final_answer
from convbench.rollout.fidelity import CODE, FAREWELL, OTHERS_LINE
from convbench.schema import Example

_WORDS = """
true false back list text dictionary
a actual actually after again all already also always am an and another answer answered answers
any anybody anyone anything applies apply appropriate are aren as ask asked asking asks at bad
basically be been before behavior behaviour being best better bit both but by can care cares case
cases certain choice choose clear code come comes consider correct could couldn decide default
defaults depend depends describe described describes detail detailed details did didn different
do does doesn doing don done each either else even ever every everyone everything exactly example
examples expect expected expects explain explained explains feel few fine first for format from
fully function functions get gets getting give given gives giving go goes going gone good got
great guess had hadn happen happened happens has hasn have haven having he hello help her here
hey hi him his how i idea ideas if imagine important in indeed input inputs into is isn it its
itself judgement judgment just keep keeps kind know known knows last later least leave leaves
less let lets like liked likely likes little ll look looking looks lot lots made make makes
making many matter matters may maybe me mean means meant might mind mine minus more most much
must my myself necessary need needed needs neither never next nice no nobody none nope nor normal
normally not nothing now number numbers of off often ok okay on once one only onto opinion option
options or other ought our ours out output outputs over part perhaps plain please plus point
possible possibly prefer preference preferred probably program put question questions quite
rather re really reasonable relevant remember required result results return returned returns
right said same say saying says see seem seems seen sees sense sensible shall she should shouldn
simple simplest simply so some somebody someone something sometimes soon sorry sort sound sounds
special still strong such sure take taken takes talk task tell tells than thank thanks that the
their theirs them then there these they thing things think thinking thinks this those thought
time times to told too two type types understand up us use used uses using usual usually value
values ve very want wanted wants was wasn way ways we well were weren what when where whether
which while who whom whose why will wish with within without won work working works would wouldn
wrong yeah yep yes yet you your yours yourself
"""
COMMON = frozenset(_WORDS.split())


_I = re.IGNORECASE
_WORD = re.compile(r"[^\W_]+")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_BYE = re.compile(
    r"\bgood\s*-?bye\b|^\W*(?:(?:ok(?:ay)?|thanks?|thank you)\W+)?bye\b|\bbye\W*$"
    r"|\b(?:see|talk\s+to|speak\s+to|catch)\s+(?:you|ya)\b|\btalk\s+(?:later|soon)\b"
    r"|\btake\s+care\b(?!\s+(?:of|that|not|to)\b)"
    r"|\bhave\s+an?\s+(?:nice|good|great|lovely|wonderful)\s+(?:day|one|evening|weekend|time)\b"
    r"|\b(?:have|need|got|gotta|must|ought)\s+(?:to\s+)?(?:go|leave|run|head\s+out|sign\s+off)"
    r"(?:\s+now)?\s*(?:[.,;!]|$)"
    r"|\b(?:we|I)(?:['’](?:re|m)|\s+(?:are|am))\s+(?:all\s+)?(?:done|finished)\b"
    r"|\b(?:let\s+us|let['’]s|going\s+to|want\s+to|I['’]ll|I\s+will)\s+(?:now\s+)?"
    r"(?:stop|end|finish|leave\s+it|quit)(?:\s+(?:here|now|this|it|our"
    r"|the)\b[^.!?]{0,30})?\s*(?:[.!]|$)"
    r"|\b(?:conversation|chat|talk|dialogue|session)\W+(?:is\s+|has\s+|was\s+)?(?:over"
    r"|finished|ended|done|closed)\b"
    r"|\bend\s+of\s++(?:our|this|the)?\s*+(?:chat|conversation|talk|dialogue|session)\b"
    r"|^\W*(?:stop|end|done|exit|quit|terminate|finished)\W*$"
    r"|\bno\s+longer\s+need\b|\b(?:don['’]t|do\s+not)\s+need\s+(?:it|this|that|the\s+\w+"
    r"|your\s+help)\s+any\s*more\b"
    r"|\bnever\s*mind\b|^\W*forget\s+(?:it|about\s+it)\b"
    r"|\bno\s+need\s+to\s+(?:continue|go\s+on|carry\s+on)\b|\bno\s+more\s+questions\b"
    r"|\b(?:already\s+)?found\s+(?:a|the|another|my\s+own)\s+(?:solution|answer)\b"
    r"|\bask\s+(?:somebody|someone)\s+else\b"
    r"|\bthank(?:s|\s+you)(?:\s+(?:so|very)\s+much)?\s+for\s+(?:everything"
    r"|(?:all\s+)?your\s+(?:help|time))\b",
    _I,
)
_OFFERS = re.compile(
    r"\b(?:how|what)\s+(?:can|may|could|should|might)\s+I\s+(?:\w+\s+)?(?:help|assist"
    r"|do\s+for|make|write|build|create)\b"
    r"|\b(?:happy|glad|pleased|here|ready|able|delighted)\s+to\s+(?:help|assist|write|build"
    r"|support)\b"
    r"|\bmy\s+(?:job|role|task)\s+is\s+to\s+(?:help|assist|write|answer)\b"
    r"|\bI(?:\s*+['’](?:ll|d)|\s+(?:will|can|could|shall|am\s+going\s+to))\s+(?:\w+\s+)?"
    r"(?:write|build|implement|create|develop|make|pick|code|look\s+it\s+up|get\s+started"
    r"|help|assist|start)\b"
    r"|\bbefore\s+I\s+(?:write|start|begin|implement|code|make|pick)\b"
    r"|\bas\s+(?:your|an?|the)\s+(?:\w+\s+)?(?:assistant|agent|helper|programmer|developer)\b"
    r"|\bthank(?:s|\s+you)\s+for\s+(?:reaching\s+out|your\s+(?:request|question|message)"
    r"|contacting)\b"
    r"|\blet\s+me\s+(?:know|ask)\s+(?:you\s+|me\s+)?(?:what|which|how|something|first|a\s+few"
    r"|some)\b"
    r"|\b(?:please|kindly|just)\s+(?:\w+\s+)?(?:describe|provide|specify|share"
    r"|tell\s+me)\b[^.!?]{0,40}"
    r"\b(?:you|your|details|requirements|information)\b"
    r"|\b(?:tell|told)\s+me\s+(?:more\s+about\s+)?what\s+you\b|\byour\s+(?:requirements"
    r"|preferences|request|needs|wishes)\b",
    _I,
)
_WANTS = re.compile(
    r"\bwould\s+you\s+(?:like|prefer|rather|want)\b"
    r"|\b(?:do|did|are|have|should|which|what|who)\b[^.!?]{0,60}\byou\s+"
    r"(?:\w+\s+)?(?:want|prefer|like|need|looking|require|have\s+in\s+mind|wish)\b"
    r"|\b(?:do|did)\s+you\s+have\s+(?:any\s+)?(?:\w+\s+)?(?:preferences?|requirements?"
    r"|wish(?:es)?)\b"
    r"|\bshould\s+I\s+(?:\w+\s+)?(?:handle|include|add|write|return|use|support|make|also"
    r"|pick|start)\b",
    _I,
)
_STILL_ASKED = re.compile(
    r"\byou\s+need\s+(?:any|more|other|something|anything|to\s+know|me\b|from\s+me|another)", _I
)
_RETRACTS = re.compile(
    r"\bchanged?\s+my\s+mind\b|\b(?:on|upon)\s+(?:second|further)\s+thoughts?\b"
    r"|\bthinking\s+about\s+it\s+(?:again|more)\b"
    r"|\bscratch\s+that\b|\b(?:forget|ignore|disregard|drop)\s+(?:that|what\s+I"
    r"|my\s+(?:previous|earlier|last|first)|all\s+that|the\s+whole)\b"
    r"|\breconsidered\b|\btak(?:e|ing)\s+(?:that|it|this|back\s+what)\s*(?:all\s+)?(?:back"
    r"|I)\b|\btake\s+back\b"
    r"|\bno\s+longer\s+(?:want|wish|like|mind|care)\b|\b(?:want|need|mind"
    r"|care)\b[^.!?]{0,30}\bany\s*more\b"
    r"|\bI\s+was\s+wrong\b|\bopposite\s+of\s+what\s+I\b"
    r"|\b(?:let\s+us|let['’]s)\s+(?:switch|change|go\s+for|make\s+it)\b|\bswitch\s+to\b"
    r"|\bafter\s+all\b|\bmy\s+(?:\w+\s+)?(?:requirements|wishes|needs|plans)\s+(?:are|have"
    r"|were|did)\s+(?:\w+\s+)?(?:different|changed?|now)\b"
    r"|\bI\s+(?:said|told\s+you|asked\s+for)\b[^.!?]{0,60}\bbut\b[^.!?]{0,60}\b(?:now|prefer"
    r"|rather|instead)\b"
    r"|\b(?:I['’]d|I\s+would)\s+(?:now\s+)?(?:rather|prefer)\b[^.!?]{0,60}\b(?:now|instead)\b"
    r"|\b(?:actually|wait|hm+|sorry)\b[^.!?]{0,20}\b(?:I\s+(?:now\s+)?(?:want|need|prefer)"
    r"|make\s+it)\b[^.!?]{0,60}\b(?:instead|not|now)\b",
    _I,
)
_TELLS = (
    r"(?:answer|say|tell|share|help|assist|discuss|respond|reply|talk|provide|disclose|reveal"
    r"|comment|give\s+(?:you\s+)?(?:that|this|any))"
)
_REFUSES = re.compile(
    r"\b(?:won['’]t|will\s+not|refuse\s+to|declin(?:e|ing)\s+to|rather\s+not|prefer\s+not\s+to"
    r"|(?:don['’]t|do\s+not)\s+(?:want|wish|like)\s+to|not\s+(?:going|willing|allowed"
    r"|permitted|comfortable)\b(?:\s+to)?"
    r"|unwilling\s+to)\s+(?:\w+\s+)?" + _TELLS + r"\b(?!\s+(?:for\s+sure|exactly))"
    r"|\bnot\s+comfortable\s+(?:with\s+)?\w+ing\b"
    r"|\b(?:can['’]t|cannot|can\s+not|unable\s+to|not\s+able\s+to)\s+(?:\w+\s+)?"
    r"(?:answer|share|help|assist|discuss|respond|reply|talk|provide|disclose|reveal|comment)\b"
    r"|\bas\s+an?\s+(?:AI|(?:large\s+)?language\s+model|artificial)\b|\bno\s+comment\b"
    r"|\bnone\s+of\s+your\s+business\b"
    r"|\b(?:guidelines?|polic(?:y|ies)|rules|instructions)\b[^.!?]{0,30}\b(?:prevent|forbid"
    r"|prohibit|do(?:es)?\s+not\s+(?:allow|permit)|don['’]t\s+(?:allow|permit))"
    r"|\bwithout\s+my\s+(?:answer|reply|help)\b|\bI\s+(?:must\s+)?(?:decline|refuse)\b"
    r"|\bagainst\s+my\s+(?:guidelines|policy|rules)\b",
    _I,
)
_DONT_KNOW = re.compile(
    r"\b(?:do\s+not|don['’]t|cannot|can['’]t|couldn['’]t|not)\s+(?:really\s+)?(?:know|sure"
    r"|certain|tell|say|understand|thought)\b"
    r"|\bno\s+(?:idea|clue)\b|\bwhat\s+do\s+you\s+mean\b",
    _I,
)
_STEP = re.compile(
    r"\b(?:set|for\s+each|if|return|otherwise|else|then|append|loop|iterate|assign|initiali[sz]e"
    r"|underscore|paren\w*|bracket)\b",
    _I,
)
MOST_STEPS = 5
"""Number of procedure words from which a turn dictates the procedure."""
_SOLVES = re.compile(
    r"\b(?:my|the|this|that|a|full|final)\s+(?:\w+\s+)?(?:solution|code|body|implementation)\b"
    r"[^.!?\n]{0,20}:"
    r"|\b(?:write|use|submit|paste|put)\s+this\b[^.!?\n]{0,20}:"
    r"|\bI(?:\s*+['’](?:ve|d)|\s+(?:have|would))?\s*+(?:\w+\s+)?"
    r"(?:submit|submitted|solved|wrote|written)\b"
    r"|\blet\s+me\s+(?:just\s+)?(?:answer|solve|do|write)\s+(?:it|this|that)\b"
    r"|^[^\S\n]*+[A-Za-z_]\w*+\s*+[-+*/]?=\s*+[^=\s]",
    _I | re.MULTILINE,
)
_PICK = (
    r"(?:answer|option|choice|choose|pick|select|take|go\s+(?:with|for)|submit|is|would\s+be"
    r"|be|with|that)"
)


def word_set(text: str) -> frozenset[str]:
    """Return the set of words and numbers of a text in lower case; underscores and apostrophes
    separate words."""
    return frozenset(word.lower() for word in _WORD.findall(text))


def content_stems(text: str) -> frozenset[str]:
    """Return the stems of a text's content words: longer than two letters, and not common."""
    return frozenset(
        stem_word(word) for word in word_set(text) if len(word) > 2 and word not in COMMON
    )


def stem_word(word: str) -> str:
    """Return a word in lower case without its inflectional ending, of which at least three letters
    are left: crude, but the same for both sides of a comparison."""
    for ending in (
        "ations",
        "ation",
        "ings",
        "ing",
        "edly",
        "ies",
        "ied",
        "ers",
        "ed",
        "er",
        "es",
        "ly",
        "s",
        "e",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def says_bye(text: str) -> bool:
    """Return whether a text is empty, or says goodbye or that the dialogue ends."""
    return not text.strip() or bool(FAREWELL.search(text) or _BYE.search(text))


def inverts_roles(text: str) -> bool:
    """Return whether a text takes the agent's role: offers help, asks what the other wants, or
    writes a speaker's lines."""
    if OTHERS_LINE.search(text) or _OFFERS.search(text):
        return True
    asking = (m[0] for m in _SENTENCE.finditer(text) if m[0].rstrip().endswith("?"))
    return any(_WANTS.search(question) and not _STILL_ASKED.search(question) for question in asking)


def has_code(text: str) -> bool:
    """Return whether a text has code, or announces the solution."""
    return bool(CODE.search(text) or _SOLVES.search(text))


def picks_option(text: str, example: Example, question: str) -> bool:
    """Return whether a text names one of the example's options as the result, by letter or by its
    words; False without options.

    Words count only if `question`, the policy's last text, does not have them all and the text has
    no other option's.
    """
    if not example.choices:
        return False
    if final_answer(text, example.letters, strict=True) is not None and not text.rstrip().endswith(
        "?"
    ):
        return True
    spoken = word_set(question)
    for choice in example.choices:
        label = re.escape(choice.label)
        if re.fullmatch(rf"\W*{label}\W*", text):
            return True
        if re.search(rf"\b(?i:{_PICK})\s+\W?{label}\b(?!['’])", text):
            return True
        if re.search(rf"\b[Oo]ption\s+{label}\b|\b{label}\s+is\s+(?:right|correct|the)\b", text):
            return True
        named = word_set(choice.text)
        if named and named <= word_set(text) and not named <= spoken:
            others = [
                c for c in example.choices if c is not choice and word_set(c.text) <= word_set(text)
            ]
            if not others:
                return True
    return False


def retracts_statement(text: str) -> bool:
    """Return whether a text takes back an earlier statement."""
    return bool(_RETRACTS.search(text))


def refuses_answer(text: str) -> bool:
    """Return whether a text refuses to answer; not knowing is no refusal."""
    return bool(_REFUSES.search(text))


def dont_know(text: str) -> bool:
    """Return whether a text says that its speaker does not know."""
    return bool(_DONT_KNOW.search(text))


def tells_procedure(text: str) -> bool:
    """Return whether a text dictates a procedure step by step: it has five or more words such as
    "set", "if", "return" or "otherwise"."""
    return len(_STEP.findall(text)) >= MOST_STEPS


FEW, SHARE = 3, 1 / 3
"""Fewest content words of a text with a topic, and the largest share of them that may be known if
it is off the task."""


def off_task(text: str, known: Collection[str]) -> bool:
    """Return whether a text has at least three content words (compared by their stems), of which at
    most a third are `known`."""
    about = content_stems(text)
    return len(about) >= FEW and len(about & set(known)) <= SHARE * len(about)


_CLAUSE = re.compile(r"[^.!?;\n]+")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+(?:['’]t)?")
_NOT = frozenset(
    {
        "not",
        "no",
        "never",
        "without",
        "none",
        "don't",
        "doesn't",
        "shouldn't",
        "isn't",
        "won't",
        "can't",
        "needn't",
    }
)
_FILLS = frozenset(
    {
        "do",
        "does",
        "any",
        "some",
        "there",
        "should",
        "be",
        "a",
        "an",
        "the",
        "yes",
        "it",
        "is",
        "sorry",
        "well",
    }
)
MOST = 50
"""Most sentences of a turn that are compared."""
ALIKE = 0.75
"""Smallest share of common words of two similar sentences."""
LEAST = 2
"""Fewest common content words of two sentences on one topic."""


def contradicts_earlier(text: str, earlier: str, public: Collection[str]) -> bool:
    """Return whether a sentence of the text repeats one of an earlier turn with another number, a
    negation, or another word that is not `public` (words of what was asked)."""
    before = [_clause_tokens(sentence) for sentence in _CLAUSE.findall(earlier)[:MOST]]
    return any(
        _is_opposite(_clause_tokens(sentence), other, public)
        for sentence in _CLAUSE.findall(text)[:MOST]
        for other in before
    )


def _clause_tokens(sentence: str) -> tuple[frozenset[str], bool]:
    """Return (the sentence's words without fillers, whether it is negated)."""
    tokens = [token.lower().replace("’", "'") for token in _TOKEN.findall(sentence)]
    negative = sum(token in _NOT for token in tokens) % 2 == 1
    return frozenset(t for t in tokens if t not in _NOT and t not in _FILLS), negative


def _is_opposite(
    first: tuple[frozenset[str], bool], second: tuple[frozenset[str], bool], public: Collection[str]
) -> bool:
    """Return whether two sentences contradict each other; each is (words, whether negated)."""
    (a, minus), (b, also_minus) = first, second
    shared, apart = a & b, a ^ b
    telling = {word for word in shared if word not in COMMON}
    if minus != also_minus:
        return not apart and len(shared) > (1 if telling else 2)
    if len(telling) < LEAST or len(shared) < ALIKE * max(len(a), len(b)):
        return False
    new, old = a - b, b - a
    if len(new) != 1 or len(old) != 1:
        return False
    return not apart & set(public)
