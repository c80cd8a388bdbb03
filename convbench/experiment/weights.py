"""How many weights a model has, from its configuration; nothing is loaded."""

from __future__ import annotations

from convbench.models.shape import shape_of


def weights_of(model: str) -> int | None:
    """Return the weights of a model (a path, a Hub id or a reference that says where it lies), as
    its shape has them; None where it is not at hand or of no shape that is known."""
    found = shape_of(model)
    return None if found is None else found.weights
