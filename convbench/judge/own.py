"""What of a judge's reply is the judge's own: no thought, no quotation, no echo of the talk.

Scores that stand in a quoted or echoed text alone are the policy's or the format's, not a
verdict. An echo is told by its form: a `>` quotation, a code fence with speakers' lines, a block
between tags, what follows a line such as "Transcript:" or "The assistant wrote:".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from convbench.answers.tags import may_hold_tags, segments

_BLOCK = re.compile(
    r"<(transcript|conversation|dialogue|chat|talk|history|blockquote|quote|example|format|template)"
    r"\b[^<>]{0,80}>.*?(?:</\1(?:-\w{1,40})?\s*>|\Z)"
    r"|\[(transcript|conversation|dialogue|history)\].*?(?:\[/\2\]|\[end[^\]]{0,30}\]|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_FENCE = re.compile(
    r"^[ \t]*(?:```|~~~)(?P<name>[^\n`]*)\n(?P<body>.*?)(?:^[ \t]*(?:```|~~~)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_WHO = r"(?:assistant|teacher|student|user|human|agent|tutor|learner|policy|bot|ai)"
_SPEAKER = re.compile(
    rf"^[\W_]*{_WHO}\s*(?:\(?\d{{1,2}}\)?)?[\W_]*?:"
    rf"|^[\W_]*(?:the\s+)?{_WHO}\s+(?:wrote|writes|says?|said|replied|claims?|claimed)\b[^.:]{{0,40}}:",
    re.IGNORECASE | re.MULTILINE,
)
_TALK = r"(?:transcripts?|conversation|dialogue|chat(?:\s+log)?|history|excerpt)"
_SHOWN = r"(?:example|template|sample|placeholder|format)"
_HEADING = re.compile(
    rf"^[\W_]*(?:(?:begin|start|full|complete|original|the|here\s+is|this\s+is|below\s+is)\s+){{0,3}}"
    rf"(?:{_TALK}(?:\s+(?:history|transcript|log|again|so\s+far|below))*"
    rf"|(?:expected\s+|exact\s+|required\s+)?{_SHOWN}(?:\s+(?:output|reply|evaluation|scores))?"
    r"|(?:previous|prior|earlier|old|another\s+judge['’]s)\s+(?:evaluation|scores?|ratings?|verdict))"
    r"[\W_]*$",
    re.IGNORECASE,
)
"""A line that names what is no verdict and says nothing else."""
_NUMBER = r"[*_\"')]*+[\s:=|–—-]++[*_\"(\[]*+\d[\d.]*+\s*+(?:$|[/*_|.,;)\]-])"
_SCORED, _SCORED_ASCII = re.compile(rf"[^\W\d]{_NUMBER}"), re.compile(rf"[A-Za-z_]{_NUMBER}")
"""A line that may be a score: from here on the judge speaks. Letters of ASCII are found in half the
time."""
_INTRODUCED = re.compile(
    r"\b(?:wrote|writes|says?|said|replied|(?:would|might|could)\s+(?:look|read|be)|looks?\s+like"
    r"|for\s+(?:instance|example)|according\s+to)\b[^.:]{0,60}:[\s*_]*$",
    re.IGNORECASE,
)
"""The end of a line that puts the next paragraph in another's mouth."""
_COLON = re.compile(r":[\s*_]*$")
"""How such a line ends; few others do."""
_END = re.compile(
    r"^\s*(?:[-*_=—]{3,}\s*$|#+\s)"
    r"|^[\W_]*(?:end\b.{0,40}|(?:(?:my|the|final)\s+){0,2}"
    r"(?:evaluation|scores?|ratings?|verdict|assessment|judge?ment)[\W_]*)$",
    re.IGNORECASE,
)


def own_words(reply: str) -> str:
    """Return the reply without thoughts, quotations and echoes. What a reply has no sign of is not
    looked for."""
    if may_hold_tags(reply):
        reply = _BLOCK.sub("\n", _after_thought(reply))
    if "```" in reply or "~~~" in reply:
        reply = _FENCE.sub(_fence, reply)
    lines = reply.splitlines()
    if ">" in reply or "&gt;" in reply:
        lines = [line for line in lines if not line.lstrip().startswith((">", "&gt;"))]
    return "\n".join(_unechoed(lines))


def _after_thought(reply: str) -> str:
    """Drop the thought before the reply; a thought that does not end is all there is."""
    pieces = [piece for piece in segments(reply) if reply[piece.start : piece.stop].strip()]
    if not pieces or not pieces[0].thinking:
        return reply
    return reply[pieces[1].start :] if len(pieces) > 1 else ""


def _fence(block: re.Match[str]) -> str:
    """Return a fenced block's body, or nothing where it is named or written like a talk."""
    name, body = block["name"], block["body"]
    before = block.string[: block.start()].rstrip().rpartition("\n")[2]
    echoed = _SPEAKER.search(body) or _HEADING.match(name) or _INTRODUCED.search(before)
    return "\n---\n" if echoed and name.strip().lower() != "json" else f"\n{body}\n"


def _unechoed(lines: list[str]) -> Iterator[str]:
    """Yield the lines outside echoes. A speaker's line opens one only before the judge's own
    numbers: within a verdict it is a quotation."""
    over: Callable[[str], bool] | None = None
    own = False
    for line in lines:
        if over is not None and not over(line):
            continue
        over = None
        if _HEADING.match(line) or (not own and _SPEAKER.match(line)):
            over = _verdict_begins
        elif ":" in line and _COLON.search(line) and _INTRODUCED.search(line):
            over = _paragraph()
        else:
            own = own or _scored(line)
            yield line


def _scored(line: str) -> bool:
    return (_SCORED_ASCII if line.isascii() else _SCORED).search(line) is not None


def _verdict_begins(line: str) -> bool:
    return _END.match(line) is not None and not _HEADING.match(line)


def _paragraph() -> Callable[[str], bool]:
    """Return whether the paragraph that begins with the next words is over."""
    begun = False

    def over(line: str) -> bool:
        nonlocal begun
        begun = begun or bool(line.strip())
        return begun and not line.strip()

    return over
