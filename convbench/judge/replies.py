"""Read a judge's reply: its scores by metric, or a complaint that says what to mend.

The form is free (`reply_form`): JSON by the schema or not, text, markdown, tables, lists in one
line. What is said is not: each metric once, with one number in range, and no metric of its own. And
all else that the reply says must agree with these numbers (`reply_doubts`): nothing names another
scale, puts another number in a score's place, takes the scores back or introduces them as somebody
else's. In doubt the judge is asked again: a reply that cannot be read never becomes a score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from convbench.answers.tags import may_hold_tags, segments
from convbench.judge.reply_doubts import (
    FOREIGN,
    OWN,
    SENTENCE,
    TALK,
    WHO,
    Limits,
    goes_on,
    is_others,
    leads_to_others,
    limits_scores,
    other_scale,
    replaces,
    withdraws,
)
from convbench.judge.reply_form import (
    SCALE_KEY,
    WORDS_KEYS,
    Complaint,
    Known,
    Pairs,
    Scores,
    complaint,
    known_of,
    lines_of,
    normal,
    plain_lines,
)
from convbench.schema import JudgeSpec

_QUOTED = "\ue000"
"""A line that stands for a quotation."""
_WORD = re.compile(r"[^\W\d_]{2}|[^\W\d_a-zA-Z]")
"""Letters, without which nothing is a justification; one sign is a word in some scripts."""


def read(reply: str | Pairs, spec: JudgeSpec) -> Scores | Complaint:
    """Return the scores of a reply, or of an object of it, or a complaint fit to be sent back to
    the judge."""
    known = known_of(spec.metrics)
    reading = _Reading(spec, known)
    if isinstance(reply, Pairs):
        texts = list(lines_of(reply, known.names))
    else:
        texts = plain_lines("\n".join(_own_lines(reply.replace(_QUOTED, ""))), known)
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
_SPEAKER = re.compile(
    rf"[\W_]*+(?:{WHO}[^\w:]*+(?:\d{{1,2}}[^\w:]*+)?:"
    rf"|(?:the\s+)?{WHO}\s+(?:wrote|writes|says?|said|replied|claims?|claimed)\b[^.:]{{0,40}}:)",
    re.IGNORECASE,
)
_TALK_HEADING = re.compile(
    rf"[\W_]*+(?:(?:begin|start|full|complete|original|the|here\s+is|this\s+is|below\s+is)\s+){{0,3}}"
    rf"{TALK}(?:\s+(?:log|history|transcript|again|so\s+far|below))*[\W_]*$",
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
    if quoted or _TALK_HEADING.match(name) or leads_to_others(_unmarked(lead)):
        return [_QUOTED]
    return [_QUOTED if line.lstrip().startswith((">", "&gt;")) else line for line in lines[1:]]


def _after_thought(reply: str) -> str:
    """Drop the thought before the reply; a thought that does not end is all there is."""
    pieces = [piece for piece in segments(reply) if reply[piece.start : piece.stop].strip()]
    if not pieces or not pieces[0].thinking:
        return reply
    return reply[pieces[1].start :] if len(pieces) > 1 else ""


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
    rf"|(?:[.!?;–—-]\s*|\()(?P<two>{_NUMBER}\s*(?:/|out\s+of)\s*\d+)\s*+\)?\.?\s*+$",
    re.IGNORECASE,
)
"""A score behind its justification: "It picks granite. Score: 8", "It picks granite (8/10)"."""
_TAIL = re.compile(
    r"""\s*(?:$ | [.,;!|](?!\d|\.) | [:–—-]+(?![\s>]*(?:\d{1,2}(?!\d)|>))
    | [(\[](?!\s*\?) | [\])"'/]+(?=\s|$) | [^\x00-\x7f\w\s±×…♭→⇒➜⟶≈–—] | (?-i:[A-Z])
    | (?:because|since|as|for|due|with|but|given|overall|it|the|this)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
"""How what follows a number may begin, that the number be the score."""
_NOT_NOW = re.compile(
    r"\s*\((?:\w+\s+){0,2}?(?:previous|before|earlier|last|first|initial|old|draft|turn|prior"
    r"|example|max\w*|provisional|tentative|actually)\b|\s*for\s+(?:the\s+)?(?:turn|step|part"
    r"|first|last|previous)\b",
    re.IGNORECASE,
)


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
    lead = _LEAD.match(raw)
    marks = lead[0] if lead and raw != _QUOTED else ""
    text = _unmarked(raw[len(marks) :])
    apart = any(sign in marks for sign in ("#", "**", "__")) or any(map(str.isdigit, marks))
    head = _HEAD.match(text)
    if head is None:
        return _Line(text or raw.strip(), is_heading="#" in marks)
    rest, aside = head["rest"].strip(), head["aside"] or ""
    if _ASIDE_SCORE.fullmatch(aside) and not rest[:1].isdigit():
        rest, aside = f"{aside} {rest}".strip(), ""
    return _Line(
        text,
        normal(head["label"]),
        head["label"].strip(),
        aside,
        rest,
        head["link"] not in ("", "is", ","),
        apart,
        "#" in marks,
    )


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
    if not (
        _TAIL.match(tail) or ((match["of"] or match["points"]) and re.match(r"\s+[a-z]", tail))
    ):
        return one
    if not low <= value <= high:
        return f"out of range, expected a number from {low:g} to {high:g}"
    return one if _NOT_NOW.match(tail) else (value, tail if rest is None else rest)


# The reading

_NO_METRIC = re.compile(
    rf"(?:{'|'.join(WORDS_KEYS)})s?|(?:overall|brief) justification|score|rating|total|sum|mean"
    r"|average|summary|(?:original )?question|choices|(?:correct )?answer"
)
_JUSTIFICATION = re.compile(
    r"^(?:overall |brief )?(?:justification|rationale)\s*:\s*", re.IGNORECASE
)
_WORDS_OF = re.compile(rf"(?:(?:{'|'.join(WORDS_KEYS)}) of )?(.+?)(?: (?:{'|'.join(WORDS_KEYS)}))?")


@dataclass(slots=True)
class _Reading:
    """What has been found so far."""

    spec: JudgeSpec
    known: Known
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
            if (
                name
                and line.label not in self.known.labels
                and not _SCORE.match(source.text if source is not line else line.rest)
            ):
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
        for other in islice(lines, after, None):
            if other.label in self.known.names:
                break
            if _SCORE_LINE.match(other.text):
                return other
        return lines[after]

    def _metric(self, name: str, line: _Line, source: _Line) -> None:
        """Take a metric's score, or note what is wrong with it."""
        among = bool(self.seen)
        if not self.others and self.lead and leads_to_others(self.lead, among=among):
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
        if line.aside and other_scale(line.aside, {limits}, surely=True):
            self.faults.append(self._scale(line.shown + f" ({line.aside})"))
        score = _score(limits, text)
        if not isinstance(score, str) and goes_on(score[1], limits):
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
        source = line.label in ("source", "author", "origin", "rater", "from", "given by")
        if not self.seen and source and FOREIGN.search(line.rest.lower()):
            self.others = text
        elif not self.seen and (_SPEAKER.match(text) or _TALK_HEADING.match(text)):
            self.others, self.in_talk = text, True
        elif self.others and OWN.search(text.lower()) and not is_others(text):
            self.others = ""
        if SCALE_KEY.fullmatch(line.label):
            limits = {self.spec.limits(metric.name) for metric in self.spec.metrics}
            if other_scale(text, limits, surely=True):
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
        for text in (one for line in self.before for one in SENTENCE.split(line)):
            if limits_scores(text, limits, ()):
                self.faults.append(self._scale(text))
            if not self.quotes and not OWN.search(text.lower()) and withdraws(text, after=True):
                self.faults.append(f"the scores are disowned: {_shown(text)}")
        last = self.seen[-1] if self.seen else ""
        most = max((self.under.get(name, 0) for name in self.seen[:-1]), default=1)
        behind = self.under.get(last, 0) - most
        if self.others:
            self.faults.append(f"scores behind {_shown(self.others)} are not counted as yours")
        for name, said in self.words.items():
            for i, piece in enumerate(reversed(said)):
                for text in SENTENCE.split(piece):
                    self._hold(name, text, limits, name == last and i < behind)
        words = {name: " ".join(said).strip() for name, said in self.words.items()}
        if self.spec.justification == "required":
            self.faults += [
                f"{self.spec.labels[name]}: found a score without a justification; expected words "
                "for it"
                for name in self.scores
                if not _WORD.search(words.get(name, ""))
            ]
        return complaint(self.spec, self.seen, self.faults) or Scores(
            {metric.name: self.scores[metric.name] for metric in self.spec.metrics}, words
        )

    def _hold(self, name: str, text: str, limits: Limits, tail: bool) -> None:
        """Hold a sentence of the words for a metric against the scores."""
        if limits_scores(text, limits, self.scores.values()) if tail else other_scale(text, limits):
            self.faults.append(self._scale(text))
        if replaces(
            text, self.known.mentioned, self.scores, name, self.spec.limits(name), tail=tail
        ):
            self.faults.append(f"{name}: the score is taken back ({_shown(text)})")
        if withdraws(text, after=bool(self.seen) and name == self.seen[-1]):
            self.faults.append(f"the scores are disowned: {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"


def _is_unknown(line: _Line) -> bool:
    """Whether a line scores something that no rubric asked for.

    Only a line that is nothing but label and score, or sets the label apart by markdown, is
    taken for a metric: "Note: 3 options were weighed" is prose.
    """
    if not line.linked or _NO_METRIC.fullmatch(line.label) or not 0 < len(line.label) <= 40:
        return False
    match = None if SCALE_KEY.fullmatch(line.label) else _SCORE.match(line.rest)
    return match is not None and (line.apart or not line.rest[match.end() :].strip(" ."))
