"""Judge `render`: visual similarity of the agent's last page and the reference page, as rendered.

The measure is a documented one that works offline, or the cosine of CLIP embeddings.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import random
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from convbench.answers.tags import without_thinking
from convbench.errors import DataError, MissingDependency, RunError
from convbench.models.weights_path import find_file
from convbench.sandbox import tailwind
from convbench.sandbox.browser import PageError, Shot, shoot
from convbench.sandbox.page import first_html, html_of, one_photo
from convbench.schema import Conversation, Example, JudgeSpec, ProtocolSpec, text_of
from convbench.util.install import with_extra
from convbench.views import policy_turns

COLUMNS = 64
WIDTHS = (640, 320, 160)
BINS = 8
KINDS = ("text", "image", "control")


def page_similarity(first: Shot, second: Shot) -> dict[str, float]:
    """Return `structure`, `colour`, `layout`, and `overall`, their mean, each from 0 to 1.

    The smaller page is padded by repeating its edges.

    Raise MissingDependency without numpy, scikit-image or Pillow.
    """
    a, b = _padded_pixels(first, second)
    parts = {
        "structure": structure_similarity(a, b),
        "colour": colour_similarity(a, b),
        "layout": layout_similarity(first, second),
    }
    return {"overall": sum(parts.values()) / len(parts), **parts}


def structure_similarity(first: Any, second: Any) -> float:
    """Return the mean structural similarity (SSIM) of two grey pages over widths of 640, 320 and
    160 pixels, 0 to 1.

    The pages are byte arrays of one shape (height, width, 3). A negative SSIM counts as 0.
    """
    import skimage.metrics
    from PIL import Image

    ssim: Any = skimage.metrics.structural_similarity
    scores = []
    for width in WIDTHS:
        height = max(7, round(first.shape[0] * width / first.shape[1]))
        size = (width, height)
        grey = [
            _to_array(Image.fromarray(page).convert("L").resize(size, Image.Resampling.BOX))
            for page in (first, second)
        ]
        scores.append(max(0.0, float(ssim(*grey, data_range=255))))
    return sum(scores) / len(scores)


def colour_similarity(first: Any, second: Any) -> float:
    """Return the intersection of two pages' colour histograms, each normalised to 1, with 8 bins a
    channel (512 in all); 0 to 1.

    The pages are byte arrays of shape (height, width, 3).
    """
    import numpy

    hists = []
    for page in (first, second):
        bins = (page.reshape(-1, 3) // (256 // BINS)).astype(numpy.int64)
        index = (bins[:, 0] * BINS + bins[:, 1]) * BINS + bins[:, 2]
        count = numpy.bincount(index, minlength=BINS**3)
        hists.append(count / count.sum())
    return float(numpy.minimum(*hists).sum())


def layout_similarity(first: Shot, second: Shot) -> float:
    """Return the mean, over the kinds of boxes, of the area in both pages divided by that in
    either, 0 to 1.

    Areas are counted in cells of a grid of 64 columns. A kind that neither page has is left out;
    the result is 1 if neither has any.
    """
    rows = max(1, round(max(first.height, second.height) * COLUMNS / first.width))
    overlaps = []
    for kind in KINDS:
        a, b = (_kind_mask(shot, kind, rows) for shot in (first, second))
        either = int((a | b).sum())
        if either:
            overlaps.append(float((a & b).sum()) / either)
    return sum(overlaps) / len(overlaps) if overlaps else 1.0


def _kind_mask(shot: Shot, kind: str, rows: int) -> Any:
    """Return a grid (rows, COLUMNS) of the cells that boxes of a kind cover."""
    import numpy

    grid = numpy.zeros((rows, COLUMNS), dtype=bool)
    scale = COLUMNS / shot.width
    for box in shot.boxes:
        if box.kind == kind:
            top, left = int(box.top * scale), int(box.left * scale)
            bottom, right = (
                _scaled_end(box.top + box.height, scale),
                _scaled_end(box.left + box.width, scale),
            )
            grid[max(0, top) : bottom, max(0, left) : right] = True
    return grid


def _scaled_end(value: float, scale: float) -> int:
    return max(0, int(value * scale + 0.999))


def _padded_pixels(first: Shot, second: Shot) -> tuple[Any, Any]:
    """Return both pages as arrays of one shape, padded by repeating their edges."""
    import numpy

    pages = [_to_array(_open_image(shot.png)) for shot in (first, second)]
    height = max(page.shape[0] for page in pages)
    width = max(page.shape[1] for page in pages)
    filled = []
    for page in pages:
        room = ((0, height - page.shape[0]), (0, width - page.shape[1]), (0, 0))
        filled.append(numpy.pad(page, room, mode="edge"))
    return filled[0], filled[1]


def _open_image(png: bytes) -> Any:
    try:
        import numpy  # noqa: F401
        import skimage  # noqa: F401
        from PIL import Image
    except ImportError as error:
        raise MissingDependency(
            str(error.name),
            needed_for="comparing pages",
            install=with_extra("vision"),
        ) from None
    return Image.open(io.BytesIO(png)).convert("RGB")


def _to_array(image: Any) -> Any:
    import numpy

    return numpy.asarray(image)


def black_page(size: int = 224) -> Shot:
    """Return a black square of `size` pixels without boxes, which stands for a missing page (Zhou
    et al. 2025)."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (size, size)).save(out, "PNG")
    return Shot(out.getvalue(), size, size)


def check_measure(spec: JudgeSpec) -> None:
    """Check that what the paper's measure (`args.measure: clip`) needs is there.

    Raise MissingDependency without torch or transformers, RunError if the model `args.clip` has no
    config.json (fetched from the Hub if it can be) or without the style sheet of ColBench's pages.
    CLIP's weights are not looked for, and nothing is loaded. With any other measure do nothing.
    """
    if spec.args.get("measure") != "clip":
        return
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise MissingDependency(name, needed_for="CLIP", install=with_extra("local"))
    model = str(spec.args["clip"])
    if find_file(model, "config.json") is None:
        raise RunError(
            f"judge {spec.name}: {model}: found no config.json; expected CLIP's weights in the "
            "Hub's cache or a folder: --set judge.args.clip=PATH, or the offline measure: "
            "--judge render"
        )
    if not tailwind.sheet_path().is_file():
        raise RunError(
            f"judge {spec.name}: found no style sheet at {tailwind.sheet_path()}; without it pages "
            f"look unlike the paper's; run: {tailwind.FETCH}"
        )


def image_cosine(first: bytes, second: bytes, model: str) -> float:
    """Return the cosine similarity of the CLIP embeddings of two PNGs, -1 to 1; `model` is a name
    or folder. Raise RunError if the model cannot be loaded."""
    a, b = (image_embedding(png, model) for png in (first, second))
    return max(-1.0, min(1.0, float((a * b).sum())))


@lru_cache(maxsize=128)
def image_embedding(png: bytes, model: str) -> Any:
    """Return the CLIP image embedding of a PNG: a torch tensor of length 1 and shape (width,).

    The last 128 are cached.

    `model` is a name or folder of a CLIP model. Raise RunError if it cannot be loaded,
    MissingDependency without transformers.
    """
    import torch
    from PIL import Image

    network, processor = _load_clip(model)
    image = Image.open(io.BytesIO(png)).convert("RGB")
    with torch.no_grad():
        features = network.get_image_features(**processor(images=image, return_tensors="pt"))
    features = getattr(features, "pooler_output", features)[0]
    return features / features.norm()


@lru_cache(maxsize=1)
def _load_clip(model: str) -> tuple[Any, Any]:
    try:
        from transformers import CLIPImageProcessor, CLIPModel
    except ImportError:
        raise MissingDependency(
            "transformers", needed_for="CLIP", install=with_extra("local")
        ) from None
    try:
        network = CLIPModel.from_pretrained(model).eval()
        return network, CLIPImageProcessor.from_pretrained(model)
    except (OSError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise RunError(
            f"judge render-clip: {model}: {line}; name a folder with --set judge.args.clip=PATH, "
            "or take the offline measure: --judge render"
        ) from None


VERSION = 3
"""Raised whenever a score may move; part of the judge's fingerprint."""
BLANK = "<html><body></body></html>"
CACHED_SHOTS = 64


async def score(
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    *,
    spec: JudgeSpec,
    examples: Mapping[str, Example],
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return (scores, details) of the policy's page against the reference page.

    Scores: `overall`, `blank` (that of an empty page) and `random_pair` (mean of other tasks'
    pages, left out without any), 0 to 1, with CLIP -1 to 1. Details: the parts of `overall`, `page`
    ("rendered", or why there is none; then a black page counts), `pairs` and `styles`. Raise
    DataError without a reference page, PageError if it cannot be rendered, RunError if no page can
    be or `spec.args` are wrong.
    """
    reference = _reference_page(example, spec.args)
    others = tuple(
        _reference_page(other, spec.args) for other in random_pairs(example, examples, spec.args)
    )
    try:
        expected = await cached_shot(reference)
        page = partial(_own_page, conversation, protocol, spec.args)
        shot, why = await _shoot_or_black(page())
        scores = measure_pages(shot, expected, spec.args)
        baselines = await _baseline_scores(reference, others, spec.args)
    except MissingDependency as error:
        raise RunError(f"judge {spec.name}: {error}") from None
    parts = {name: round(value, 6) for name, value in scores.items() if name != "overall"}
    details = {**parts, "page": why or "rendered", "pairs": len(others), "styles": _style_version()}
    return {"overall": scores["overall"], **baselines}, details


def _style_version() -> str:
    """Return the hash of the style sheet that pages are rendered with, or why there is none. Scores
    with and without it are not comparable."""
    sheet = tailwind.read_sheet()
    return hashlib.sha256(sheet).hexdigest()[:12] if sheet else f"none: {tailwind.FETCH}"


def random_pairs(
    example: Example, examples: Mapping[str, Example], args: Mapping[str, Any]
) -> list[Example]:
    """Return the other tasks whose pages are the random pairs, at most `args.pairs` (8); fewer, or
    none, if the run has fewer.

    They are drawn by `args.seed` and the same for all tasks of a run, so that each page is rendered
    only once; an extra one replaces the task itself.
    """
    names = sorted(examples)
    count = int(args.get("pairs", 8))
    drawn = random.Random(int(args.get("seed", 0))).sample(names, min(count + 1, len(names)))
    return [examples[name] for name in drawn if name != example.example_id][:count]


def _reference_page(example: Example, args: Mapping[str, Any]) -> str:
    """Return the reference page of an example. Raises DataError without one."""
    field = str(args.get("reference", "reference"))
    page = example.hidden.get(field)
    if not isinstance(page, str):
        raise DataError(
            f"example {example.example_id}: found no page in the hidden field {field!r}; it has "
            f"{sorted(example.hidden)}"
        )
    return _with_pictures(page, args)


def _with_pictures(page: str, args: Mapping[str, Any]) -> str:
    """Return a page with its own random photos, or with one for all if `args.pictures` is `one`."""
    name = args.get("pictures", "each")
    if name not in ("each", "one"):
        raise RunError(f"judge render: args.pictures: found {name!r}; expected each or one")
    return one_photo(page) if name == "one" else page


def _own_page(
    conversation: Conversation, protocol: ProtocolSpec, args: Mapping[str, Any]
) -> str | None:
    """Return the page that the policy wrote; None without one."""
    name = args.get("page", "last")
    if name not in ("first", "last"):
        raise RunError(f"judge render: args.page: found {name!r}; expected first or last")
    page = last_page(conversation, protocol, first=name == "first")
    return None if page is None else _with_pictures(page, args)


async def _shoot_or_black(page: str | None) -> tuple[Shot, str | None]:
    """Return (screenshot of the agent's page, None), or (a black one, why there is none).

    Raises PageError if an empty page cannot be rendered either: then the page is not at fault.
    """
    if page is None:
        return black_page(), "no page"
    try:
        return await shoot(page), None
    except PageError as error:
        await shoot(BLANK)
        return black_page(), str(error)


_BASELINES: dict[tuple[str, tuple[str, ...], str], dict[str, float]] = {}


async def _baseline_scores(
    reference: str, others: tuple[str, ...], args: Mapping[str, Any]
) -> dict[str, float]:
    """Return the scores of an empty page and of the other tasks' pages, which are measured once."""
    key = (reference, others, str(sorted(args.items())))
    if key not in _BASELINES:
        expected = await cached_shot(reference)
        pairs = [
            measure_pages(await cached_shot(other), expected, args)["overall"] for other in others
        ]
        _BASELINES[key] = {
            "blank": measure_pages(await cached_shot(BLANK), expected, args)["overall"]
        }
        if pairs:
            _BASELINES[key]["random_pair"] = sum(pairs) / len(pairs)
    return _BASELINES[key]


def measure_pages(first: Shot, second: Shot, args: Mapping[str, Any]) -> dict[str, float]:
    """Return the similarity of two pages by the measure `args.measure`: `overall`, `structure`,
    `colour` and `layout` for "similarity" (default), `overall` alone for "clip".

    Raise RunError for another measure.
    """
    name = args.get("measure", "similarity")
    if name == "similarity":
        return page_similarity(first, second)
    if name == "clip":
        return {"overall": image_cosine(first.png, second.png, str(args["clip"]))}
    raise RunError(f"judge render: args.measure: found {name!r}; expected similarity or clip")


def last_page(
    conversation: Conversation, protocol: ProtocolSpec, *, first: bool = False
) -> str | None:
    """Return the last complete `<html>…</html>` of the last policy turn that has one; None without
    any. Thinking is left out.

    With `first` it is the first page of the last policy turn that has a page or body, or without a
    page its first `<body>…</body>`.
    """
    page_of = first_html if first else html_of
    for index in reversed(policy_turns(protocol, conversation)):
        page = page_of(without_thinking(text_of(conversation.turns[index].content)))
        if page is not None:
            return page
    return None


_SHOTS: OrderedDict[str, Shot] = OrderedDict()


async def cached_shot(html: str) -> Shot:
    """Return a page's screenshot, from memory if it is among the last 64 (`CACHED_SHOTS`).

    Raise PageError if it cannot be rendered.
    """
    if html not in _SHOTS:
        _SHOTS[html] = await shoot(html)
        while len(_SHOTS) > CACHED_SHOTS:
            _SHOTS.popitem(last=False)
    _SHOTS.move_to_end(html)
    return _SHOTS[html]
