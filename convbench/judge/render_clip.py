"""Cosine of CLIP image embeddings, where the weights are here (Zhou et al. 2025: ViT-B/32)."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

from convbench.errors import MissingDependency, RunError
from convbench.install import with_extra


def cosine(one: bytes, two: bytes, model: str) -> float:
    """Return the cosine of two PNGs' normalised image embeddings, -1 to 1."""
    a, b = (embedding(png, model) for png in (one, two))
    return max(-1.0, min(1.0, float((a * b).sum())))


@lru_cache(maxsize=128)
def embedding(png: bytes, model: str) -> Any:
    """Return the embedding of length 1, shape (width,)."""
    import torch
    from PIL import Image

    network, processor = _loaded(model)
    image = Image.open(io.BytesIO(png)).convert("RGB")
    with torch.no_grad():
        found = network.get_image_features(**processor(images=image, return_tensors="pt"))
    found = getattr(found, "pooler_output", found)[0]
    return found / found.norm()


@lru_cache(maxsize=1)
def _loaded(model: str) -> tuple[Any, Any]:
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
