"""Find the places where a reply may say which option it answers with, and how firmly.

Firm are "the answer is C" and its like, a box, "I choose C" and "C is the correct answer". Soft is
what counts only at a reply's end, or as a correction: "so it's C", "C is right", a line with
nothing but an option. With `strict` only the paper's own phrase is read, "The answer is X" in its
usual variants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from convbench.answers import claims, languages, wording
from convbench.answers.normalize import lower_case
from convbench.answers.options import OptionMatcher, Statement

_MARKS = r"[\s*_`~]*+"
_ADVERB = (
    r"(?:still|indeed|clearly|definitely|certainly|probably|likely|most\s+likely|therefore|thus"
    r"|obviously|simply|actually|really|now|also|then|in\s+fact|best\s+described\s+as|option|choice"
    r"|instead|surely|of\s+course|without\s+(?:a\s+)?doubt|quite\s+clearly|hence)"
)
_KIND = (
    r"answer|option|choice|letter|pick|selection|response|match|fit|explanation|candidate|solution"
    r"|conclusion|decision|guess|verdict|vote|alternative|one"
)
_NOUN = re.compile(rf"(?:{_KIND}|ans(?=\s*[.:=]))(?![^\W_])")
_LABELS = re.compile(
    r"answer|ans|option|choice|letter|pick|selection|response|decision|verdict|vote|guess"
    r"|solution|conclusion"
)
"""Nouns that label an answer at the beginning of a line, followed by a colon."""
_PAPERS = ("answer", "option", "choice", "letter", "ans")
"""Nouns that are read with `strict`."""
_LINK = re.compile(
    r"[*_`]*+(?:\s++(?:to|for|of|here|that|which|on|left|remaining|available|consistent|matching|among)\b(?:\s++(?!(?:is|was)\b)[\w'’-]++){0,7}?)?"
    r"(?P<aside>\s*,[^,.\n:;]{1,40},)?"
    r"(?P<link>\s++(?:to\s+be|is|remains|stays|(?:goes|went|falls|fell)\s+(?:to|on)|(?:(?P<would>would(?:\s+have\s+to)?|could\s+only)|must|should|will|can\s+only"
    rf"|has\s+to|seems\s+to|appears\s+to)(?:\s++{_ADVERB})?\s++be)(?![^\W_])"
    rf"(?:{_MARKS}(?::|[—–]|\.{{2,}}))?|['’]s\b|{_MARKS}[\"']?\s*+[:=–—-]++>?)"
    rf"{_MARKS}(?:(?<=\n)[-•]\s)?"
    rf"(?:(?:,?\s*+{_ADVERB}\b,?\s*+[:-]?|that\s+option\b|that\s+of\b|that\b|given\s+(?:by|in)\b"
    r"|,[^,.\n:;]{1,30},(?=\s)|not\s++(?:option\s++)?[\w()*]++,?\s++but\s++)\s*+){0,2}",
    re.IGNORECASE,
)
"""What joins the noun to the answer."""
_ALONE = re.compile(
    rf"[ \t*_`~:#=]*\n(?:[=-]{{2,}}\n)?{wording.OPENING}(?:-\s)?"
    r"|[*_ #]*+(?=\(?[A-Z]\)?[*_]*+[.!]?[*_]*+\s*+(?:\n|$))"
)
"""A noun that ends its line, with the answer below; or `Answer C` and no more in the line."""
_LABEL = re.compile(r"[*_`\"']*+\s*+[:=]")
_LINE_START = re.compile(
    r"[\s#*_>\d.)-]*+(?:(?:the|my)\s++)?(?:(?:final|correct|best)\s++)?(?:answer\s++)?"
)
_CHANGED = re.compile(
    r"\b(?:chang|switch|revis|updat|amend|correct)(?:e|es|ed|ing)?\s+(?:my|the)\s+(?:final\s+)?$"
)
_CHANGED_TO = re.compile(
    rf"(?:\s++from\s++{wording.OPENING}[\w']++[*_`)\]\"']*+)?\s++to\b", re.IGNORECASE
)
_NOT_BOXED = re.compile(r"(?:\bnot|n['’]t|\bno)\W*$")

_CHOOSE = re.compile(
    r"(?:(?:i(?<!\wi)|we(?<!\wwe)|let['’]s|let\s+me)(?:['’](?:d|ll|m|ve)|\s+(?:(?P<would>would)|will|shall"
    r"|must|have\s+to|now|do|am|have|should\s+have|should|then|therefore|thus|still|hence|finally"
    r"|hereby|confidently|rather|instead|going\s+to|inclined\s+to|want\s+to|simply|just|definitely"
    r"|ultimately|eventually|also|can\s+only|gonna|happy\s+to|ended\s+up|have\s+decided|decided|had\s+to))*"
    r"\s+|(?:(?<=[.!?\n] )|(?<=\n)|^)(?=\w+ing\s))"
    r"(?:cho(?:ose|osing|se|sen)|pick(?:ing|ed)?|select(?:ing|ed)?|go(?:ing|ne)?\s+(?:with|for)|went\s+with"
    r"|opt(?:ing|ed)?\s+for|settl(?:e|ing|ed)\s+(?:on|for)|vot(?:e|ing)\s+for|answer(?:ing|ed)?(?:\s+with)?"
    r"|say|said|(?:tak(?:e|ing)|tick(?:ing)?|circl(?:e|ing)|mark(?:ing)?|submit(?:ting)?|enter(?:ing)?|writ(?:e|ing|ten)|lock(?:ing)?\s+in|call(?:ing)?\s+it)|lean(?:ing)?\s+(?:to|towards?)"
    r"|(?:decide|decided|deciding)\s+(?:on|for|upon)|stick(?:ing)?\s+(?:with|to)|stay(?:ing)?\s+with"
    r"|conclude(?:\s+with)?|guess|bet\s+on|commit\s+to|chang(?:e|ing)\s+to|switch(?:ing)?\s+to"
    r"|mean|meant|think|believe|put\s+(?:down|my\s+money\s+on)|favou?r|prefer|(?:arrive|land|end\s+up|finish)"
    r"\s+(?:at|on|with))"
    r"(?:\s+that)?(?:\s+(?:it|this|that)(?:['’]s|\s+(?:is|must\s+be|has\s+to\s+be|should\s+be)))?"
    r"(?:\s+on|\s+as\s+my\s+(?:final\s+)?answer\s*:?|\s+in\s+favou?r\s+of|\s*:)?\s+"
)
_AT_FIRST = re.compile(
    r"[^.!?\n]{0,20}\b(?:at\s+first|initially|originally|earlier|before|too\s+fast)\b"
)

_BEST = (
    r"(?:(?:only|single|most|one|correct|right|best|final|true|actual|proper|likely|appropriate"
    r"|suitable|accurate|plausible|reasonable|logical|better|and|fitting|overall|possible)\s+)"
)
_PREDICATE = re.compile(
    r"[\s'’–—:-](?<!\s\s)(?:(?:(?<=\s)\s*+(?:is|was|remains|looks|seems|must\s+be|has\s+to\s+be|would\s+be|should\s+be"
    rf"|appears|stands\s+as|turns\s+out|comes\s+out\s+as)(?:\s+to\s+be)?|(?<=['’])s)(?:\s+{_ADVERB})*,?\s+"
    rf"(?:(?P<firm>the\s+{_BEST}*(?:answer|response)\b(?!\s+to\s+(?:another|a\s+different|the\s+wrong))"
    rf"|(?:the|a)\s+{_BEST}+(?:{_KIND}|description|statement|query|completion|term|result|way)\b"
    rf"|my\s+(?:\w+\s+)?(?:{_KIND})\b|what\s+(?:the\s+question|is\s+(?:asked|wanted|meant))\b|what\s+i(?:['’](?:d|ll|m)|\s+would|\s+will|\s+am)?\s+(?:choos|chose|pick|answer|say|go\s|going\s|tick|mark|circl|put|tak|select|submit|enter|settl|vot|opt)\w*"
    rf"|where\s+i\s+(?:land|end\s+up)\b)"
    r"|(?P<soft>(?:correct|right|it|the\s+only\s+[^.,;\n]{1,40}\s(?:here|left|listed|among\s+(?:them|these)|of\s+(?:them|these)|(?:in|on)\s+the\s+list)|the\s+(?:only\s+)?one(?:\s+(?:that|which)\s+[^.,;\n]{1,60}+)?|the\s+(?:winner|keeper)|best)\b(?!\s+(?:that|about|in|to(?!\s+me\b)|of|if))(?:\s+to\s+me\b)?))"
    r"|(?<=\s)\s*+(?P<verb>it\s+(?:is|has\s+to\s+be|must\s+be)(?=\W*(?:[.!,;\n]|$))|stands\b|makes\s+(?:the\s+most|more)\s+sense\b|gets\s+my\s+vote\b|wins\b"
    r"|(?:fits|matches|works|answers|describes)\s+(?:\w+\s+){0,4}?(?:best|exactly|perfectly)\b"
    r"|holds\s+up\b)"
    r"|(?<=[–—:-])(?<![–—:-]{2})[–—:-]*+\s*+(?:this\s+is\s+)?(?P<mark>correct|right|yes|true)\b)"
)
_DONE = re.compile(r"[*_`)\"']*+\s*+(?:$|[.,;:!)]|(?<=\n)|(?:because|since|as|here|and)\b)")
_MAKES = re.compile(r"(?:mak(?:e|es|ing)|leav(?:es|ing)|deem|consider|believe|judge)\s")
_MAKES_VERDICT = re.compile(
    rf"\W*(?:(?:as|to\s+be)\s+)?(?:(?P<firm>the\s+{_BEST}*(?:{_KIND}|description)|(?:correct|right))\b"
    r"|the\s+(?:\w{2,}est|most|least|only|first)\b)"
)
_OF_IT = re.compile(r"\b(?:in|of|for|to|than|like|with|from|by|about|and|or|nor|both|not|/)\s+\W*$")
_CONCLUDE = re.compile(
    r"(?:(?<![\w'’])(?:so|thus|hence|therefore|consequently|ergo|accordingly|then|finally|namely"
    r"|in\s+conclusion|got(?:\s+to|ta)\s+be|turns\s+out\s+to\s+be|(?:dealing\s+with|talking\s+about|looking\s+(?:at|for))|which\s+(?:is|leaves|makes\s+it|gives|means)|leav(?:es|ing)|only|clearly"
    r"|(?<!with\s)(?<!from\s)(?:that|this|it)(?:['’](?:s|d\s+be)|\s+(?:is|was|would\s+be|must\s+be|has\s+to\s+be|should\s+be"
    r"|should\s+have\s+been|leaves|can\s+only\s+be|makes\s+it|points\s+to|means|matches|gives|had\s+to\s+be"
    r"|corresponds\s+to|describes))|must\s+(?:\w+\s+)?be|has\s+to\s+be|points?\s+(?:towards?|to|at)|correspond(?:s|ing)?\s+to"
    r"|matches|make\s+(?:it|that)|equals|(?:the|this|that)\s+(?:statement|claim|sentence|assertion)\s+is)|→|=>|=)"
    r"\s*[,:]?\s*(?:(?:us\s+with|us|only|just|with|as|then|therefore|really|clearly|definitely|indeed|now"
    r"|in\s+fact|actually|probably|still|go\s+with|choose|pick|select|answer|yes"
    r"|(?:it|they|he|she|this|that)(?=\s+(?!is\b|was|are\b|were|must|has|should|would|can\b|could|had))(?:\s+will)?)\s*[,:]?\s+){0,3}"
)
_SUMS_UP = re.compile(
    r"^\W*(?:so|thus|hence|therefore|consequently|in\s+total|altogether|in\s+all|overall"
    r"|in\s+conclusion|finally|this\s+means|that\s+means)\b"
)
_IS = re.compile(
    r"(?<!\w)(?<!so )(?:(?P<set>(?:is|are|was|were)\s+\w{3,15}\s+(?:in|on))"
    r"|(?:is|are|was|were)\s+\w{3,15}\s+(?:by|from|with)"
    r"|(?:is|are)\s+the\s+(?:one|kind|sort|type)\s+(?:that|which|who)\s+\w+"
    r"|(?:stands|lies|lives?|happens|occurs|takes\s+place|is|are|was|were)\s+in"
    r"|(?P<is>is|are|was|were|equals?|(?:makes?|gives?|leaves)(?:\s+(?:it|us|that))?|get|got|yields?)|called|named|describes|comes|follows"
    r"|means"
    r"|costs?|weighs?|measures?|lasts?|takes?|ha(?:s|ve)"
    r"|(?P<at>arrives?|boils|freezes|melts|starts?|ends?|stops?|begins?|meet|leaves?|stands)\s+at)"
    r"(?:,[^,.\n]{1,30},)?\s+|['’]s\s+|[:—–]\s+|=\s*"
)
_ONE_OF_THEM = re.compile(
    r"^\W*(?:the\s+)?(?:first|second|third|fourth|next|other|another|last|one|some|an?|now|let)\b"
)
_NO_SUBJECT = re.compile(
    rf"\b(?:non-?)?(?:{_KIND.removesuffix('|one')}|ans|opposite|key\s?word|tempting|popular|least|unlikely|clue|people|usually|often|distractor|competitor|contender|rival|runner-up|trap|lure"
    r"|temptation|favou?rite|mistake|error|example|step|hint)s?\b"
)
"""Subjects of which an option is predicated without being the answer, unless a noun such as
"answer" states it."""
_ASIDE = re.compile(
    r"\b(?:page|chapter|lesson|lecture|slide|worksheet|handout|textbook|atlas|exercise|yesterday"
    r"|previous|mix(?:es|ed)?\s+up|confus\w+"
    r"|(?:my|our)\s+(?!calculation|result|total|sum|count|estimate|reasoning|working))\b"
    r"|\bi\s+(?:was|am)\b"
)
"""Subjects of a sentence about the lesson, the speaker, or what others take for the answer."""
_A_THING = re.compile(r"\W*(?:[Tt]he|[Aa]n?|[Oo]ne|[Tt]h(?:is|at))\s+(?:[a-z'’-]+\s+)*+$")
"""A subject without a name. "The flight was delayed in Madrid" says where something happened;
"Magna Carta was sealed in 1215" says when it happened itself."""
_NOT_THE_OTHERS = re.compile(r",?\s(?:and\s)?(?:not|rather\s+than|instead\s+of)\s[^.,\n]{1,40}\W*$")
_BUT = re.compile(r"\bi\.e\.|[,;]\s(?:but|yet|so|hence|thus|therefore)\b|;")
_SPAN = re.compile(r"(?<!`)`(?P<code>[^`\n]{1,2000}+)`(?!`)")
_THAT_IS_IT = re.compile(
    r"(?<![\w'])(?:that|this|it|he|she|which|they)(?:['’]s|\s+(?:is|are|must\s+be|has\s+to\s+be))\s+"
    r"(?:(?:therefore|thus|then|also|hence)\s+)?(?:my\s+(?:\w+\s+)?(?:answer|choice|pick|guess|vote)"
    r"|what\s+i(?:['’]d|['’]ll|\s+would|\s+will)?\s+(?:answer|choose|pick|say|go\s+with|go\s+for))"
    r"(?=\W*(?:[.!;\n]|$))"
)
_LAST_LETTER = re.compile(
    r"(?:[:—–]|\s-|,\s+(?:option|choice|that\s+is,?|i\.e\.,?)|\b(?:names|fits|matches|suits|supports|favou?rs"
    r"|describes|implies|indicates|requires|(?:leads|points|speaks|corresponds)\s+(?:to|for)))"
    r"\s+\(?[*_]*+(?:(?:option|choice)\s+)?(?P<letter>[A-Z])\)?[*_]*+[.!\s]*+$"
)
_ONLY = re.compile(
    r"\W*(?:(?:so|thus|therefore|of\s+(?:the|these|all)\s+\w+),?\s+)?only\s+", re.IGNORECASE
)
_IN_TOTAL = re.compile(r"\b(?:in\s+total|altogether|in\s+all)\W*$")
_FENCED = re.compile(r"```[\w+-]*+[ \t]*+\n(?P<code>[^`]{1,4000}+)(?:```|$)")
_AN_ITEM = r"[ \t*_(>#-]*+(?:[Oo]ption\s)?(?P<letter>[A-Z])[*_]*+[).:]"
_ITEM = re.compile(_AN_ITEM)
_LISTED_LABEL = re.compile(r"\W*[A-Z]\W")
_LIST_LINE = re.compile(rf"(?:^|\n|[.;,]\s){_AN_ITEM}")
_LISTED = re.compile(r"(?:^|\n)(?:[ \t|>+•*-]|\d{1,2}\.\s)*+(?=\S)")
_VERDICT = re.compile(
    r"(?:[-–—:|.,(]\W{0,6}|^|(?<=\w)\s)(?:(?P<yes>yes|true|correct|right)"
    r"|no|not|false|wrong|incorrect)(?=[*_`]*+\s*+(?:[|.,;:!)–—-]|\n|$|(?:that|this|it|he|she|they|too|because|as|since)\b))",
    re.IGNORECASE,
)
"""What a line says of the option that it begins with."""
_LABEL_BEFORE = re.compile(r"(?<!\w)[A-Z][.)]\s*$")
_REASONED = re.compile(
    r"[*_`)\]\"'}]*+\s*+(?:[.!;]|—|–|-\s|(?<=\n)|$|,?\s*+(?:because|since|as)\b)"
)


def find_statements(text: str, options: OptionMatcher, strict: bool) -> list[Statement]:
    """Return the statements of an answer in a reply, sorted by position; empty if there are none.

    `text` is in plain form (`normalize_text`). A statement's letter is `NOBODY` (empty) where two
    options are named. With `strict` only "The answer is X" in its usual variants counts, in English
    or another language, and a LaTeX box.
    """
    low = lower_case(text)
    statements = [
        *_noun_statements(text, low, options, strict),
        *_boxed_statements(text, low, options),
    ]
    elsewhere = languages.foreign_statements(text, low, options)
    statements += [statement for statement in elsewhere if statement.firm or not strict]
    if not strict:
        statements += [
            *_chosen_statements(text, low, options),
            *_judged_statements(text, low, options),
        ]
        statements += _verdict_statements(text, low, options)
        statements += _concluded_statements(text, low, options)
    return sorted(statements)


def _noun_statements(
    text: str, low: str, options: OptionMatcher, strict: bool
) -> Iterator[Statement]:
    """Yield statements after "answer" and the like."""
    for noun in _NOUN.finditer(low):
        if low[noun.start() - 1 : noun.start()].isalnum() or (strict and noun[0] not in _PAPERS):
            continue
        link = _LINK.match(text, noun.end())
        alone = None if link else _ALONE.match(text, noun.end())
        if link is None and alone is None and not low.startswith(" ", noun.end()):
            continue
        start = claims.sentence_start(text, noun.start())
        before = low[start : noun.start()].replace("*", "").replace("_", "")
        if _CHANGED.search(before):
            yield from _changed_statements(text, noun, options)
            continue
        label = bool(_LABELS.fullmatch(noun[0]) and _LABEL.match(text, noun.end()))
        begin = claims.own_noun_phrase(before, noun[0], label) if link or alone else None
        if begin is None:
            continue
        begin = noun.start() - (len(before) - begin)
        if link:
            yield from _linked_statements(text, low, options, link, begin)
        elif _LINE_START.fullmatch(low, _line_start(low, noun.start()), noun.start()):
            named = options.option_at(text, alone.end(), "\n")  # type: ignore[union-attr]
            if named:
                yield Statement(begin, named.end, named.letter)


def _changed_statements(
    text: str, noun: re.Match[str], options: OptionMatcher
) -> Iterator[Statement]:
    """Yield the option of "I change my answer from A to B"."""
    to = _CHANGED_TO.match(text, noun.end())
    named = options.option_at(text, to.end()) if to else None
    if named and claims.is_asserted(text, noun.start(), named.end):
        yield Statement(noun.start(), named.end, named.letter)


def _linked_statements(
    text: str, low: str, options: OptionMatcher, link: re.Match[str], begin: int
) -> Iterator[Statement]:
    """Yield the option of "the answer is C"."""
    named = options.option_at(text, link.end(), link["link"])
    if named is None or not claims.own_aside(lower_case(link["aside"] or "")):
        return
    would = link["would"] is not None
    would = would or claims.about_another(low[claims.sentence_start(text, begin) : begin])
    if claims.is_asserted(text, begin, named.end, would):
        yield Statement(begin, named.end, named.letter, True, would, named.by_text)


def _boxed_statements(text: str, low: str, options: OptionMatcher) -> Iterator[Statement]:
    r"""Yield the option of `\boxed{C}`, unless the box is an intermediate result."""
    for box in wording.BOXED.finditer(low) if "boxed" in low else ():
        start = claims.sentence_start(text, box.start())
        before = low[start : box.start()]
        if "answer" in before or _NOT_BOXED.search(before):
            continue
        named = options.option_at(text, box.start(), "{")
        if named and claims.is_asserted(text, box.start(), named.end):
            yield Statement(box.start(), named.end, named.letter)


def _chosen_statements(text: str, low: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield what the speaker says to choose."""
    for verb in _CHOOSE.finditer(low):
        named = options.option_at(text, verb.end())
        if named is None or not _is_closed(text, named.end) or _AT_FIRST.match(low, named.end):
            continue
        if "tak" in verb[0] and options.is_number(named.letter):
            continue
        would = verb["would"] is not None or "'d" in verb[0]
        if claims.is_asserted(text, verb.start(), named.end, would):
            yield Statement(verb.start(), named.end, named.letter, True, False, named.by_text)


def _judged_statements(text: str, low: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield options that are said to be the answer, or right."""
    for predicate in _PREDICATE.finditer(low):
        named = options.option_before(text, predicate.start())
        if named is None:
            continue
        letter, start, by_text = named
        opening = claims.sentence_start(text, start)
        if _OF_IT.search(low[opening:start].replace("*", "")) and not predicate["mark"]:
            continue
        if (predicate["soft"] or predicate["mark"]) and not _DONE.match(text, predicate.end()):
            continue
        would = "would" in predicate[0]
        if claims.is_asserted(text, start, predicate.end(), would):
            by_text = by_text and predicate["mark"] is None
            firm = predicate["firm"] is not None
            yield Statement(start, predicate.end(), letter, firm, would, by_text)


def _verdict_statements(text: str, low: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield the option of "making C the correct answer"."""
    for verb in _MAKES.finditer(low):
        named = options.option_at(text, verb.end())
        verdict = _MAKES_VERDICT.match(low, named.end) if named else None
        if named and verdict and claims.is_asserted(text, verb.start(), named.end):
            firm, by_text = verdict["firm"] is not None, named.by_text
            yield Statement(verb.start(), named.end, named.letter, firm, False, by_text)


def _concluded_statements(text: str, low: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield what a sentence concludes: "so C", "that leaves C"."""
    for word in _CONCLUDE.finditer(low):
        named = options.option_at(text, word.end())
        if named is None or not named.letter or not _is_closed(text, named.end):
            continue
        if word[0].strip() == "=" and not named.by_text:
            continue
        if (
            text[named.end - 1 : named.end].islower()
            and not named.by_text
            and word.end() == named.end - 1
        ):
            continue
        if claims.is_asserted(text, word.start(), named.end):
            yield Statement(word.start(), named.end, named.letter, False, False, named.by_text)


def _is_closed(text: str, end: int) -> bool:
    return wording.CLOSED.match(text, end) is not None


def last_sentence(text: str) -> int:
    """Return the index where the last sentence begins; blanks and closing marks at the end do not
    count."""
    return claims.sentence_start(text, len(text.rstrip(" \n\t.!?*_\"')`")))


def closing_statements(text: str, options: OptionMatcher) -> list[Statement]:
    """Return soft statements, in no fixed order: options that a reply begins or ends with and says
    no more of.

    These are its first or last line, a list that judges each option, a fenced or quoted query, what
    "that is my answer" refers to, and what the last sentence comes to. Empty if there are none.
    """
    statements = list(_line_statements(text, options))
    statements += [*_judged_list(text, options), *_fenced_statements(text, options)]
    statements += _code_statements(text, options)
    statements += _referred_statements(text, options)
    return statements + list(_summary_statements(text, options))


def _line_statements(text: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield an option that makes up the first line, or the last line or sentence."""
    body = text.strip()
    listed = {match["letter"] for match in _LIST_LINE.finditer(text)}
    start, end = text.find(body[:1]) if body else 0, len(text.rstrip())
    if not body:
        return
    first = options.option_at(text, start)
    begun = body[:400].partition("\n")[0]
    if first and first.letter and len(listed) < 2 and _REASONED.match(text, first.end):
        at_once = first.by_text or options.letters[0] != first.letter or len(begun) < 3
        if at_once or options.sole_option(begun) or not _ITEM.match(text, start):
            yield Statement(start, first.end, first.letter, False)
    pieces = {text.rfind("\n", 0, end) + 1, text.rfind("\n\n", 0, end) + 1}
    if not _LABEL_BEFORE.search(text, max(0, last_sentence(text) - 8), last_sentence(text)):
        pieces.add(last_sentence(text))
    for at in pieces:
        fenced = "```" in text[at:end]  # fenced blocks are read together
        letter = options.sole_option(text[at:end]) if end - at < 2_000 and not fenced else None
        lines = (at, text.rfind("\n", 0, at) + 1)
        if letter and not (len(listed) > 1 and any(_ITEM.match(text, line) for line in lines)):
            yield Statement(max(at, start), end, letter, False)


def _judged_list(text: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield the result of a list that judges option by option: NOBODY if it affirms several."""
    if options.judge:
        return
    judged: dict[str, bool] = {}
    end = 0
    for line in _LISTED.finditer(text):
        named = options.option_at(text, line.end())
        stop = text.find("\n", line.end())
        stop = stop if stop >= 0 else len(text)
        verdict = _VERDICT.search(text, named.end, stop) if named and named.letter else None
        if named and verdict:
            judged[named.letter] = verdict["yes"] is not None
            end = stop
    right = [letter for letter, good in judged.items() if good]
    left = [letter for letter in options.letters if letter not in judged]
    if len(judged) > 1 and (right or len(left) == 1):
        yield Statement(end, end, right[0] if len(right) == 1 else "" if right else left[0], False)


def _fenced_statements(text: str, options: OptionMatcher) -> list[Statement]:
    """Return the one option in fenced blocks, or an empty list if they hold several."""
    statements = [
        Statement(fence.start(), fence.end(), letter, False)
        for fence in (_FENCED.finditer(text) if "```" in text else ())
        if (letter := options.sole_option(fence["code"]))
    ]
    return statements if len({statement.letter for statement in statements}) == 1 else []


def _code_statements(text: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield the query that the last sentence ends in."""
    start, end = last_sentence(text), len(text)
    start = text.rfind("\n", 0, start) + 1 if "`" in text[start - 1 : start] else start
    spans = list(_SPAN.finditer(text, start)) if "`" in text[start:] else []
    if len(spans) != 1 or not wording.NO_MORE.match(text, spans[0].end()):
        return
    letter = options.sole_option(spans[0]["code"])
    if letter and claims.is_asserted(text, spans[0].start(), end):
        yield Statement(spans[0].start(), end, letter, False)


def _referred_statements(text: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield the one option that a following "that is my answer" refers to."""
    low = lower_case(text)
    for match in _THAT_IS_IT.finditer(low):
        start = claims.sentence_start(text, match.start())
        if not re.search(r"\w", text[start : match.start()]):
            start = claims.sentence_start(text, max(0, start - 2))
        named = options.options_in(text[start : match.start()])
        if len(named) == 1 and claims.is_asserted(text, match.start(), match.end()):
            yield Statement(match.start(), match.end(), named.pop())


def _summary_statements(text: str, options: OptionMatcher) -> Iterator[Statement]:
    """Yield the one option that the last sentence comes to: a number or its last words if it begins
    with "so", or a text with its letter after "is"."""
    start = last_sentence(text)
    end = min(claims.sentence_end(text, start), len(text))
    sentence = lower_case(text[start:end])
    if rest := _NOT_THE_OTHERS.search(sentence):
        end = start + rest.start()
        text, sentence = text[:end], sentence[: rest.start()]
    if claims.has_denial(sentence) or not claims.is_asserted(text, start + 1, start + 1):
        return
    yield from _ends_in_a_letter(text, start, options)
    turn = max((match.end() for match in _BUT.finditer(sentence)), default=0)
    named_options = options.options_in(text[start + turn : end])
    if not _ONE_OF_THEM.search(sentence):
        yield from _comes_to(text, start, len(named_options) == 1, options)
    if not _SUMS_UP.match(sentence) and not _IN_TOTAL.search(sentence):
        return
    if len(named_options) == 1:
        letter = named_options.pop()
        if options.is_number(letter) and options.ends_in_another_number(text[start:end], letter):
            return
        if options.is_number(letter) or options.option_before(text, len(text.rstrip(" .!\n"))):
            yield Statement(start, end, letter, False, False, True)


def _comes_to(text: str, start: int, alone: bool, options: OptionMatcher) -> Iterator[Statement]:
    """Yield the option that the last sentence says something is: "The river in Paris is the
    Seine."."""
    for word in _IS.finditer(text, start):
        named = options.option_at(text, word.end())
        if not named or not named.letter or not wording.NO_MORE.match(text, named.end):
            continue
        subject = lower_case(text[start : word.start()])
        both = named.by_text and text[named.end - 1] == ")"
        joined = (alone and named.by_text) or word["is"] is not None
        if not claims.is_asserted(text, word.start(), named.end):
            continue
        a_number, bare = options.is_number(named.letter), text[named.end - 1].isdigit()
        if (a_number and bare and word["at"]) or _ASIDE.search(lower_case(text[start : named.end])):
            continue
        if word["set"] and not a_number and _A_THING.match(text, start, word.start()):
            continue
        if _LISTED_LABEL.match(text, start) and len(_LIST_LINE.findall(text)) > 1:
            continue
        if both or (joined and (alone or named.by_text) and not _NO_SUBJECT.search(subject)):
            yield Statement(word.start(), named.end, named.letter, False, False, True)


def _ends_in_a_letter(text: str, start: int, options: OptionMatcher) -> Iterator[Statement]:
    """Yield the option of "It asks about urine: D." and "Only option B does what is asked."."""
    last = _LAST_LETTER.search(text, max(start, len(text) - 40))
    noun = _NOUN.search(lower_case(text), start, last.start()) if last else None
    if last and (noun is None or noun[0] == "one") and last["letter"] in options.letters:
        yield Statement(last.start(), last.end(), last["letter"], False)
    only = _ONLY.match(text, start)
    named = options.option_at(text, only.end()) if only else None
    if named and named.letter and options.options_in(text[start:]) == {named.letter}:
        yield Statement(start, named.end, named.letter, False, False, named.by_text)


def _line_start(text: str, at: int) -> int:
    """Return where the line of a position begins, at most 80 characters before it."""
    return max(at - 80, text.rfind("\n", 0, at) + 1)
