"""Take a judge's reply apart into lines of label and rest, markdown removed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from convbench.judge.flatten import normal

_ESCAPED_BREAK = re.compile(r"\\n(?![a-z])")
_LEAD = re.compile(
    r"^(?:[^\w\[(\"'|]|\(?\d{1,2}[.)]\s+|\(?[A-Fa-f][.)]\s+|(?:metric|criterion)\s+\d{1,2}\s*[:.–—-]\s*)*+",
    re.IGNORECASE,
)
_RULE = re.compile(r"^[\s*_=~`|:-]*$")
_HEAD = re.compile(
    r"[\"']?(?P<label>[A-Za-z][A-Za-z _/&'-]{0,60}?)(?![A-Za-hj-z_/&])[\"']?\s*+"
    r"(?:\((?P<aside>[^()]{0,60})\)\s*+)?"
    r"(?P<link>[:=–—→⇒➜]++|[-=]>|\.{2,}|is\b|,(?=\s*\d)|-+(?=\s)|(?<=\s)(?=[\[(]?\d)|$)\s*+(?P<rest>.*)$"
)
"""A label, its link and the rest. What follows a label begins with none of the signs that are
passed over ahead of it: of the letters a link begins with `i` alone."""
_UNDERSCORES = re.compile(r"(?<!\w)_+|_+(?!\w)")
_NUMBERED = frozenset("#0123456789")
"""Signs before a label by which it is a heading, or numbered."""
_SCORE_ASIDE = re.compile(r"\d+(?:\.\d+)?(?:\s*(?:/|out of)\s*\d+)?")


@dataclass(slots=True)
class Line:
    """One line of a reply, without markdown.

    `label`: what stands before the colon (dash, or number), lower case; empty where the line
    begins otherwise. `shown`: the label as written. `rest`: what follows it. `linked`: a colon
    or dash stands between. `set_apart`: the label is bold, a heading, or numbered. `used`: the
    line has been taken as the score of the label above it.
    """

    text: str
    label: str = ""
    shown: str = ""
    rest: str = ""
    linked: bool = False
    set_apart: bool = False
    used: bool = False


def lines(reply: str) -> list[Line]:
    """Return the lines that say something; code fences are dropped."""
    return [
        _line(raw)
        for raw in _ESCAPED_BREAK.sub("\n", reply).splitlines()
        if raw[:1].isalnum()  # most, and neither a rule nor a fence
        or not (_RULE.match(raw) or raw.lstrip().startswith("```"))
    ]


def _line(raw: str) -> Line:
    lead = _LEAD.match(raw)
    marks = lead[0] if lead else ""
    text = _plain(raw[len(marks) :])
    head = _HEAD.match(text)
    if head is None:
        return Line(text)
    label, aside, link, rest = head.groups()
    rest = rest.strip()
    if aside and _SCORE_ASIDE.fullmatch(aside) and not rest[:1].isdigit():
        rest = f"{aside} {rest}".strip()
    return Line(
        text, normal(label), label.strip(), rest,
        linked=link not in ("", "is", ","), set_apart=marks != "" and _sets_apart(marks),
    )  # fmt: skip


def _sets_apart(marks: str) -> bool:
    """Whether what stands before a label makes it a heading, bold, or numbered."""
    return not _NUMBERED.isdisjoint(marks) or "**" in marks or "__" in marks


def _plain(text: str) -> str:
    """Drop bold, italic and code marks; underscores only around words."""
    if "*" in text or "`" in text:
        text = text.replace("*", "").replace("`", "")
    return (_UNDERSCORES.sub("", text) if "_" in text else text).strip()
