"""The words that give an answer away, around the options' places.

They are read in a clause where the gold option stands as ◆ and each other one as ◇ (`marked`), so
that no pattern knows how an option is written. Spaces between words are single.
"""

from __future__ import annotations

import re
from functools import lru_cache

from convbench.answers.plain import plain
from convbench.schema import Example

GOLD, OTHER = "◆", "◇"
END = (
    r"(?= ?(?:[.,;:!)—–]|-(?!\w)|$)| (?:here|and|then|because|since|as|now|instead|over"
    r"|rather|too|indeed"
    r"|alone|if|in (?:this|that) (?:case|question)|for (?:this|that|it|the question)"
    r"|of (?:the|these|those|all)"
    r" (?:two|three|four|five|options|choices|lot)|among|so|but|please)\b)"
)
"""What follows a noun that a clause ends with: no word that goes on with it."""
_WORTH = (
    r"(?:correct|right|proper|valid|appropriate|true|real|accepted|required|fitting|suitable"
    r"|accurate|best|ideal|only possible)"
)
_KIND = (
    r"(?:answer|solution|winner|key|response|remedy|ticket|one (?:you|we|they|that|which|to)|one"
    + END
    + ")"
)
_IS = r"(?:['’]s|,? (?:is|was|must be|has to be|would be|will be|seems|remains|becomes))"
_SOFT = r"(?: (?:\w+ly|indeed|therefore|thus|hence|then|just|also|in fact|of course))?"
_WANTED = (
    r"(?: (?:in question|asked for|needed|required|sought|here|described|that (?:fits|works"
    r"|matches)"
    r"|(?:that |which )?(?:you|we|they|one|i)(?:['’]re| are)? (?:need|want|seek|require"
    r"|looking for|after|asked for)))"
)
_CHOOSE = (
    r"(?:choose|choosing|pick|picking|select|selecting|go(?:ing)? (?:straight )?(?:with|for"
    r"|to)|put(?: down)?"
    r"|writ(?:e|ing)(?: down)?|mark|answer(?:ing)?(?: with)?|circle|tick(?: off)?"
    r"|opt(?:ing)? for|settl(?:e|ing) (?:on|for)"
    r"|say|enter|submit|note down|jot down|vote for|bet on|lean (?:to|towards?)|commit to|try"
    r"|respond with|reply with"
    r"|record|indicate|name|assign|favou?r|prefer|plump for|run with|shade|fill in"
    r"|click(?: on)?|tap|underline|highlight"
    r"|cross|lock in|stick (?:with|to)|stay with|type(?: in)?|key in|hand in|register|declare"
    r"|check off|ring|back|trust"
    r"|take|grab|use|adopt|conclude with|end (?:up )?(?:on|with)|keep(?: to)?|call it|propose"
    r"|identify|nominate|list)"
)
_VOICE = (
    r"(?:^\W*|[,;:—–] ?|\b(?:just|please|kindly|simply|so|then|and|ahead and|me and"
    r"|to)(?: just| simply)? "
    r"|\b(?:i|we|you|one)(?:['’]d| would| will|['’]ll| should| can| could| must| may as well"
    r"| might as well"
    r"| ought to| had better| need to| have to| want to| am going to)(?: \w+ly| just| still"
    r"| rather| better| go ahead and)? "
    r"|\b(?:recommend|suggest|advise|advice|recommendation)\b[^.;]{0,20}? )"
)
NAMES = re.compile(
    rf"{GOLD}{_IS}{_SOFT} (?:(?:the|our|your|a|my) )?(?:{_WORTH} )?{_KIND}"
    rf"|{GOLD}{_IS}{_SOFT} (?:the )?(?:very |most |only )?{_WORTH}{END}"
    rf"|{GOLD}{_IS}{_SOFT} the (?:very |most |only )?{_WORTH} \w+{END}"
    rf"|{GOLD}{_IS}{_SOFT} (?:exactly |just )?what (?:you|we|they|the question|is"
    rf"|was) (?:\w+ ){{0,2}}?"
    r"(?:need|want|ask(?:s|ed|ing)?|seek|sought|needed|after|looking for)\b"
    rf"|{GOLD}{_IS}{_SOFT} [^.,;]{{0,20}}?(?:asked for|sought|wanted|being asked)\b"
    rf"|{GOLD} (?:fits|works|wins|suits|answers|solves|satisfies|matches|meets|gives|states"
    rf"|names|does)"
    r"(?: (?:perfectly|best|well|exactly))?(?: (?:the (?:trick|job|bill|definition"
    r"|description|question|clues?|criteri(?:a|on)"
    r"|conditions?|requirements?|evidence|data|facts|pattern|rule|true|correct|right|real)\b"
    r"|all\b|everything\b|what\b|it\b|here\b))"
    rf"|{GOLD} (?:fits|works|wins)(?: (?:perfectly|best|well|exactly))?{END}"
    rf"|\b(?:correct|right|proper|appropriate|true|real|accepted|required"
    rf"|best) \w+{_WANTED}?{_IS}{_SOFT}:? {GOLD}{END}"
    rf"|\b(?:(?:the|our) )?(?:\w+ )?(?:answer|solution|winner|prize"
    rf"|vote)\b(?: [\w’']+){{0,5}}?(?:{_IS}|:){_SOFT}:? {GOLD}{END}"
    rf"|\b\w+{_WANTED}(?: [^.,;:]{{0,30}}?)?{_IS}{_SOFT}:? {GOLD}{END}"
    rf"|\b(?:point|lead|bring|direct|take|steer)s?(?: (?:us|you|me|straight|clearly|directly"
    rf"|right|back|only|strongly)){{0,2}} (?:to|at|towards?) {GOLD}{END}"
    rf"|\b(?:it|this|that){_IS}{_SOFT} {GOLD}(?: (?:here|indeed|then))?(?= ?(?:[.,;!)—–]"
    rf"|-(?!\w)|$)| that\b)"
    rf"|\b(?:it|this|that|which|evidence|clues?|facts?"
    rf"|everything)\b(?: [\w’']+){{0,3}}? (?:makes|establishes|identifies|confirms|marks"
    rf"|singles out) {GOLD} "
    r"(?:out )?(?:as )?(?:the|our|your|a)\b"
    rf"|(?:^|[,;:—–] ?|\b(?:so|and|that|then|four|five|three) )only {GOLD} \w"
    rf"|\b(?:leaves|leaving)(?: (?:you|us|me|only|just|with)){{0,3}} {GOLD}{END}"
    rf"|{GOLD} it (?:is|was|must be)\b",
    re.IGNORECASE,
)
"""The gold option is said to be right, or what is looked for."""
ADVISES = re.compile(
    rf"{_VOICE}(?:that (?:you|one) )?{_CHOOSE}(?: your \w+ (?:on|for))? {GOLD}(?:{END}| (?:on"
    rf"|in|into|to|at|onto|down|as) (?:the|your|this|that)\b)"
    rf"|{GOLD}[^.;?{OTHER}]{{0,30}}?\bi(?:['’]d| would| should) {_CHOOSE}{END}"
    rf"|{GOLD} (?:is|would be|gets|has|gets all of) my (?:own )?\w+{END}"
    rf"|\bmy (?:\w+ )?(?:money|vote|pen|bet|pick|choice|recommendation|advice|answer"
    rf"|suggestion|tip|finger)\b[^.;?{OTHER}]{{0,25}}? {GOLD}{END}"
    rf"|\b(?:i|i['’]d|i would) (?:strongly |warmly |clearly )?(?:recommend|suggest|advise"
    rf"|favou?r|endorse|back)(?: {_CHOOSE})? {GOLD}{END}",
    re.IGNORECASE,
)
"""The gold option is to be chosen. Who is told to is read before the match."""
IDENTIFIES = re.compile(
    rf"{GOLD}{_IS}{_SOFT} the (?:\w+ ){{0,1}}?(?P<after>\w+){END}"
    rf"|\bthe (?P<before>\w+){_WANTED}?{_IS}{_SOFT}:? {GOLD}{END}",
    re.IGNORECASE,
)
"""The gold option is called what the question asks for, where the noun is one of the"
" question's."""
GOLD_ALONE = re.compile(
    rf"(?:^\W*|[,:;—–-] ?|\b(?:is|was|with|of|as|it['’]s|that['’]s|on|about|say"
    rf"|said) ){GOLD}{END}",
    re.IGNORECASE,
)
"""The gold option, and nothing is said of it: what a confirmation beside it confirms."""
_WAY = (
    r"equation|step|approach|method|formula|operation|way|idea|track|direction|path|lines?\b"
    r"|question|start"
)
OPENS_BY_CONFIRMING = re.compile(
    r"^\W*(?:(?:oo+h|oh|ah|ha|wow|aha|yay|hooray|hurray|yes|yep|yeah|right|correct|exactly"
    r"|great|perfect|well done|absolutely|indeed"
    rf"|good job|nice|brilliant|excellent|super)\b\W*){{0,3}}"
    rf"(?:(?:that|this|it)(?:['’]s| is| was)(?: (?:exactly|just|indeed|precisely|definitely"
    rf"|quite))? (?:it|him|her|them|the (?:very )?one|the (?:correct"
    rf"|right) (?!{_WAY})\w+)(?= ?(?:[.,;!)—–]|-|$))"
    r"|bingo\b|bull['’]?s[- ]?eye\b|jackpot\b|spot[- ]on(?= ?[.,;!—–-])|(?:you )?nailed (?:it"
    r"|that)\b|well spotted(?= ?[.,;!—–-])"
    r"|you(?:['’]ve| have)? (?:just |clearly |already )?(?:got|found|cracked|solved|worked"
    r"|hit|guessed|nailed|figured)(?: it| that)(?: (?:in one|out|right|all"
    r"|exactly))?(?= ?(?:[.,;!—–]|-|$))"
    rf"|you(?:['’]ve| have)? (?:just |clearly |already |correctly )?(?:got|found|picked|chosen"
    rf"|chose|named|given|selected|identified|hit (?:on|upon)|arrived at"
    rf"|landed on) the (?:right|correct|proper) (?!{_WAY})\w+"
    r"|(?:good|great|excellent|perfect|right|correct|fine|wise|nice) (?:choice|pick|answer"
    r"|call)(?= ?(?:[.,;!—–]|-|$)))",
    re.IGNORECASE,
)
"""A turn begins by confirming what was proposed, not only a fact or the way taken."""
YOURS_IS_RIGHT = re.compile(
    r"\b(?:your|the) (?:final )?(?:\w+ )?(?:answer|choice|guess|pick|option|conclusion"
    r"|solution|selection|explanation|suggestion|proposal)(?: of [^.!?]{1,40}?"
    r"|, [^.,!?]{1,30},)?"
    r" (?:is|was|looks) (?:(?!almost|nearly|partly|mostly|half|not|never|close)\w+ )?(?:right"
    r"|correct|spot on|perfect|accurate|valid|true|accepted|the (?:right|correct|accepted"
    r"|valid|true) (?:one|answer))"
    r"(?= ?(?:[.,;!—–]|-|$| and\b| too\b| indeed\b))|\b(?:stick|stay) with your (?:answer"
    r"|choice)\b"
    r"|\b(?:sure|confident) of your (?:answer|choice)\b|\bno (?:reason|need) to (?:change"
    r"|revise|doubt) your (?:answer|choice)\b",
    re.IGNORECASE,
)
ONLY_ON_THE_WAY = re.compile(
    r"\b(?:almost|nearly|close|keep going|so far|not quite|but|however|step|part|half(?:way)?"
    r"|except|still|yet|until|first|next|so (?:how|what|which|where|when|now|you|then|do|can"
    r"|that)|same)\b",
    re.IGNORECASE,
)
"""What is confirmed is no answer, or not all of it."""
_LETTER_A = (
    r"A(?=\s*(?:[,.;:)!]|$|(?:is|isn['’]t|can|cannot|can['’]t|and|or|nor|are|does|doesn['’]t|has"
    r"|was|fails?)\b))"
)
_LETTERS = (
    rf"(?<![\w'’])(?:[B-HJ-Z](?![\w'’])|{_LETTER_A})"
    r"|(?<=[Oo]ption )A\b|(?<=[Cc]hoice )A\b|(?<=[Ss]tatement )A\b"
)
_DRESSED = r"(?:(?i:\b(?:the|an?) )?(?i:\b(?:option|choice|letter|statement) )?)[\"'“‘*_(\[]{0,8}+"


def marked(clause: str, example: Example) -> tuple[str, set[str]]:
    """Return a clause with its options as ◆ and ◇, and the labels of those that it names."""
    pattern, labels = _names(tuple((c.label, c.text) for c in example.choices), example.question)
    found: set[str] = set()

    def mark(match: re.Match[str]) -> str:
        name = " ".join((match["text"] or match["letter"]).split())
        label = labels.get(name) or labels.get(name.lower(), "")
        if not label:
            return match[0]
        found.add(label)
        return GOLD if label == example.answer else OTHER

    said = pattern.sub(mark, " ".join(clause.replace(GOLD, " ").replace(OTHER, " ").split()))
    return re.sub(rf"{GOLD}(?:[^\w{OTHER}]{{0,3}}{GOLD})+", GOLD, said), found


@lru_cache(maxsize=512)
def _names(
    choices: tuple[tuple[str, str], ...], question: str
) -> tuple[re.Pattern[str], dict[str, str]]:
    """Return the pattern of all that names an option, and the label by name."""
    labels = {label: label for label, _ in choices}
    names: list[str] = []
    for label, text in choices:
        for name in _spellings(text, [t for _, t in choices if t != text], question):
            if name.upper() not in labels:
                labels.setdefault(name.lower(), label)
                names.append(name)
    texts = "|".join(_spelled(name) for name in sorted(names, key=len, reverse=True)) or "(?!)"
    return re.compile(
        rf"{_DRESSED}(?:(?P<text>(?i:{texts}))s?(?!\w)|(?P<letter>{_LETTERS}))[\"'”’*_)\]]*"
    ), labels


def _spellings(text: str, others: list[str], question: str) -> list[str]:
    """Return an option's text without its article, and the last name of a full one."""
    said = re.sub(
        r"^(?:an?|the)\s+", "", " ".join(plain(text).split()).rstrip("."), flags=re.IGNORECASE
    )
    if not said or (said[0].isdigit() and said in question.split()):
        return []
    last = said.split()[-1]
    apart = not any(last.lower() in other.lower() for other in [*others, question])
    return [said, last] if said.istitle() and last != said and last.isalpha() and apart else [said]


def _spelled(name: str) -> str:
    words = re.escape(name)
    if name[-1:].isdigit():
        whole = name.replace(",", "")
        if whole.isdigit():
            first = len(whole) % 3
            groups = [whole[:first], *(whole[i : i + 3] for i in range(first, len(whole), 3))]
            words = ",?".join(filter(None, groups))
        return rf"(?<![\w.,])\$?{words}(?![.,]?\d|\s*[-+*/×÷^=%])"
    return rf"(?<!\w){words}"
