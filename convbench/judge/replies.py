"""Read a judge's reply: its scores by metric, or a complaint that says what to mend.

The form is free: JSON by the schema or not, text, markdown, tables, tags, lists in one line. What is
said is not: each metric once, with one number in range, and no metric of its own. And all else that
the reply says must agree with these numbers: nothing in it names another scale (`_other_scale`), puts
another number in a score's place (`_replacement`), takes the scores back (`_withdrawal`) or
introduces them as somebody else's (`_is_others`). In doubt the judge is asked again: a reply that
cannot be read never becomes a score.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from convbench.answers.plain import seen, untagged
from convbench.answers.tags import may_hold_tags, segments
from convbench.judge.reply_form import Complaint, Scores, complaint
from convbench.schema import JudgeSpec, Metric

Limits = Collection[tuple[float, float]]
_QUOTED = "\ue000"
"""A line that stands for a quotation."""
_WORD = re.compile(r"[^\W\d_]{2}|[^\W\d_a-zA-Z]")
"""Letters, without which nothing is a justification; one sign is a word in some scripts."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys in order, twice where they stand twice."""


def read(reply: str | Pairs, spec: JudgeSpec) -> Scores | Complaint:
    """Return the scores of a reply, or of an object of it, or a complaint fit to be sent back to
    the judge."""
    known = _known(spec.metrics)
    reading = _Reading(spec, known)
    if isinstance(reply, Pairs):
        texts = list(_entries(reply, known))
    else:
        texts = _plain_lines("\n".join(_own_lines(reply)), known)
    if not any(text.strip() for text in texts):
        reading.faults.append("the reply is empty")
    reading.walk([line for text in texts if (line := _line(text)) is not None])
    if not reading.seen and _QUOTED in texts:
        reading.faults.append("what is quoted is not counted as yours")
    return reading.result()


# What is the judge's own

_BLOCK = re.compile(
    r"<(transcript|conversation|dialogue|chat|talk|history|blockquote|quote|q|example|format|template)"
    r"\b[^<>]{0,80}>.*?(?:</\1(?:-\w{1,40})?\s*>|\Z)"
    r"|\[(transcript|conversation|dialogue|history)\].*?(?:\[/\2\]|\[end[^\]]{0,30}\]|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_WHO = (
    r"(?:assistant|teacher|tutor|student|pupil|learner|user|human|agent|policy|bot|ai|model|system"
    r"|participant|speaker|author|writer|attacker|(?:re)?viewer|evaluator|judge|grader|rater"
    r"|annotator|examiner|assessor|marker|referee|colleague|someone|somebody)"
)
_TALK = r"(?:transcripts?|conversation|dialogue|chat|history|excerpt|talk|messages?|prompt|turn)"
_NOUN = (
    r"(?:(?:self[\s-]?)?(?:scores?|ratings?|evaluations?|verdicts?|assessments?|judge?ments?|marks?"
    r"|grades?|grading|scoring))"
)
_SPEAKER = re.compile(
    rf"[\W_]*+(?:{_WHO}[^\w:]*+(?:\d{{1,2}}[^\w:]*+)?:"
    rf"|(?:the\s+)?{_WHO}\s+(?:wrote|writes|says?|said|replied|claims?|claimed)\b[^.:]{{0,40}}:)",
    re.IGNORECASE,
)
_TALK_HEADING = re.compile(
    rf"[\W_]*+(?:(?:begin|start|full|complete|original|the|here\s+is|this\s+is|below\s+is)\s+){{0,3}}"
    rf"{_TALK}(?:\s+(?:log|history|transcript|again|so\s+far|below))*[\W_]*$",
    re.IGNORECASE,
)
_RULE = re.compile(r"\s*[-*_=—]{3,}\s*$")


def _own_lines(reply: str) -> list[str]:
    """Return the lines outside thoughts, with a mark in the place of each quotation: `>` lines,
    blocks between tags, fences that are called or introduced as such or hold speakers' lines."""
    if may_hold_tags(reply):
        reply = _BLOCK.sub(f"\n{_QUOTED}\n", _after_thought(reply))
    out: list[str] = []
    fence: list[str] | None = None
    for line in [*reply.splitlines(), ""]:
        bare = line.strip()
        if fence is None and bare.startswith(("```", "~~~")):
            fence = [line]
        elif fence is None:
            out.append(_QUOTED if bare.startswith((">", "&gt;")) else line)
        elif bare in ("```", "~~~"):
            out += _fenced(fence, next((text for text in reversed(out) if text.strip()), ""))
            fence = None
        else:
            fence.append(line)
    return out if fence is None else out + _fenced(fence, "")


def _fenced(lines: list[str], lead: str) -> list[str]:
    """Return the lines of a fenced block, or a mark where they are quoted."""
    name = lines[0].strip(" \t`~")
    quoted = name.lower() != "json" and any(map(_SPEAKER.match, lines[1:]))
    if quoted or _TALK_HEADING.match(name) or _leads_to_others(lead):
        return [_QUOTED]
    return [_QUOTED if line.lstrip().startswith((">", "&gt;")) else line for line in lines[1:]]


def _after_thought(reply: str) -> str:
    """Drop the thought before the reply; a thought that does not end is all there is."""
    pieces = [piece for piece in segments(reply) if reply[piece.start : piece.stop].strip()]
    if not pieces or not pieces[0].thinking:
        return reply
    return reply[pieces[1].start :] if len(pieces) > 1 else ""


# Forms of lists as lines "label: score. words"

_SCORE_KEYS = ("score", "rating", "value", "points", "grade")
_LABEL_KEYS = ("metric", "name", "criterion", "label", "dimension", "category")
_WORDS_KEYS = (
    "justification", "reason", "rationale", "explanation", "comment", "reasoning", "feedback",
    "note", "why",
)  # fmt: skip
_SCALE_KEY = re.compile(r"(?:out of|max|min|scale|range|high|low|best|worst|direction|better).*")
_FULLWIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20, 0xA0: 0x20}
_QUOTES = dict.fromkeys(map(ord, "“”„«»"), '"') | dict.fromkeys(map(ord, "‘’"), "'")
_LATEX = re.compile(r"\\(?:text[a-z]{0,4}|emph|mathbf)\{([^{}\n]{0,80})\}")
_ESCAPED_BREAK = re.compile(r"\\n(?![a-z])")
_OBJECT = re.compile(r"[{\[](?=\s*[\"{])")
_MOST = 200
"""Places in a reply at which JSON is looked for."""
_TAG = re.compile(r"<(/?)([A-Za-z][\w -]{0,40})>")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SIGNS = re.compile(r"[^a-z0-9 ]")
_SCORE_WORD = re.compile(r"^(?:score|rating) (?:for|of) (?:the )?|(?<=\w) (?:score|rating)$")


def _normal(label: str) -> str:
    """Return a label in lower case, letters and digits only, single spaces; without the word
    "score", which may stand before or after it."""
    words = " ".join(_SIGNS.sub(" ", _CAMEL.sub(" ", label[:200]).lower()).split())
    return _SCORE_WORD.sub("", words)


class _Known(NamedTuple):
    """What a rubric's metrics are called."""

    names: Mapping[str, str]
    """Names of the metrics by label, name and alias."""
    labels: frozenset[str]
    """The labels: metrics without a score too, where another name may be prose."""
    mention: re.Pattern[str]
    """A metric in a text."""
    listed: re.Pattern[str]
    """A metric in a list, with its number."""


@lru_cache(64)
def _known(metrics: tuple[Metric, ...]) -> _Known:
    """Return what these metrics are called: made once, and asked for with each reply."""
    labels = {_normal(metric.label): metric.name for metric in metrics}
    others = {_normal(text): metric.name for metric in metrics
              for text in (metric.name, *metric.aliases)}  # fmt: skip
    every = "|".join(
        re.escape(name).replace(r"\ ", r"[\s_-]+")
        for name in sorted({*labels, *others}, key=len, reverse=True)
    )
    mark = r"[\"'*_`]{0,4}"
    return _Known(
        {**others, **labels}, frozenset(labels), re.compile(rf"\b(?:{every})\b", re.IGNORECASE),
        re.compile(
            rf"(?<![^\W_]){mark}(?:{every}){mark}(?:[\s_](?:score|rating))?{mark}"
            rf"\s*+(?:[:=–—-]+\s*+|(?<=\s)|(?=\()){mark}[\[(]?{mark}\d", re.IGNORECASE,
        ),
    )  # fmt: skip


def _plain_lines(text: str, known: _Known) -> list[str]:
    """Return a text's lines, with every form of list as lines "label: score. words"."""
    text = seen(text).translate(_FULLWIDTH | _QUOTES)
    text = _ESCAPED_BREAK.sub("\n", _LATEX.sub(r"\1", text.replace("\\item", "-")))
    text = untagged(_tags(text, known)) if "<" in text else text
    text = _objects(text, known) if "{" in text else text
    lines = _tables(text.splitlines(), known) if "|" in text else text.splitlines()
    return [piece for line in lines for piece in _split(line, known)]


def _tags(text: str, known: _Known) -> str:
    """Write HTML's rows as rows of a table, and `<accuracy>8</accuracy>` as a line."""

    def one(tag: re.Match[str]) -> str:
        closing, name = tag[1], _normal(tag[2])
        word = "score" if name in _SCORE_KEYS else name if name in _WORDS_KEYS else ""
        if name in known.names or word:
            return "\n" if closing else f"\n{word or tag[2]}: "
        return {"tr": "|\n" if closing else "\n| ", "td": " | " if closing else ""}.get(
            name.replace("th", "td"), tag[0]
        )

    return _TAG.sub(one, text)


def _objects(text: str, known: _Known) -> str:
    """Write JSON objects as lines; numbers stay as they were written."""
    as_written: Any = str
    decoder = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=_Number, parse_float=_Number,
                               parse_constant=as_written)  # fmt: skip
    out, done = [], 0
    for place in [match.start() for match in _OBJECT.finditer(text)][:_MOST]:
        if place < done:
            continue
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        out += [text[done:place], "\n", *(f"{line}\n" for line in _entries(value, known))]
        done = end
    return "".join([*out, text[done:]])


class _Number(str):
    """A number of JSON as it was written."""


def _entries(value: Any, known: _Known) -> Iterator[str]:
    """Yield a JSON value's metrics as lines, and what it says besides."""
    if isinstance(value, Pairs):
        label = next((one for key, one in value if _normal(key) in _LABEL_KEYS), None)
        if isinstance(label, str) and _is_scored(value):
            yield from _entry(label, [pair for pair in value if pair[1] is not label])
            return
        for key, inner in value:
            if isinstance(inner, Pairs) and _is_scored(inner):
                yield from _entry(key, inner)
            elif isinstance(inner, Pairs | list) and _normal(key) not in known.names:
                words = _normal(key).removesuffix("s") in _WORDS_KEYS
                yield "" if words else f"{key}:"
                yield from _said(inner) if words else _entries(inner, known)
            else:
                nested = isinstance(inner, Pairs | list)
                yield f"{key}: {'several values' if nested else _one_line(inner)}"
    elif isinstance(value, list):
        for inner in value:
            yield from _entries(inner, known)


def _is_scored(pairs: Pairs) -> bool:
    return any(_normal(key) in _SCORE_KEYS for key, _ in pairs)


def _said(value: Any) -> Iterator[str]:
    """Yield the words of an object of justifications, each behind its metric's name."""
    for key, inner in value if isinstance(value, Pairs) else ():
        yield f"Justification of {key}: {_one_line(inner)}"


def _entry(label: str, pairs: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yield the lines of an object that is one metric: its score, its words, its scale."""
    scores = [inner for key, inner in pairs if _normal(key) in _SCORE_KEYS]
    number = scores[0]
    if isinstance(number, str) and not isinstance(number, _Number) and "/" not in number:
        number = f"the text {json.dumps(number)}"
    yield f"{label}: {_one_line(number) if len(scores) == 1 else 'the score twice'}"
    for key, inner in pairs:
        name = _normal(key)
        if name in _WORDS_KEYS:
            yield f"Justification: {_one_line(inner)}"
        elif name not in _SCORE_KEYS:
            yield f"{key.replace('_', ' ')}: {_one_line(inner)}"


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


def _tables(lines: list[str], known: _Known) -> Iterator[str]:
    """Yield the lines, rows of tables as "label: score. words"."""
    group: list[list[str]] = []
    for line in [*lines, ""]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        first = _normal(cells[0])
        begins = len(cells) > 1 and (first in known.names or first in _LABEL_KEYS)
        if line.strip().startswith("|") or (group and "|" in line) or begins:
            group.append(cells)
            continue
        yield from _table([row for row in group if set("".join(row)) - set(" :+-")], known)
        group = []
        yield line


def _table(rows: list[list[str]], known: _Known) -> Iterator[str]:
    head = [_normal(cell) for cell in rows[0]] if rows else []
    if sum(name in known.names for name in head) > 1:
        for row in rows[1:]:
            yield from (f"{label}: {cell}" for label, cell in zip(rows[0], row, strict=False))
        return
    for row in rows:
        at = next((i for i, cell in enumerate(row) if _normal(cell) in known.names), None)
        if at is None:
            words = " ".join(row[1:])
            yield f"{row[0]}: {words}" if row is not rows[0] else f"scale: {words}"
            continue
        column = _score_column(head, row, at)
        rest = " ".join(cell for i, cell in enumerate(row) if i not in (at, column) and i > 0)
        yield f"{row[at]}: " + (rest if column is None else f"{row[column]}. {rest}".strip())
        scales = (i for i, name in enumerate(head) if _SCALE_KEY.fullmatch(name))
        yield from (f"{head[i]}: {row[i]}" for i in scales if i < len(row))


def _score_column(head: list[str], row: list[str], label: int) -> int | None:
    """Return the cell with the score: the column of that name, or the one cell that is a score."""
    named = [i for i, name in enumerate(head) if name in _SCORE_KEYS and i < len(row)]
    if len(named) == 1:
        return named[0]
    plain = [re.sub(r"[*`_]+", "", cell) for cell in row]
    alone = [i for i, cell in enumerate(plain) if i > label and _SCORE.fullmatch(cell)]
    return alone[0] if len(alone) == 1 else None


def _split(line: str, known: _Known) -> list[str]:
    """Split a line that lists several metrics, each with a number."""
    found = list(known.listed.finditer(line)) if ":" in line or any(map(str.isdigit, line)) else []
    before = line[: found[0].start()] if found else ""
    if len(found) < 2 or not re.fullmatch(r"[^\w\"]*(?:[A-Za-z ]{0,20}[:=-])?[^\w\"]*", before):
        return [line]
    ends = [match.start() for match in found[1:]] + [len(line)]
    pieces = [line[match.start() : end] for match, end in zip(found, ends, strict=True)]
    return [before, *(piece.rstrip(" \t,;/|}]") for piece in pieces)]


# Lines and scores

_LEAD = re.compile(
    r"^(?:[^\w\[(\"'|/]|\(?\d{1,2}[.)]\s+|\(?[A-Fa-f][.)]\s+|(?:metric|criterion)\s+\d{1,2}\s*[:.–—-]\s*)*+",
    re.IGNORECASE,
)
_HEAD = re.compile(
    r"(?P<quote>[\"']?)(?P<label>[A-Za-z][A-Za-z _/&'-]{0,60}?)(?![A-Za-hj-z_/&])(?P=quote)\s*+"
    r"(?:[(\[](?P<aside>[^()\[\]]{0,60})[)\]]\s*+)?"
    r"(?P<link>[:=–—→⇒➜]++|[-=]>|\.{2,}|is\b|,(?=\s*\d)|-+(?=\s)|(?<=\s)(?=[\[(]?\d)|$)\s*+(?P<rest>.*)$"
)
"""A label, its link and the rest. What follows a label begins with none of the signs that are
passed over ahead of it: of the letters a link begins with `i` alone."""
_UNDERSCORES = re.compile(r"(?<!\w)_+|_+(?!\w)")
_ASIDE_SCORE = re.compile(r"\d+(?:\.\d+)?(?:\s*(?:/|out of)\s*\d+)?")
_NUMBER = r"[-+−]?\d+(?:\.\d+|,\d(?!\d))?"
_SCORE = re.compile(
    r"(?:(?:rated|scored|(?:i\s+)?(?:give|rate|score)s?\s+(?:it|this)(?:\s+an?\b)?)\s*+)?"
    r"(?:(?:score|rating|points?)\s*+(?:[:=]|of\b)?\s*+)?[\[(\"']?\s*+"
    rf"(?P<value>{_NUMBER})(?![\w%]|,\d)"
    r"(?:\s*(?:/|out\s+of|of)\s*(?P<of>\d+(?:\.\d+)?)(?![\w.]*\d))?"
    r"(?:\s*(?P<points>points?)\b)?\s*[\])\"']?",
    re.IGNORECASE,
)
_SCORE_LINE = re.compile(r"(?:score|rating)\s*+[:=]?\s*+[-+−\[(]?\d", re.IGNORECASE)
_LATE = re.compile(
    rf"\b(?:score|rating)\s*[:=]\s*(?P<one>{_NUMBER}.*)"
    rf"|(?:[.!?;–—-]\s*|\()(?P<two>{_NUMBER}\s*(?:/|out\s+of)\s*\d+)\s*\)?\.?\s*$",
    re.IGNORECASE,
)
"""A score behind its justification: "It picks granite. Score: 8", "It picks granite (8/10)"."""
_TAIL = re.compile(
    r"""\s*(?:$ | [.,;!|](?!\d|\.) | [:–—-]+(?![\s>]*(?:\d{1,2}(?!\d)|>)) | \((?!\s*\?) | [\[\])"'/]+(?=\s|$)
    | [^\x00-\x7f\w\s±×…♭→⇒➜⟶≈–—] | (?-i:[A-Z])
    | (?:because|since|as|for|due|with|but|given|overall|it|the|this)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
"""How what follows a number may begin, that the number be the score."""
_NOT_NOW = re.compile(
    r"\s*\((?:\w+\s+){0,2}?(?:previous|before|earlier|last|first|initial|old|draft|turn|prior"
    r"|example|max\w*|provisional|tentative|actually)\b|\s*for\s+(?:the\s+)?(?:turn|step|part"
    r"|first|last|previous)\b", re.IGNORECASE,
)  # fmt: skip


@dataclass(slots=True)
class _Line:
    """One line of a reply, without markdown.

    `label`: what stands before the colon (dash, or number), lower case; empty where the line
    begins otherwise. `shown`: the label as written. `aside`: in brackets behind it. `rest`: what
    follows. `linked`: a colon or dash stands between. `apart`: the label is bold, a heading, or
    numbered. `is_heading`: by its sign. `used`: the line is the score of the label above it.
    """

    text: str
    label: str = ""
    shown: str = ""
    aside: str = ""
    rest: str = ""
    linked: bool = False
    apart: bool = False
    is_heading: bool = False
    used: bool = False


def _line(raw: str) -> _Line | None:
    """Take a line apart; None for one that says nothing."""
    if not any(map(str.isalnum, raw)) and raw != _QUOTED and not _RULE.match(raw):
        return None
    marks = _LEAD.match(raw)[0] if raw != _QUOTED else ""  # type: ignore[index]
    text = _unmarked(raw[len(marks) :])
    apart = any(sign in marks for sign in ("#", "**", "__")) or any(map(str.isdigit, marks))
    head = _HEAD.match(text)
    if head is None:
        return _Line(text or raw.strip(), is_heading="#" in marks)
    rest, aside = head["rest"].strip(), head["aside"] or ""
    if _ASIDE_SCORE.fullmatch(aside) and not rest[:1].isdigit():
        rest, aside = f"{aside} {rest}".strip(), ""
    return _Line(
        text, _normal(head["label"]), head["label"].strip(), aside, rest,
        head["link"] not in ("", "is", ","), apart, "#" in marks,
    )  # fmt: skip


def _unmarked(text: str) -> str:
    """Drop bold, italic and code marks; underscores only around words."""
    text = text.replace("*", "").replace("`", "")
    return (_UNDERSCORES.sub("", text) if "_" in text else text).strip()


def _score(limits: tuple[float, float], text: str) -> tuple[float, str] | str:
    """Return the score that a text begins or ends with and the other words, or what is wrong."""
    low, high = limits
    match, rest = _SCORE.match(text), None
    if match is None and len(late := list(_LATE.finditer(text))) == 1:
        start = late[0].start("one") if late[0]["one"] else late[0].start("two")
        match, rest = _SCORE.match(text, start), text[: late[0].start()]
        text = text if late[0]["one"] else text[: late[0].end("two")]
    if match is None:
        return f"expected one number from {low:g} to {high:g}"
    value, tail = float(match["value"].replace(",", ".").replace("−", "-")), text[match.end() :]
    if match["of"] is not None and float(match["of"]) != high:
        return f"expected a score out of {high:g}"
    one = f"expected one number from {low:g} to {high:g} and nothing that puts it in question"
    if not (_TAIL.match(tail) or (match["of"] or match["points"]) and re.match(r"\s+[a-z]", tail)):
        return one
    if not low <= value <= high:
        return f"out of range, expected a number from {low:g} to {high:g}"
    return one if _NOT_NOW.match(tail) else (value, tail if rest is None else rest)


# What else a reply says of its scores

_SPELLED = {word: str(number) for number, word in enumerate(
    "zero one two three four five six seven eight nine ten".split())} | {
    "twenty": "20", "hundred": "100"}  # fmt: skip
_SPELLED_NUMBER = re.compile(
    rf"\b(?:a\s+)?({'|'.join(word for word in _SPELLED if word != 'one')}|one(?=\s*(?:\(|-?to\b)))\b"
)
_QUOTATION = re.compile(r'"[^"\n]{0,400}"')
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][)\"'])\s+")
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:'[a-z]+)?|[^\w\s]")
_N = r"\d+(?:\.\d+)?"
_GOOD = r"(?:best|top|perfect|flawless|excellent|outstanding|ideal|highest|max\w*)"
_BAD = r"(?:worst|bottom|poor|useless|terrible|bad|lowest|min\w*)"
_MEANS = r"\s*(?:[=:(]|\b(?:is|means?|stands?\s+for|for|denotes?|being|as)\b)\s*(?:an?\s+|the\s+)?"
_SCALE = re.compile(
    rf"\bscales?\b|\blikert\b|\blegend\b|\b{_N}[\s-](?:point|star|level)|\ban?\s+{_N}{_MEANS}{_GOOD}"
    rf"|\b(?:max\w*|highest|lowest|best|top|worst)\s+(?:\w+\s+)?{_NOUN}"
    rf"|\b(?:{_NOUN}|figures|numbers|values)\s+(?:\w+\s+){{0,2}}(?:in|as|are)\s+(?:\w+\s+)?(?:percent|stars)"
)
"""What speaks of a scale."""
_RANGE = re.compile(
    rf"\bout\s+of|{_N}\s*/|\bmax|{_N}\s+at\s+most|\bbetween\s+{_N}"
    rf"|{_N}\s*(?:\([^()]{{0,40}}\)\s*)?(?:-|–|to\b)\s*{_N}"
)
_SCORED = re.compile(
    rf"\b(?:{_NOUN}|i\s+(?:rate|score|grade)|(?:score|rate|grade|marke)d|total|(?:all|the|these|my)\s+(?:figures|numbers|values))\b"
)
_ABOUT = re.compile(
    rf"\b(?:{_NOUN}|points|metrics?|criteri(?:a|on)|ceiling|max\w*|scored|rated|marked|graded|scale)\b"
)
"""What a sentence beside all scores has that says what they are."""
_END = re.compile(rf"({_N}){_MEANS}(?:({_GOOD})|{_BAD})\b")
_LOW, _HIGH = (
    r"(?:low(?:er)?|small(?:er)?|less|fewer|least)",
    r"(?:high(?:er)?|large(?:r)?|bigger|greater|more)",
)
_TURN = r"\b(?:\s+(?:scores?|numbers?|values?|figures?|marks?|ratings?))?(?:\s+(?:is|are|means?|indicates?|the)\b|\s*=)\s+(?:an?\s+|the\s+)?"
_TURNED = re.compile(
    rf"\b{_LOW}{_TURN}(?:better|best|good)\b|\b{_HIGH}{_TURN}(?:worse|worst|bad|poor)\b|\b(?:revers|invert)ed\s+scale"
    rf"|\b{_LOW}\b[^.]{{0,30}}\bthe\s+better|\b{_HIGH}\b[^.]{{0,30}}\bthe\s+worse|\b(?:penalty|error|fault)\s+points"
)


def _digits(text: str) -> str:
    """Return a text in lower case with small numbers in digits."""
    low = _SPELLED_NUMBER.sub(lambda match: _SPELLED[match[1]], text.lower())
    return low.replace("’", "'")


def _names_scale(low: str) -> bool:
    """Whether a text in lower case speaks of a scale of scores."""
    return bool(
        _SCALE.search(low)
        or (_SCORED.search(low) and _RANGE.search(low))
        or len(_END.findall(low)) > 1
    )


def _other_scale(text: str, limits: Limits, *, surely: bool = False) -> bool:
    """Whether a text names a scale (`surely`: it does) that is none of these or turned round."""
    low = _digits(text)
    if _TURNED.search(low):
        return True
    if not (surely or _names_scale(low)):
        return False
    smallest, largest = {a for a, _ in limits}, {b for _, b in limits}
    return (
        any(float(n) not in smallest | largest for n in re.findall(rf"{_N}(?!\s*(?:/|out\b))", low))
        or any(float(n) not in (largest if good else smallest) for n, good in _END.findall(low))
        or (100.0 not in largest and re.search(r"\bpercent|%|\bstars\b", low) is not None)
    )


_SAID = (
    r"(?:say|says|said|claims?|claimed|writes?|wrote|states?|stated|asks?|asked|wants?|wanted|demand(?:s|ed)?"
    r"|request(?:s|ed)?|suggest(?:s|ed)?|propos(?:es|ed)|hope[sd]|typed|gave|gives|put|dictat\w+|(?:it|him|her|them)sel(?:f|ves))"
)
_OTHERS = re.compile(
    rf"{_WHO}s?|{_TALK}|he|she|they|answers?|sum|result|product|difference|equation"
)
_VOICE = frozenset("i i'd i'll i've i'm me my mine myself we our".split())
_JUDGING = _VOICE | frozenset(
    "score scores scored rating ratings rated mark marks grade grades verdict deserves deserve merits"
    " merit earns earn warrants warrant fairer honest scratch correction hindsight".split()
)
_REVISING = frozenset(
    "wait actually scratch correction correcting corrected edit edited hmm oops sorry reconsidered"
    " reconsidering hindsight reflection second thinking rereading again revised revising fairer"
    " closer honest honestly generous harsh lenient strict really rather instead truly maybe perhaps"
    " too should ought must would make call gets lower lowered raise raised drop dropped bump bumped"
    " cut reduce reduced adjust adjusted change changed move moved set settle update updated"
    " downgrade downgraded upgrade upgraded now mean meant no".split()
)
_KEEPING = frozenset("so but stay stays stayed still keep keeps kept remain remains".split())
_CORRECTING = frozenset(
    "correction erratum swap swapped strike replace mistyped typo typed misread kind generous harsh"
    " lenient".split()
)
_COUNTED_BY = frozenset(
    "turn turns step steps option options answer answers question questions line lines item items part"
    " parts example examples case cases choice choices chapter section page day round attempt stage"
    " level point points than not short + - * / = # × $".split()
)
_AFTER = frozenset(
    "instead rather now since because as for given then not but and at in on overall here really after"
    " though although however if is was would it out or to seems all when while more may might looks"
    " feels".split()
)
_BETWEEN = frozenset(
    ", ; : ( ) | & no or and then now up down was were from the a at maybe perhaps more like but really".split()
)


def _numbers(tokens: Sequence[str], low: float, high: float) -> list[int]:
    """Return the places of the numbers that may be a score: in range, and neither a count of
    something, nor the number of a turn or an option, nor a part of a sum."""
    found, base = [], ""
    for i, token in enumerate(tokens):
        if not token[0].isdigit():
            fraction = token == "/" and i > 0 and tokens[i - 1][0].isdigit()
            base = base if token in (",", "and", "or") or (token == "/" and not fraction) else token
            continue
        after = tokens[i + 1] if i + 1 < len(tokens) else "."
        whole = tokens[i + 1 : i + 3] == ["/", f"{high:g}"]
        counted = (after.isalpha() and after not in _AFTER) or after in "+*/=×^%°$€<>"
        plain = re.fullmatch(_N, token) is not None and low <= float(token) <= high
        if plain and (whole or not counted) and base not in _COUNTED_BY:
            found.append(i)
    return found


def _second(tail: str, limits: tuple[float, float]) -> bool:
    """Whether the sentence that a score stands in goes on to another one, or to its scale."""
    scale = re.match(r"\W*+(?:[a-z]++\W++)?(?:of|max\w*|on\s+a\s+scale[a-z ]*)\W*+\d+", tail)
    if scale and _other_scale(scale[0], {limits}, surely=True):
        return True
    tokens = _TOKEN.findall(_digits(_SENTENCE.split(tail, maxsplit=1)[0]))
    places = _numbers(tokens, *limits)
    return _BETWEEN.issuperset(tokens[: places[0]] if places else "x") or any(
        tokens[i + 1 : i + 2] in (["for"], ["if"], ["("])
        or any(re.fullmatch(_WHO, token) for token in tokens[max(0, i - 2) : i])
        for i in places
    )


def _replacement(
    text: str,
    known: _Known,
    scores: Mapping[str, float],
    name: str,
    limits: tuple[float, float],
    *,
    tail: bool,
) -> bool:
    """Whether a sentence beside the score of metric `name` puts another number in its place, or in
    another score's. In the `tail` behind all scores any number may."""
    if "~~" in text:
        return True
    text = _digits(_QUOTATION.sub('"', text))
    found = list(_TOKEN.finditer(text))
    tokens = [token[0] for token in found]
    places = _numbers(tokens, *limits)
    if tail and {*tokens} & _CORRECTING and (known.mention.search(text) or re.search(_NOUN, text)):
        return True
    said = {token for before, token in zip(["", *tokens], tokens, strict=False)
            if before not in ("a", "an") or token not in ("score", "rating", "mark", "grade")}  # fmt: skip
    if not places or _is_unreal(said) or _names_scale(re.sub(r"(?:/|out\s+of)\s*\d+", "", text)):
        return False
    mentions = [(match.start(), known.names[_normal(match[0])])
                for match in known.mention.finditer(text)]  # fmt: skip
    other = next((i for i, token in enumerate(tokens) if _OTHERS.fullmatch(token)), len(tokens))
    voice = next((i for i, token in enumerate(tokens) if token in _VOICE), len(tokens))
    speech = re.search(rf"\b{_SAID}\b", text) is not None
    revised = said & _REVISING and (said & {"this", "that", "it"} or {*tokens[:2]} & _REVISING)
    at = -1
    for i in places:
        while at + 1 < len(mentions) and mentions[at + 1][0] < found[i].start():
            at += 1
        own = scores.get(mentions[max(at, 0)][1] if mentions else name)
        confirmed = own == float(tokens[places[-1]]) and not (tail and _KEEPING.isdisjoint(tokens))
        if own == float(tokens[i]) or confirmed or tokens[i - 1] == "from":
            continue
        if other < i and speech and voice > i:
            continue
        near = mentions[max(at, 0)][0] - found[i].start() if mentions else 99
        linked = other > i and -40 < near < 16
        ends = i + 2 >= len(tokens) and tokens[i - 1 : i] in ([","], [":"]) and len(tokens) < 12
        if tail or linked or ends or said & _JUDGING or (other > i and revised):
            return True
    return False


def _is_unreal(said: Collection[str]) -> bool:
    """Whether the words of a sentence say what a score would be if."""
    return (
        not {"almost", "nearly", "tempted", "hesitated"}.isdisjoint(said)
        or not {"would", "could", "might", "had"}.isdisjoint(said)
        and not {"if", "with", "had", "without", "were", "unless", "have"}.isdisjoint(said)
        and {"hindsight", "reflection", "reconsidered", "again", "second"}.isdisjoint(said)
    )


_OWN = re.compile(
    rf"\b(?:my|our)\s+(?:\w+\s+){{0,2}}?{_NOUN}|\bi(?:'d|\s+would|\s+have|\s+now|\s+therefore)?"
    r"\s+(?:rate|score|evaluate|judge|grade|assess|assign|give|award)d?\b"
)
_LEADING = re.compile(
    rf"\b(?:{_NOUN}|metrics?|criteri(?:a|on)|results?|summary|report|breakdown|analysis|feedback"
    r"|review|here|follows?|json|scores?|rated?|evaluated?|final|range|scale|justifications?)\b"
)
_UNREAL = (
    r"example|sample|template|placeholder|dummy|fake|ficti|hypothe|illustrat|arbitrar|random|guess|pretend|joke"
    r"|kidding|draft|provisional|tentative|preliminary|void|invalid|wrong|incorrect|mistake|test\b|made\s+(?:\w+\s+)?up\b(?!\s+of)"
    r"|invent|quot|cop(?:y|ied)\b|past(?:ed|ing)\b|verbatim|dictat|demand|inject|instruct|hoped|wish|wanted|merely"
    r"|not\b|never\b|cannot\b|none\b|neither\b|refus|declin|refrain|abstain|withh|disagree|ignor|disregard|discard"
    r"|retract|withdraw|take\s+back|scrap|forget|impossible"
)
_AGAINST = re.compile(
    rf"\b(?:{_UNREAL}|no\b(?!\s+(?:more|longer))|without\b|(?:by|from)\s+the\s+(?:{_WHO}|{_TALK})|{_WHO}\s+(?:{_SAID})"
    rf"|{_WHO}'s|would\s+(?:be|have\s+been)\b|for\s+the\s+record)|n't\b"
)
_AGENT = re.compile(rf"\b(?:{_WHO}s?|{_TALK})\b.*\b(?:{_SAID}|wr(?:ote|ites)|contains?)\b")
_FOREIGN = re.compile(
    rf"\b(?:{_UNREAL}|beg(?:s|ged|ging)\b|wr(?:ote|ites|itten)\b|previous|prior\b|earlier|another|self"
    r"|(?:would|might|could)\s+look|according\s+to|told\s+to)|n't\b"
    rf"|\b{_WHO}s?\b(?!\s*$|\s*[.,;:)]|\s+(?:in|on|with|for|to|as|and|or|about|at|above|below|follows?|is|was)\b"
    rf"|'s\s+(?!own|self|previous|last|final|proposed|suggested|{_NOUN}|request|demand|wish|message|words)\w)"
    rf"|\b(?:by|from|to)\s+(?:the\s+|an?\s+)?(?:\w+\s+)?(?:{_WHO}|{_TALK})\b"
    r"|\bfor\s+the\s+(?:student|user|teacher|pupil|learner|human)\b"
    rf"|\b{_TALK}\b(?:'s)?\s+(?:\w+\s+){{0,3}}?(?:contain|say|said|end|read|include|tell|ask)"
)


def _is_others(text: str) -> bool:
    """Whether a line that leads to scores introduces them as somebody else's, or as none."""
    low = _unmarked(text).lower()
    foreign, own = _FOREIGN.search(low), _OWN.search(low)
    return foreign is not None and (own is None or own.start() > foreign.start())


def _leads_to_others(text: str, *, among: bool = False) -> bool:
    """Whether the line before scores says that they are not the judge's: one that leads to them
    must speak of an evaluation; `among` them it must speak of somebody."""
    bare = _unmarked(text).strip(" #_")
    if among:
        return bare.endswith(":") and _AGENT.search(bare.lower()) is not None
    last = _SENTENCE.split(bare)[-1]
    if bare.endswith(":") or (bare[-1:].isalpha() and len(bare.split()) > 3):
        return _is_others(last) or not _LEADING.search(last.lower())
    sentences = _SENTENCE.split(bare)
    if (
        _BELOW.search(bare.lower())
        and _AGAINST.search(bare.lower())
        and not _OWN.search(bare.lower())
    ):
        return True
    return any(_withdrawal(one, after=True) for one in sentences) or (
        bare[-1:].isalpha() and _is_others(text))  # fmt: skip


_BELOW = re.compile(r"\bfollow(?:s|ing)\b|\bbelow\b")
_MEANT = re.compile(
    r"^\W*(?:note:\s*)?(?:scores|values|numbers|ratings|figures)\b|\b(?:these|those|the|this|my|all|any|no|such|actual|real|own|of)\s+(?:(?:of|above|actual|real|own|the|overall)\s+){0,2}"
    rf"{_NOUN}\b|\b(?:these|those|my|all)\s+(?:numbers|figures|lines)\b|\bthe\s+above\b|^\W*(?:copied|quoted|pasted)"
    r"|^\W*(?:this|that)\s+(?:is|was)\s+(?:not|only|just|merely|what|an?|the)\b|\b(?:these|those)\b(?=\s*(?:$|[.,;:!]|(?:is|are|were|come|came|should|must|would)\b))"
)
_MEANT_AMONG = re.compile(
    rf"\b(?:these|those|my|all(?:\s+of)?(?:\s+the(?:se)?)?)\s+(?:above\s+)?{_NOUN}\b|\b{_NOUN}\s+(?:above|below)\b"
    r"|\b(?:the|all)\s+(?:of\s+the\s+)?above\b"
)
_REFUSAL = re.compile(
    r"\bi\s+(?:\w+\s+)?(?:refuse|decline|refrain|abstain|withhold|disagree|reject|retract|withdraw|disown|take\s+back)"
    r"|\bi\s+(?:can(?:not|'t)|could(?:\s+not|n't)|will\s+not|won't|do\s+not|don't|am\s+(?:unable|not\s+able)|have\s+not|haven't)"
    r"(?:\s+\w+){0,3}?\s+(?:evaluat|rat|scor|judg|assess|grad|accept|adopt|endors|agree|stand\s+by|vouch|giv|assign)(?:e|ed|ing)?\b"
    r"(?!\s+(?:it\s+|this\s+|them\s+)?(?:higher|above|more|better|fully))"
    r"|\bkidding\b|\bnot\s+an?\s+(?:actual|real|genuine|serious)\b|\b(?:only|just|merely)\s+an?\s+(?:test|example|joke|draft)\b"
    r"|\bmade\s+(?:these|the|those|all)\s+(?:\w+\s+)?up\b|\b(?:would|might|could)\s+look\b"
)


def _withdrawal(text: str, *, after: bool) -> bool:
    """Whether a sentence says that the scores are not to count. `after`: it stands behind all of
    them, where it may mean them; what stands among them mostly speaks of the talk."""
    low = _QUOTATION.sub('"', text.lower())
    if re.search(r"\b(?:average|mean|sum|median)\b|\bif\s+you\b", low):
        return False
    if after and _REFUSAL.search(low):
        return True
    return bool((_MEANT if after else _MEANT_AMONG).search(low) and _AGAINST.search(low))


# The reading

_NO_METRIC = frozenset(
    {*_WORDS_KEYS, "reasons", "comments", "notes", "score", "rating", "total", "sum", "mean", "average",
     "overall justification", "brief justification", "summary", "question", "original question",
     "choices", "answer", "correct answer"}
)  # fmt: skip
_JUSTIFICATION = re.compile(
    r"^(?:overall |brief )?(?:justification|rationale)\s*:\s*", re.IGNORECASE
)
_WORDS_OF = re.compile(
    rf"(?:(?:{'|'.join(_WORDS_KEYS)}) of )?(.+?)(?: (?:{'|'.join(_WORDS_KEYS)}))?"
)


@dataclass(slots=True)
class _Reading:
    """What has been found so far."""

    spec: JudgeSpec
    known: _Known
    scores: dict[str, float] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    """What is said ahead of the scores."""
    at: str | None = None
    """The metric whose words follow."""
    others: str = ""
    """The line that puts what follows in another's mouth."""
    in_talk: bool = False
    """Whether that line is a speaker's, or heads a transcript."""
    lead: str = ""
    """The last line of prose."""
    under: dict[str, int] = field(default_factory=dict)
    """How many lines of words stand under a metric's."""
    quotes: bool = False
    """Whether something is quoted."""

    def walk(self, lines: Sequence[_Line]) -> None:
        """Go through the lines: a metric's line starts it, other lines are its justification."""
        for index, line in enumerate(lines):
            if line.text == _QUOTED:
                self.lead, self.others, self.quotes = "", "", True
                self.in_talk = False
                continue
            source = self._source(line, lines, index + 1)
            name = self.known.names.get(line.label)
            if name and line.label not in self.known.labels and not _SCORE.match(
                source.text if source is not line else line.rest):  # fmt: skip
                name = None  # without a score it may be prose: "Reasoning: ..."
            if name is not None:
                self._metric(name, line, source)
            elif _is_unknown(line):
                self.faults.append(f"unknown metric: {line.shown}")
                self.at = None
            elif not line.used:
                self._prose(line)

    def _source(self, line: _Line, lines: Sequence[_Line], after: int) -> _Line:
        """Return the line that holds a metric's score: where this is a label alone the next one, or
        the next one that says "Score:" before another metric begins."""
        if after == len(lines) or line.label not in self.known.names or line.rest:
            return line
        for other in lines[after:]:
            if other.label in self.known.names:
                break
            if _SCORE_LINE.match(other.text):
                return other
        return lines[after]

    def _metric(self, name: str, line: _Line, source: _Line) -> None:
        """Take a metric's score, or note what is wrong with it."""
        among = bool(self.seen)
        if not self.others and self.lead and _leads_to_others(self.lead, among=among):
            self.others = self.lead
        self.lead = ""
        if self.others:
            source.used = True
            return
        label = self.spec.labels[name]
        limits = self.spec.limits(name)
        text = line.rest if source is line else source.text
        self.at = name
        if name in self.seen:
            self.faults.append(f"found twice: {label}")
            return
        self.seen.append(name)
        source.used = True
        if line.aside and _other_scale(line.aside, {limits}, surely=True):
            self.faults.append(self._scale(line.shown + f" ({line.aside})"))
        score = _score(limits, text)
        if not isinstance(score, str) and _second(score[1], limits):
            score = f"expected one number from {limits[0]:g} to {limits[1]:g}"
        if isinstance(score, str):
            self.faults.append(f"{label}: found {_shown(text)}; {score}")
            return
        self.scores[name], rest = score
        self.words.setdefault(name, []).extend(filter(None, [rest.lstrip(" \t.,;:–—-")]))

    def _prose(self, line: _Line) -> None:
        """Take a line that is no score: words for a metric, or what stands around them all."""
        owner = _WORDS_OF.fullmatch(line.label)
        name = self.known.names.get(owner[1]) if owner and owner[1] != line.label else None
        if name:
            self.words.setdefault(name, []).append(line.rest)
            return
        text = line.text
        if _RULE.match(text) or line.is_heading:
            self.others = "" if self.in_talk else self.others
            self.in_talk = False
        if _RULE.match(text):
            return
        if not self.seen and (_SPEAKER.match(text) or _TALK_HEADING.match(text)):
            self.others, self.in_talk = text, True
        elif self.others and _OWN.search(text.lower()) and not _is_others(text):
            self.others = ""
        if _SCALE_KEY.fullmatch(line.label):
            limits = {self.spec.limits(metric.name) for metric in self.spec.metrics}
            if _other_scale(text, limits, surely=True):
                self.faults.append(self._scale(text))
            return
        self.lead = text
        if self.at is None:
            self.before.append(text)
            return
        said = _JUSTIFICATION.match(text)
        self.under[self.at] = self.under.get(self.at, 0) + 1
        self.words.setdefault(self.at, []).append(text[said.end() :] if said else text)

    def _scale(self, text: str) -> str:
        return f"found another scale than the one asked for: {_shown(text)}"

    def result(self) -> Scores | Complaint:
        """Return what was read, once all that is said has been held against it."""
        limits = {self.spec.limits(metric.name) for metric in self.spec.metrics}
        for text in (one for line in self.before for one in _SENTENCE.split(line)):
            if _other_scale(text, limits) or self._limits_scores(text, limits):
                self.faults.append(self._scale(text))
            if not self.quotes and not _OWN.search(text.lower()) and _withdrawal(text, after=True):
                self.faults.append(f"the scores are disowned: {_shown(text)}")
        last = self.seen[-1] if self.seen else ""
        most = max((self.under.get(name, 0) for name in self.seen[:-1]), default=1)
        behind = self.under.get(last, 0) - most
        if self.others:
            self.faults.append(f"scores behind {_shown(self.others)} are not counted as yours")
        for name, said in self.words.items():
            for i, piece in enumerate(reversed(said)):
                for text in _SENTENCE.split(piece):
                    self._hold(name, text, limits, name == last and i < behind)
        words = {name: " ".join(said).strip() for name, said in self.words.items()}
        if self.spec.justification == "required":
            self.faults += [
                f"{self.spec.labels[name]}: found a score without a justification; expected words "
                "for it" for name in self.scores if not _WORD.search(words.get(name, ""))
            ]  # fmt: skip
        return complaint(self.spec, self.seen, self.faults) or Scores(
            {metric.name: self.scores[metric.name] for metric in self.spec.metrics}, words
        )

    def _limits_scores(self, text: str, limits: Limits) -> bool:
        """Whether a sentence about scores has a number that is neither one of them nor an end of
        their scale."""
        low = _digits(_QUOTATION.sub('"', text))
        tokens = _TOKEN.findall(low)
        own = {*self.scores.values(), *(end for pair in limits for end in pair)}
        return (
            _ABOUT.search(low) is not None
            and not _is_unreal({*tokens})
            and any(float(tokens[i]) not in own for i in _numbers(tokens, 0, 1000))
        )

    def _hold(self, name: str, text: str, limits: Limits, tail: bool) -> None:
        """Hold a sentence of the words for a metric against the scores."""
        if _other_scale(text, limits) or (tail and self._limits_scores(text, limits)):
            self.faults.append(self._scale(text))
        if _replacement(text, self.known, self.scores, name, self.spec.limits(name), tail=tail):
            self.faults.append(f"{name}: the score is taken back ({_shown(text)})")
        if _withdrawal(text, after=bool(self.seen) and name == self.seen[-1]):
            self.faults.append(f"the scores are disowned: {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"


def _is_unknown(line: _Line) -> bool:
    """Whether a line scores something that no rubric asked for.

    Only a line that is nothing but label and score, or sets the label apart by markdown, is
    taken for a metric: "Note: 3 options were weighed" is prose.
    """
    if not line.linked or line.label in _NO_METRIC or not 0 < len(line.label) <= 40:
        return False
    match = None if _SCALE_KEY.fullmatch(line.label) else _SCORE.match(line.rest)
    return match is not None and (line.apart or not line.rest[match.end() :].strip(" ."))
