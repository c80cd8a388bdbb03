"""How alike two screenshots are, without a learned model: documented, offline, repeatable.

The mean of three parts, each in [0, 1]:

- structure: SSIM (Wang et al. 2004) of the grey pages at three scales (640, 320 and 160 pixels
  wide), negative values as 0, averaged;
- colour: intersection of the colour histograms (8 x 8 x 8 bins);
- layout: for text, images and controls, the pages' boxes painted on a grid of 64 columns;
  the share of cells in both among cells in either, averaged over the kinds that either page has.

Pages of unequal height are compared on the taller one's area, the shorter filled up with its own
last colour. This is not CLIP and must not be compared with CLIP's cosine.
"""

from __future__ import annotations

import io
from typing import Any

from convbench.errors import MissingDependency
from convbench.install import with_extra
from convbench.sandbox.browser import Shot

COLUMNS = 64
WIDTHS = (640, 320, 160)
BINS = 8
KINDS = ("text", "image", "control")


def similarity(one: Shot, two: Shot) -> dict[str, float]:
    """Return `overall` and its parts `structure`, `colour`, `layout`, each from 0 to 1."""
    a, b = _pixels(one, two)
    parts = {
        "structure": structure(a, b),
        "colour": colour(a, b),
        "layout": layout(one, two),
    }
    return {"overall": sum(parts.values()) / len(parts), **parts}


def structure(one: Any, two: Any) -> float:
    """Mean SSIM over three scales; arrays of shape (height, width, 3), bytes."""
    import skimage.metrics
    from PIL import Image

    ssim: Any = skimage.metrics.structural_similarity
    found = []
    for width in WIDTHS:
        height = max(7, round(one.shape[0] * width / one.shape[1]))
        size = (width, height)
        grey = [_array(Image.fromarray(page).convert("L").resize(size, Image.Resampling.BOX))
                for page in (one, two)]  # fmt: skip
        found.append(max(0.0, float(ssim(*grey, data_range=255))))
    return sum(found) / len(found)


def colour(one: Any, two: Any) -> float:
    """Intersection of the pages' colour histograms."""
    import numpy

    hists = []
    for page in (one, two):
        bins = (page.reshape(-1, 3) // (256 // BINS)).astype(numpy.int64)
        index = (bins[:, 0] * BINS + bins[:, 1]) * BINS + bins[:, 2]
        count = numpy.bincount(index, minlength=BINS**3)
        hists.append(count / count.sum())
    return float(numpy.minimum(*hists).sum())


def layout(one: Shot, two: Shot) -> float:
    """Overlap of the boxes of each kind; 1 where neither page shows anything."""
    rows = max(1, round(max(one.height, two.height) * COLUMNS / one.width))
    found = []
    for kind in KINDS:
        a, b = (_painted(shot, kind, rows) for shot in (one, two))
        either = int((a | b).sum())
        if either:
            found.append(float((a & b).sum()) / either)
    return sum(found) / len(found) if found else 1.0


def _painted(shot: Shot, kind: str, rows: int) -> Any:
    import numpy

    grid = numpy.zeros((rows, COLUMNS), dtype=bool)
    scale = COLUMNS / shot.width
    for box in shot.boxes:
        if box.kind == kind:
            top, left = int(box.top * scale), int(box.left * scale)
            bottom, right = _end(box.top + box.height, scale), _end(box.left + box.width, scale)
            grid[max(0, top) : bottom, max(0, left) : right] = True
    return grid


def _end(value: float, scale: float) -> int:
    return max(0, int(value * scale + 0.999))


def _pixels(one: Shot, two: Shot) -> tuple[Any, Any]:
    """Both pages as arrays of one shape."""
    import numpy

    pages = [_array(_open(shot.png)) for shot in (one, two)]
    height = max(page.shape[0] for page in pages)
    width = max(page.shape[1] for page in pages)
    filled = []
    for page in pages:
        room = ((0, height - page.shape[0]), (0, width - page.shape[1]), (0, 0))
        filled.append(numpy.pad(page, room, mode="edge"))
    return filled[0], filled[1]


def _open(png: bytes) -> Any:
    try:
        import numpy  # noqa: F401
        import skimage  # noqa: F401
        from PIL import Image
    except ImportError as error:
        raise MissingDependency(
            str(error.name), needed_for="comparing pages",
            install=with_extra("vision"),
        ) from None  # fmt: skip
    return Image.open(io.BytesIO(png)).convert("RGB")


def _array(image: Any) -> Any:
    import numpy

    return numpy.asarray(image)


def black(size: int = 224) -> Shot:
    """What stands for a page that is missing (Zhou et al. 2025): a black square."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (size, size)).save(out, "PNG")
    return Shot(out.getvalue(), size, size)
