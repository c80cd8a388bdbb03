"""Judge `render`: the agent's last page and the reference's, as they look (ColBench frontend).

Both are rendered in the same way (`convbench.sandbox.browser`). `overall` is how alike they look,
`blank` how alike an empty page and `unrelated` pages of ours that have nothing to do with the
task look to the reference: no measure of looks starts at 0, so each score stands beside these.

`args.measure: similarity` is the offline default (`render_similarity`); `clip` is the paper's:
the cosine of normalised CLIP image embeddings, for which the weights must be here.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from convbench.errors import DataError, MissingDependency, RunError
from convbench.judge.render_clip import cosine
from convbench.judge.render_similarity import black, similarity
from convbench.sandbox.browser import ASSETS, PageError, Shot, shoot
from convbench.schema import Conversation, Example, JudgeSpec, ProtocolSpec, text_of
from convbench.views import policy_turns

VERSION = 1
"""Raised whenever a score may move; part of the judge's fingerprint."""
BLANK = "<html><body></body></html>"
KEPT = 64
_PAGE = re.compile(r"<html\b.*?</html\s*>", re.IGNORECASE | re.DOTALL)


async def score(
    conversation: Conversation, example: Example, protocol: ProtocolSpec, *, spec: JudgeSpec
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return `overall`, `blank` and `unrelated`, from 0 to 1 (clip: -1 to 1), and the parts.

    Raises DataError for a task without a reference page, RunError where nothing can be rendered.
    """
    field = str(spec.args.get("reference", "reference"))
    reference = example.hidden.get(field)
    if not isinstance(reference, str):
        raise DataError(
            f"example {example.example_id}: found no page in the hidden field {field!r}; it has "
            f"{sorted(example.hidden)}"
        )
    try:
        return await _scores(last_page(conversation, protocol), reference, spec.args)
    except MissingDependency as error:
        raise RunError(f"judge {spec.name}: {error}") from None


async def _scores(
    page: str | None, reference: str, args: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, Any]]:
    wanted = await kept(reference)
    made, why = await _made(page)
    found = measure(made, wanted, args)
    others = [measure(await kept(other), wanted, args)["overall"] for other in unrelated()]
    scores = {
        "overall": found["overall"],
        "blank": measure(await kept(BLANK), wanted, args)["overall"],
        "unrelated": sum(others) / len(others),
    }
    parts = {name: round(value, 6) for name, value in found.items() if name != "overall"}
    return scores, {**parts, "page": why or "rendered"}


async def _made(page: str | None) -> tuple[Shot, str | None]:
    """Return the agent's page, or black and the reason why there is none."""
    if page is None:
        return black(), "no page"
    try:
        return await shoot(page), None
    except PageError as error:
        return black(), str(error)


def measure(one: Shot, two: Shot, args: Mapping[str, Any]) -> dict[str, float]:
    """Return `overall` and its parts by the measure that the judge names."""
    name = args.get("measure", "similarity")
    if name == "similarity":
        return similarity(one, two)
    if name == "clip":
        return {"overall": cosine(one.png, two.png, str(args["clip"]))}
    raise RunError(f"judge render: args.measure: found {name!r}; expected similarity or clip")


def last_page(conversation: Conversation, protocol: ProtocolSpec) -> str | None:
    """Return the last `<html>...</html>` that the policy wrote; None where it wrote none."""
    for index in reversed(policy_turns(protocol, conversation)):
        found = html_of(text_of(conversation.turns[index].content))
        if found is not None:
            return found
    return None


def html_of(text: str) -> str | None:
    """Return the last whole page in a text."""
    pages = _PAGE.findall(text)
    return str(pages[-1]) if pages else None


_SHOTS: OrderedDict[str, Shot] = OrderedDict()


async def kept(html: str) -> Shot:
    """Return a page's screenshot, the last KEPT of them from memory."""
    if html not in _SHOTS:
        _SHOTS[html] = await shoot(html)
        while len(_SHOTS) > KEPT:
            _SHOTS.popitem(last=False)
    _SHOTS.move_to_end(html)
    return _SHOTS[html]


def unrelated() -> list[str]:
    """Return pages of ours that have nothing to do with any task."""
    return [path.read_text() for path in sorted(Path(ASSETS).glob("unrelated-*.html"))]


def wins(ours: Mapping[str, float], theirs: Mapping[str, float]) -> tuple[float, int]:
    """Return (win rate, tasks): the share of tasks that both policies have on which ours scored
    higher, a tie as half. Keys are example ids, values scores, one (or the mean) a task."""
    both: Iterable[str] = sorted(set(ours) & set(theirs))
    points = [1.0 if ours[k] > theirs[k] else 0.5 if ours[k] == theirs[k] else 0.0 for k in both]
    if not points:
        raise DataError("found no task that both policies have; expected the same questions")
    return sum(points) / len(points), len(points)
