"""Judge `render`: the agent's last page and the reference's, as they look (ColBench frontend).

Both are rendered in the same way (`convbench.sandbox.browser`). `overall` is how alike they look.
No measure of looks starts at 0, so each score stands beside two baselines: `blank` is what an
empty page scores here, `random_pair` the mean of what the wanted pages of `args.pairs` other tasks
of the run score here, drawn with `args.seed` (left out where the run has one task).

`args.pictures: one` has one photo stand for every random one, and `args.page: first` takes the
first page of a reply, else its body: both as ColBench was released (`render-paper`). Ours give
every address a picture of its own and take the last page.

`args.measure: similarity` is the offline default (`render_similarity`); `clip` is the paper's:
the cosine of normalised CLIP image embeddings, for which the weights must be here.
"""

from __future__ import annotations

import hashlib
import random
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any

from convbench.answers.tags import visible
from convbench.engine.caller import offload
from convbench.errors import DataError, MissingDependency, RunError
from convbench.judge.render_clip import cosine
from convbench.judge.render_similarity import black, similarity
from convbench.sandbox import tailwind
from convbench.sandbox.browser import PageError, Shot, shoot
from convbench.sandbox.page import first_html, html_of, one_photo
from convbench.schema import Conversation, Example, JudgeSpec, ProtocolSpec, text_of
from convbench.views import policy_turns, texts

VERSION = 3
"""Raised whenever a score may move; part of the judge's fingerprint."""
BLANK = "<html><body></body></html>"
KEPT = 64


async def score(
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    *,
    spec: JudgeSpec,
    examples: Mapping[str, Example],
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return `overall` and its baselines, from 0 to 1 (clip: -1 to 1), and the parts.

    `examples` are the run's. Raises DataError for a task without a reference page, PageError for
    one whose page cannot be rendered, RunError where nothing can be.
    """
    reference = _reference(example, spec.args)
    others = tuple(_reference(other, spec.args) for other in partners(example, examples, spec.args))
    try:
        wanted = await kept(reference)
        page = partial(_own_page, conversation, protocol, spec.args)
        made, why = await _made(await offload(page, texts(conversation)))
        found = measure(made, wanted, spec.args)
        baselines = await _baselines(reference, others, spec.args)
    except MissingDependency as error:
        raise RunError(f"judge {spec.name}: {error}") from None
    parts = {name: round(value, 6) for name, value in found.items() if name != "overall"}
    details = {**parts, "page": why or "rendered", "pairs": len(others), "styles": _styles()}
    return {"overall": found["overall"], **baselines}, details


def _styles() -> str:
    """Return which style sheet pages were rendered with: with and without do not compare."""
    found = tailwind.sheet()
    return hashlib.sha256(found).hexdigest()[:12] if found else f"none: {tailwind.FETCH}"


def partners(
    example: Example, examples: Mapping[str, Example], args: Mapping[str, Any]
) -> list[Example]:
    """Return the other tasks whose pages are the random pairs: the same few for all of a run, so
    that each is rendered once, and one more in the place of the task itself."""
    names = sorted(examples)
    count = int(args.get("pairs", 8))
    drawn = random.Random(int(args.get("seed", 0))).sample(names, min(count + 1, len(names)))
    return [examples[name] for name in drawn if name != example.example_id][:count]


def _reference(example: Example, args: Mapping[str, Any]) -> str:
    field = str(args.get("reference", "reference"))
    found = example.hidden.get(field)
    if not isinstance(found, str):
        raise DataError(
            f"example {example.example_id}: found no page in the hidden field {field!r}; it has "
            f"{sorted(example.hidden)}"
        )
    return _prepared(found, args)


def _prepared(page: str, args: Mapping[str, Any]) -> str:
    """Return a page with the pictures that the judge wants."""
    name = args.get("pictures", "each")
    if name not in ("each", "one"):
        raise RunError(f"judge render: args.pictures: found {name!r}; expected each or one")
    return one_photo(page) if name == "one" else page


def _own_page(
    conversation: Conversation, protocol: ProtocolSpec, args: Mapping[str, Any]
) -> str | None:
    """Return the page that the policy made; None where it made none."""
    name = args.get("page", "last")
    if name not in ("first", "last"):
        raise RunError(f"judge render: args.page: found {name!r}; expected first or last")
    found = last_page(conversation, protocol, first=name == "first")
    return None if found is None else _prepared(found, args)


async def _made(page: str | None) -> tuple[Shot, str | None]:
    """Return the agent's page, or black and the reason why there is none.

    Where an empty page cannot be rendered either, the fault is not the page's: PageError.
    """
    if page is None:
        return black(), "no page"
    try:
        return await shoot(page), None
    except PageError as error:
        await shoot(BLANK)
        return black(), str(error)


_FOUND: dict[tuple[str, tuple[str, ...], str], dict[str, float]] = {}


async def _baselines(
    reference: str, others: tuple[str, ...], args: Mapping[str, Any]
) -> dict[str, float]:
    """Return what an empty page and the others score beside the reference, measured once."""
    key = (reference, others, str(sorted(args.items())))
    if key not in _FOUND:
        wanted = await kept(reference)
        pairs = [measure(await kept(other), wanted, args)["overall"] for other in others]
        _FOUND[key] = {"blank": measure(await kept(BLANK), wanted, args)["overall"]}
        if pairs:
            _FOUND[key]["random_pair"] = sum(pairs) / len(pairs)
    return _FOUND[key]


def measure(one: Shot, two: Shot, args: Mapping[str, Any]) -> dict[str, float]:
    """Return `overall` and its parts by the measure that the judge names."""
    name = args.get("measure", "similarity")
    if name == "similarity":
        return similarity(one, two)
    if name == "clip":
        return {"overall": cosine(one.png, two.png, str(args["clip"]))}
    raise RunError(f"judge render: args.measure: found {name!r}; expected similarity or clip")


def last_page(
    conversation: Conversation, protocol: ProtocolSpec, *, first: bool = False
) -> str | None:
    """Return the last `<html>...</html>` that the policy wrote, or (`first`) the first page or body
    of its last reply with one; None where it wrote none."""
    page_of = first_html if first else html_of
    for index in reversed(policy_turns(protocol, conversation)):
        found = page_of(visible(text_of(conversation.turns[index].content)))
        if found is not None:
            return found
    return None


_SHOTS: OrderedDict[str, Shot] = OrderedDict()


async def kept(html: str) -> Shot:
    """Return a page's screenshot, the last KEPT of them from memory."""
    if html not in _SHOTS:
        _SHOTS[html] = await shoot(html)
        while len(_SHOTS) > KEPT:
            _SHOTS.popitem(last=False)
    _SHOTS.move_to_end(html)
    return _SHOTS[html]
