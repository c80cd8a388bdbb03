"""Objectives on weighted rows, one file each, found by the name that `loss.name` says."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from convbench.errors import SpecError
from convbench.schema.recipe import Loss

HELPERS = ("anchors", "bounds", "reference")
"""Files here that are no objectives."""
OWN = ("ratio", "most", "low", "high", "negative", "floor")
"""Fields of `loss` that are an objective's own; `FIELDS` of its file says which it goes by."""


@dataclass(frozen=True)
class Seen:
    """One batch as an objective sees it; all but `weight` of shape (rows, tokens - 1)."""

    log_probs: Any
    """log pi of every logged token, 0 where masked; carries the gradient."""
    mask: Any
    """True where the policy wrote the token."""
    weight: Any
    """The rows' weights, shape (rows,)."""
    pi_0: Any = None
    """log pi_0 of every logged token, 0 where masked; None where the objective does not need it."""

    def ratios(self, kind: str) -> Any:
        """Return pi / pi_0 of each token, or for kind `sequence` of the row, shape (rows, 1)."""
        change = self.log_probs - self.pi_0
        return (change if kind == "token" else change.sum(-1, keepdim=True)).exp()


@dataclass(frozen=True)
class Objective:
    """What a file of objectives says of itself."""

    loss: Callable[[Seen, Loss], Any]
    """The loss of every token, shape (rows, tokens - 1); what is minimised is its sum over N."""
    needs_pi_0: bool


def describe(settings: Loss) -> str:
    """Say in words what is minimised."""
    default, module = Loss(), _module(settings.name)
    own = [
        f"{name} {getattr(settings, name)}"
        for name in getattr(module, "FIELDS", OWN)
        if getattr(settings, name) != getattr(default, name)
    ]
    said = [", ".join([f"loss {settings.name}", *own])]
    if settings.anchored:
        said.append(f"anchor {settings.anchor} x {settings.anchor_weight:g}")
    if objective(settings).needs_pi_0:
        where = {"base": "computed with the model it starts from", "recorded": "as recorded"}
        said.append(f"log pi_0 {where[settings.pi_0]}")
    return "; ".join(said)


def names() -> list[str]:
    """Return the shipped objectives' names."""
    files = Path(__file__).parent.glob("[a-z]*.py")
    return sorted(file.stem.replace("_", "-") for file in files if file.stem not in HELPERS)


def objective(settings: Loss) -> Objective:
    """Return the objective that is named; SpecError where there is none of that name."""
    module = _module(settings.name)
    if not callable(getattr(module, "loss", None)):
        raise SpecError(f"loss.name {settings.name!r}: found no function `loss(seen, settings)`")
    default = Loss()
    for name in OWN:
        found = getattr(settings, name)
        if name not in getattr(module, "FIELDS", OWN) and found != getattr(default, name):
            raise SpecError(
                f"loss.{name}: found {found}, which objective {settings.name} does not go by; it "
                f"goes by {', '.join(module.FIELDS)}"
            )
    needs = getattr(module, "needs_pi_0", lambda settings: False)
    return Objective(module.loss, bool(needs(settings)))


def _module(name: str) -> ModuleType:
    if name.endswith(".py"):
        path = Path(name).expanduser()
        spec = importlib.util.spec_from_file_location(f"convbench_loss_{path.stem}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise SpecError(f"loss.name {name!r}: found no such file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    if name not in names():
        raise SpecError(
            f"loss.name: found {name!r:.80}; expected one of {', '.join(names())}, or a path to a "
            "file of yours (NAME.py)"
        )
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
