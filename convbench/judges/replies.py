"""Read a judge's reply: its scores by metric, or a complaint that says what to correct.

A reply is JSON, or a text of heads: a metric's label, its number, and words up to the next head.
Each metric must occur once, with one number in its range. The rest of the reply must not contradict
these numbers: a sentence that names another scale or another number, or that attributes the scores
to somebody else, is a fault. In doubt the judge is asked again: an unreadable reply never becomes a
score.

Most of the code, with `reply_doubts`, checks the words around the numbers.
Of the 760 labelled replies of the tests (284 good ones) all are read correctly; of 80 new ones 61
were, 18 were asked again and 1 got an invented score. Without the checks 181 of the 760 would get
invented scores: 71 of another scale, 61 taken back, 42 disowned (54 more are introduced as another
speaker's). Shorter rules were tried: any other number of the range is a fault (18 good ones asked
again, 4 invented); only harmless words may mention the scores (14 and 2); doubting words in any
order (10 and 11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from convbench.answers.normalize import normalize_text
from convbench.answers.tags import may_hold_tags, split_segments
from convbench.judges.reply_doubts import (
    OWN,
    QUOTATION,
    SENTENCE,
    WORDS,
    Floats,
    Sentence,
    goes_on,
    is_afterthought,
    is_harmless,
    is_others,
    is_unreal,
    names_scale,
    numbers_in,
    other_scale,
    parse_sentence,
    refuses_evaluation,
    withdraws_scores,
    word_pattern,
)
from convbench.schema import JudgeSpec, Metric

FENCE = re.compile(
    r"\A\s*+```(?:json)?[^\S\n]*+\n(.*)\n[^\S\n]*+```\s*+\Z", re.DOTALL | re.IGNORECASE
)
"""A code fence around the complete reply."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores and justifications of a readable reply, by metric name."""

    scores: dict[str, float]
    justifications: dict[str, str]


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a reply could not be read, as a message to the judge: what was found, what expected."""

    text: str


class JsonPairs(list[tuple[str, Any]]):
    """A JSON object as (key, value) pairs in order, duplicate keys included."""


def read_reply(reply: str | JsonPairs, spec: JudgeSpec) -> Scores | Complaint:
    """Return the scores and justifications of a reply, or of a JSON object in it, for all metrics
    in the spec's order; or a complaint to send to the judge, which lists all faults.

    A justification is empty if there is none. A metric that is missing, doubled or out of range,
    and words that contradict the scores, are faults.
    """
    reading = _ReplyReader(spec, metric_names(spec.metrics))
    if isinstance(reply, JsonPairs):
        reading.take_json(reply)
        return reading.result()
    text = _mark_quotations(_drop_thought(reply.translate(_NO_MARKS)))
    text = _read_json(text, reading) if "{" in text or "[" in text else text
    if not text.strip():
        reading.faults.append("the reply is empty")
    reading.take_text(_strip_markup(text))
    if not reading.scores and _QUOTED in text:
        reading.faults.append("what is quoted is not counted as yours")
    return reading.result()


# What is the judge's own

_QUOTED, _READ = "\ue000", "\ue001"
"""Placeholders for a quotation, and for JSON that was read, each on its own line."""
_NO_MARKS = dict.fromkeys(map(ord, _QUOTED + _READ))
_BLOCK = re.compile(
    r"<(transcript|conversation|dialogue|chat|talk|history|blockquote|quote|q|example|format"
    r"|template)\b[^<>]{0,80}>.*?(?:</\1(?:-\w{1,40})?\s*>|\Z)"
    r"|\[(transcript|conversation|dialogue|history)\].*?(?:\[/\2\]|\[end[^\]]{0,30}\]|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_SPEAKER = re.compile(
    rf"[\W_]*+(?:the\s+)?{word_pattern('others')}[^\w:]*+(?:\d{{1,2}}[^\w:]*+)?:", re.IGNORECASE
)
_OPENING, _CLOSING = re.compile(r"<([A-Za-z][\w -]{0,40})>"), re.compile(r"</[\w -]{1,40}>")
_UNDERSCORES = re.compile(r"(?<!\w)_+|_+(?!\w)")


def _drop_thought(reply: str) -> str:
    """Return the reply without the thought before it (empty if the thought does not end), and with
    placeholders for text in tags of a quotation."""
    if not may_hold_tags(reply):
        return reply
    pieces = [piece for piece in split_segments(reply) if reply[piece.start : piece.stop].strip()]
    if pieces and pieces[0].thinking:
        reply = reply[pieces[1].start :] if len(pieces) > 1 else ""
    return _BLOCK.sub(f"\n{_QUOTED}\n", reply)


def _mark_quotations(text: str) -> str:
    """Return a text with a placeholder for each quotation: `>` lines, and code fences that are
    labelled or introduced as somebody else's, or contain speakers' lines."""
    if not any(sign in text for sign in (">", "&gt;", "```", "~~~")):
        return text
    out: list[str] = []
    fence: list[str] | None = None
    for line in [*text.splitlines(), "```"]:
        bare = line.strip()
        if not bare.startswith(("```", "~~~")) or (fence is not None and bare.strip("`~")):
            quoted = bare.startswith((">", "&gt;"))
            (out if fence is None else fence).append(_QUOTED if quoted else line)
        elif fence is None:
            fence = [bare.strip("`~ ").lower()]
        else:
            lead = next((written for written in reversed(out) if written.strip()), "")
            others = fence[0] in WORDS["others"] or is_others(parse_sentence(lead))
            quoted = others or any(map(_SPEAKER.match, fence[1:]))
            out += [_QUOTED] if quoted else fence[1:]
            fence = None
    return "\n".join(out)


def _strip_markup(text: str) -> str:
    """Return a text without markup; an unknown opening tag becomes the start of a line."""
    text = normalize_text(text)
    if "<" in text:
        text = _OPENING.sub(r"\n\1: ", _CLOSING.sub("\n", text))
    if "\\" in text:
        text = re.sub(r"\\n(?![a-z])", "\n", re.sub(r"\\(?:text[a-z]{0,4}|item)\b", "", text))
    text = text.replace("*", "").replace("`", "")
    return _UNDERSCORES.sub("", text) if "_" in text else text


def _read_json(text: str, reading: _ReplyReader) -> str:
    """Read the JSON in a text; return the text with a placeholder for each object."""
    as_written: Any = str
    decoder = json.JSONDecoder(object_pairs_hook=JsonPairs, parse_constant=as_written)
    out, done = [], 0
    for start in [match.start() for match in _OBJECT.finditer(text)][:_MOST]:
        if start < done:
            continue
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        reading.take_json(value)
        out += [text[done:start], f"\n{_READ}\n"]
        done = end
    return "".join([*out, text[done:]])


_OBJECT = re.compile(r"[{\[](?=\s*[\"{])")
_MOST = 200
"""Most positions of a reply at which JSON is tried."""


# Heads of a text


class MetricNames(NamedTuple):
    """The names under which a rubric's metrics may occur in a reply."""

    names: Mapping[str, str]
    """Names of the metrics by normalised label, name and alias."""
    labels: frozenset[str]
    """The normalised labels. Only they are heads without a number; other names may be prose."""
    head: re.Pattern[str]
    """Matches a metric in a text, and what links it to a number after it."""

    def name_of(self, head: re.Match[str]) -> str:
        """Return the name of the metric that a head (a match of `head`) names; "" for JSON that was
        read."""
        return self.names[_normal_label(head["name"])] if head["name"] else ""


_CAMEL, _SIGNS = re.compile(r"(?<=[a-z])(?=[A-Z])"), re.compile(r"[^a-z0-9]+")
_SCORE_WORD = re.compile(r"^(?:score|rating) (?:for|of) (?:the )?|(?<=\w) (?:score|rating)$")


def _normal_label(label: str) -> str:
    """Return a label in lower case, letters and digits only, single spaces, without the word
    "score" before or after it."""
    words = _SIGNS.sub(" ", _CAMEL.sub(" ", label[:200]).lower()).strip()
    return _SCORE_WORD.sub("", words)


@lru_cache(64)
def metric_names(metrics: tuple[Metric, ...]) -> MetricNames:
    """Return the names under which these metrics may occur in a reply, with a pattern that finds
    them; cached, since every reply needs them."""
    labels = {_normal_label(metric.label): metric.name for metric in metrics}
    names = {
        _normal_label(text): spec_metric.name
        for spec_metric in metrics
        for text in (spec_metric.name, *spec_metric.aliases)
    }
    every = sorted(names | labels, key=len, reverse=True)
    any_name = "|".join(re.escape(name).replace(r"\ ", r"[\s_-]{0,3}") for name in every)
    aside = r"[(\[](?!\d+(?:\.\d+)?(?:\s?(?:/|out of)\s?\d+)?[)\]])[^()\[\]\n]{0,60}[)\]]"
    link = rf"""(?:[\s:=|"'(){{}}\[–—#]|\.\.+|[-=]+>|-(?=\s)|,(?=\d)|{word_pattern("link")})"""
    head = (
        rf"{_READ}|(?<![^\W_])(?P<name>{any_name})(?![^\W_])"
        rf"(?:[\"'\s_-]{{0,3}}(?:scores?|ratings?)\b)?(?P<aside>\s{{0,4}}{aside})?"
        rf"(?P<link>{link}{{0,60}}+(?=[-+]?\.?\d))?"
    )
    return MetricNames(names | labels, frozenset(labels), re.compile(head, re.IGNORECASE))


_LEAD = re.compile(
    r"[\W_]*(?:(?:metric |criterion )?(?:\d{1,2}|[A-F])\s?[.):|–—-][\W_]*)?"
    r"(?:(?:scores?|ratings?|for|of|the|i|would|give)\s){0,4}[\W_]*",
    re.IGNORECASE,
)
"""What may come before a metric on its line."""
_LISTED = re.compile(r"""(?:[,;:|/.&})\]\d]|\band)[\s"'({]*(?:for\s)?$""", re.IGNORECASE)
"""How the text before a metric in a list ends."""
_ALONE = re.compile(r"""["'} ]{0,3}(?::|=|[–—-]\s|\||\n|\Z)""")
_NEAR = 60


def _iter_heads(text: str, metric_names: MetricNames) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield (start of its part, match) of each metric that begins a line or is in a list, and of
    each placeholder of JSON."""
    for head in metric_names.head.finditer(text):
        start, after = head.start(), text[head.end() : head.end() + _NEAR]
        before = text[max(0, start - _NEAR) : start]
        _, newline, line = before.rpartition("\n")
        begins = bool(newline or start <= _NEAR) and _LEAD.fullmatch(line) is not None
        if not head["name"]:
            yield start, head
        elif line[-1:] in ("'", '"') and text[head.end("name") : head.end("name") + 1] != line[-1]:
            continue  # it begins a quotation
        elif head["link"] is not None:
            if begins or _LISTED.search(line):
                yield start - len(line) * begins, head
        elif begins and _ALONE.match(after) and _normal_label(head["name"]) in metric_names.labels:
            yield start - len(line), head


_NUMBER = r"[-+]?(?:\d+(?:\.\d+|,\d(?!\d))?|\.\d+)(?!(?![分点점])\w|[.,](?:\d|x\b))"
_VALUE = re.compile(
    rf"(?P<value>{_NUMBER})"
    r"(?:\s?(?P<share>%)|\s?(?:/|out\s+of|of|de|di|sur|von|av|из|\|(?=\s*\d+\s*\|))\s{0,9}"
    r"(?P<of>\d+(?:\.\d+)?)(?![\w.]*\d)(?: stars?\b)?)?"
    r"""(?: ?points?\b|[分点점])?(?: ?[\])\"'}]{1,2})?""",
    re.IGNORECASE,
)
_LATE = re.compile(
    rf"\b(?:score|rating)\s?[:=]\s?(?={_NUMBER})|\|\s?(?={_NUMBER}(?:/\d+)?\s?\|?\s*$)"
    rf"|(?:(?<!\d)[.!?;–—-]\s?|\()(?={_NUMBER}\s?(?:/|out\s+of)\s?\d+\)?\.?\s*$)",
    re.IGNORECASE | re.MULTILINE,
)
"""A score after its justification: "It picks granite. Score: 8", "It picks granite (8/10)"."""
_TAIL = re.compile(
    rf"\s*(?![,;:(\[–—-]+\s*(?:\?|{word_pattern('open')}))(?:$|[.,;!|](?!\d|\.)"
    rf"|(?:[:–—]+|-+(?!\w))(?![\s>]*\d{{1,2}}(?!\d))"
    rf"|[(\[](?!(?:\w+\s){{0,2}}{word_pattern('not now')})|[\])\"'/}}#]+(?=\s|$)"
    rf"|[^\x00-\x7f\w\s±×♭⁄⟶≈–—]|(?-i:[A-Z])|{word_pattern('reason')})",
    re.IGNORECASE,
)
"""How the text after a number must begin for the number to be the score."""


def _leading_score(text: str, limits: tuple[float, float]) -> tuple[float, str] | str:
    """Return (the score that a text begins with, the text after it), or a message of what is
    wrong."""
    low, high = limits
    match = _VALUE.match(text)
    if match is None or (match["share"] and high != 100):
        return f"expected one number from {low:g} to {high:g}"
    if match["of"] is not None and float(match["of"]) != high:
        return f"expected a score out of {high:g}"
    value, tail = float(match["value"].replace(",", ".")), text[match.end() :]
    line = tail.partition("\n")[0]
    if not _TAIL.match(line) or goes_on(line, limits):
        return f"expected one number from {low:g} to {high:g} and nothing that puts it in question"
    if not low <= value <= high:
        return f"out of range, expected a number from {low:g} to {high:g}"
    return value, tail


def _is_number(text: str) -> bool:
    return not isinstance(_leading_score(text, (-1e9, 1e9)), str)


# The reading

_UNKNOWN = re.compile(
    rf"^[\W\d_]{{0,9}}([A-Za-z][A-Za-z _/&'-]{{0,40}}?)(?:\s?:|(?<=\w\w\w)\s?=)\s?(?={_NUMBER})"
)
_NO_METRIC, _SCALE_KEY = (
    re.compile(word_pattern("no metric")),
    re.compile(word_pattern("scale keys")),
)
_PREFIX = re.compile(
    r"^\W*(?:\d{1,2}[.)]\s+)?(?:(?:overall |brief )?(?:justification|rationale)\s?:\s?)?",
    re.IGNORECASE,
)
_BELOW = re.compile(r"(?:[:\w]|\b(?:follow(?:s|ing)|below)\b.*)$")
"""How a line that introduces scores ends."""
_LETTERS = re.compile(r"[^\W\d_]{2}|[^\W\d_a-zA-Z]")
"""Letters, which a justification must have; one sign is a word in some scripts."""


@dataclass(slots=True)
class _ReplyReader:
    """Collects scores, words and faults of one reply."""

    spec: JudgeSpec
    metric_names: MetricNames
    scores: dict[str, float] = field(default_factory=dict)
    """The score of each metric that is named; infinite if it cannot be read."""
    written: list[tuple[str, str, bool]] = field(default_factory=list)
    """(metric, line, whether the line is around all scores)."""
    faults: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Scores that are repeated unchanged; faults only if there are others."""

    def take_json(
        self, value: Any, metric: str = "", key: str = "", *, written: bool = False
    ) -> None:
        """Take a JSON value under a key, for a metric if it is of one (`written`: as words)."""
        if isinstance(value, JsonPairs):
            labels = [
                str(label) for name, label in value if _normal_label(name) in WORDS["label keys"]
            ]
            if any(_normal_label(name) in WORDS["score keys"] for name, _ in value):
                metric = (
                    self.metric_names.names.get(_normal_label(labels[0]), "") if labels else metric
                )
                unknown = f"unknown metric: {(labels or [key])[0]}"
                self.faults += [] if metric else [unknown]
            for name, inner in value:
                self._take_pair(name, inner, metric, written=written)
        elif isinstance(value, list):
            for inner in value:
                self.take_json(inner, metric, key, written=written)
        elif written or not (key or metric):
            self.written.append((metric, normalize_text(" ".join(str(value).split())), not metric))
        elif not key:
            self._take_score(metric, normalize_text(str(value)))
        elif not _SCALE_KEY.match(key):
            self._take_words("", [f"{key}: {normalize_text(str(value))}"], around=True)
        else:
            self._check_scale(parse_sentence(f"{key}: {value}"), surely=True)

    def _take_pair(self, name: str, inner: Any, metric: str, *, written: bool) -> None:
        """Take one key of a JSON object with its value."""
        names, kind, text = self.metric_names.names, _normal_label(name), isinstance(inner, str)
        owner, _, last = kind.rpartition(" ")
        of = names.get(owner, "") if last in WORDS["words keys"] else ""
        prose = text and inner[:1].isalpha() and kind not in self.metric_names.labels
        if metric and kind in WORDS["score keys"]:
            number = f"the text {inner!r}" if text and "/" not in inner else inner
            self.take_json(number, metric, written=written)
        elif (
            kind in names
            and (written or not prose)
            and not (metric and kind in WORDS["words keys"])
        ):
            self.take_json(inner, names[kind], written=written)
        elif of or kind.removesuffix("s") in WORDS["words keys"]:
            self.take_json(inner, of or metric, written=True)
        elif not metric or kind not in WORDS["label keys"]:
            count, shown = len(self.scores), name.replace("_", " ").lower()
            self.take_json(inner, metric, shown, written=written)
            source = kind in WORDS["source keys"] and is_others(parse_sentence(str(inner)))
            if source or (len(self.scores) > count and is_others(parse_sentence(shown))):
                self.faults.append(f"scores behind {_quote_short(shown)} are not counted as yours")

    def take_text(self, text: str) -> None:
        """Take a text: the part before its heads, each head with its part, and the end."""
        heads = [*_iter_heads(text, self.metric_names)]
        ends = [*(start for start, _ in heads[1:]), len(text)]
        self._check_lead(text[: heads[0][0]] if heads else "")
        bare: dict[str, str] = {}
        counts: list[int] = []
        for (_, head), end in zip(heads, ends, strict=False):
            name, block = self.metric_names.name_of(head), text[head.end() : end]
            if head["aside"]:
                self._check_scale(
                    parse_sentence(head["aside"]), surely="weight" not in head["aside"]
                )
            late = [*_LATE.finditer(block)] if name and head["link"] is None else []
            if len(late) == 1:
                block = (
                    block[: late[0].start()] + "\n" + self._take_score(name, block[late[0].end() :])
                )
            elif head["link"] is not None:
                block = self._take_score(name, block)
            elif name:
                bare.setdefault(name, block.strip(" :\n–—-|"))
            counts.append(self._take_words(name, block.split("\n"), around=not name))
        self._check_quotations(text)
        for name in (name for name in bare if name not in self.scores):
            self._take_score(name, bare[name])
        more = counts[-1] - max(counts[:-1], default=1) if counts else 0
        for i in range(len(self.written) - more, len(self.written)):
            self.written[i] = (*self.written[i][:2], True)

    def _check_quotations(self, text: str) -> None:
        """Add a fault for each score that a quotation has too: somebody may have dictated it."""
        for quoted in QUOTATION.findall(text):
            for head in self.metric_names.head.finditer(quoted):
                name, number = self.metric_names.name_of(head), _VALUE.match(quoted, head.end())
                value = float(number["value"].replace(",", ".")) if number else None
                if head["link"] and value is not None and value == self.scores.get(name):
                    self.faults.append(f"quoted and given alike: {self.spec.score_labels[name]}")

    def _take_words(self, name: str, lines: Sequence[str], *, around: bool) -> int:
        """Take lines of words and return how many; a number for an unknown metric is a fault."""
        count = len(self.written)
        for line in lines:
            own = _UNKNOWN.match(line)
            is_metric = own and not _NO_METRIC.fullmatch(_normal_label(own[1]))
            if own and is_metric and len(own[1].split()) < 4 and _is_number(line[own.end() :]):
                self.faults.append(f"unknown metric: {own[1]}")
            if _QUOTED not in line and (words := _PREFIX.sub("", line).rstrip(" |\t")):
                self.written.append((name, words, around))
        return len(self.written) - count

    def _take_score(self, name: str, text: str) -> str:
        """Take the score that a text begins with; return the text after it."""
        label, limits = self.spec.score_labels[name], self.spec.score_limits(name)
        score = _leading_score(text, limits)
        if isinstance(score, str):
            self.faults.append(
                f"{label}: found {_quote_short(text.partition(chr(10))[0])}; {score}"
            )
            score = (float("inf"), "")
        again = [f"found twice: {label}"] if name in self.scores else []
        alike = self.scores.setdefault(name, score[0]) == score[0]
        (self.repeated if alike else self.faults).extend(again)
        return score[1]

    def _check_lead(self, text: str) -> None:
        """Check the text before the scores; it may quote, until the judge's own words begin."""
        lines = [line.strip(" _-—") for line in text.split("\n") if line.strip()]
        own = 0
        for i, line in enumerate(lines):
            self._check_scale(parse_sentence(line), scores=())
            own = i + 1 if line in ("", _QUOTED) else own
        lines = [
            piece for piece in lines[own:] if "|" not in piece and any(map(str.isalnum, piece))
        ]
        leads = [line for line in lines if _SPEAKER.match(line)]
        if (
            lines
            and _BELOW.search(lines[-1])
            and is_others(parse_sentence(SENTENCE.split(lines[-1])[-1]))
        ):
            leads.append(lines[-1])
        self.faults += [
            f"scores behind {_quote_short(line)} are not counted as yours" for line in leads
        ]
        for written in (parse_sentence(piece) for line in lines for piece in SENTENCE.split(line)):
            disowned = not OWN.search(written.text) and withdraws_scores(written, around=False)
            if disowned or refuses_evaluation(written):
                self.faults.append(f"the scores are disowned: {_quote_short(written.raw)}")

    def _check_scale(
        self, written: Sentence, *, surely: bool = False, scores: Floats = None
    ) -> None:
        """Add a fault if a sentence names another scale."""
        limits = {self.spec.score_limits(metric.name) for metric in self.spec.metrics}
        if other_scale(written, limits, scores, surely=surely):
            self.faults.append(
                f"found another scale than the one asked for: {_quote_short(written.raw)}"
            )

    def result(self) -> Scores | Complaint:
        """Return the scores, or a complaint, after checking every sentence against the scores."""
        words: dict[str, list[str]] = {name: [] for name in self.scores}
        for name, line, around in self.written:
            words.setdefault(name, []).append(line)
            for text in SENTENCE.split(line):
                self._check_sentence(name, text, around=around)
        written = {name: " ".join(words[name]) for name in self.scores}
        if self.spec.justification == "required":
            bare = [name for name in self.scores if not _LETTERS.search(written[name])]
            more = "found a score without a justification; expected words for it"
            self.faults += [f"{self.spec.score_labels[name]}: {more}" for name in bare]
        missing = [metric.label for metric in self.spec.metrics if metric.name not in self.scores]
        self.faults += [f"missing: {', '.join(missing)}"] if missing else []
        if self.faults:
            return _format_complaint(self.spec, [*self.scores], self.faults + self.repeated)
        return Scores(
            {metric.name: self.scores[metric.name] for metric in self.spec.metrics}, written
        )

    def _check_sentence(self, name: str, text: str, *, around: bool) -> None:
        """Check a sentence for a metric, or around all scores, against the scores."""
        written = parse_sentence(text)
        if not around and is_harmless(written):
            return
        self._check_scale(written, scores=self.scores.values() if around else None)
        if is_afterthought(written.tokens) or self._is_replaced(name, written, around=around):
            self.faults.append(
                f"{name or 'a metric'}: the score is taken back ({_quote_short(text)})"
            )
        if withdraws_scores(written, around=around):
            self.faults.append(f"the scores are disowned: {_quote_short(text)}")

    def _is_replaced(self, name: str, written: Sentence, *, around: bool) -> bool:
        """Return whether a sentence replaces a score by another number."""
        tokens, words, text, _ = written
        if "~" in words:
            return True
        places = numbers_in(tokens, *self.spec.score_limits(name or self.spec.metrics[0].name))
        if not places or is_unreal(words):
            return False
        named = {self.metric_names.name_of(head) for head in self.metric_names.head.finditer(text)}
        if names_scale(written) and not named:
            return False
        own = {self.scores.get(metric) for metric in named or {name}}
        if float(tokens[places[-1]]) in own and words & WORDS["keeping"]:
            return False
        about = around or named or words & (WORDS["voice"] | WORDS["judging"])
        others, voice = (
            next((i for i, token in enumerate(tokens) if token in WORDS[kind]), len(tokens))
            for kind in ("others", "voice")
        )
        for i in (position for position in places if float(tokens[position]) not in own):
            ends = i + 2 >= len(tokens) < 12 and tokens[i - 1] in ",:"
            if (about or ends) and not others < i <= voice:
                return True
        return False


def _format_complaint(spec: JudgeSpec, names: Sequence[str], faults: Sequence[str]) -> Complaint:
    limits = {metric.label: spec.score_limits(metric.name) for metric in spec.metrics}
    same = len({*limits.values()}) < 2
    low, high = next(iter(limits.values()), (spec.lowest, spec.highest))
    number = f"a number from {low:g} to {high:g}" if same else "a number in its range"
    more = " and a justification" if spec.justification == "required" else ""
    labels = (text if same else f"{text} ({a:g} to {b:g})" for text, (a, b) in limits.items())
    return Complaint(
        f"Your reply could not be read: {'; '.join(dict.fromkeys(faults))}. "
        f"Found the labels: {', '.join(spec.score_labels[name] for name in names) or 'none'}. "
        f"Expected each of these labels exactly once, with {number}{more}: {', '.join(labels)}. "
        "Please give the whole evaluation again in the exact format."
    )


def _quote_short(text: str) -> str:
    """Return a text in quotes, shortened to 60 characters; "nothing" for an empty one."""
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"
