"""Objectives on weighted rows, one file each; `loss.name` names the file."""

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
"""Files of this folder that are not objectives."""
OBJECTIVE_FIELDS = ("ratio", "most", "low", "high", "negative", "floor")
"""Fields of `loss` for objectives; `FIELDS` of an objective's file lists those that it uses."""


@dataclass(frozen=True)
class TokenBatch:
    """One batch as an objective gets it; all but `weight` of shape (rows, tokens - 1)."""

    log_probs: Any
    """log pi of every logged token, 0 where masked; carries the gradient."""
    mask: Any
    """True where the policy wrote the token."""
    weight: Any
    """The rows' weights, shape (rows,)."""
    pi_0: Any = None
    """log pi_0 of every logged token, 0 where masked; None if the objective does not need it."""

    def ratios(self, kind: str) -> Any:
        """Return pi / pi_0 of each token, or for kind `sequence` of the row, shape (rows, 1)."""
        change = self.log_probs - self.pi_0
        return (change if kind == "token" else change.sum(-1, keepdim=True)).exp()


@dataclass(frozen=True)
class Objective:
    """The loss function of an objective's file, and whether it needs log pi_0."""

    loss: Callable[[TokenBatch, Loss], Any]
    """Returns the loss of every token, shape (rows, tokens - 1); its sum over N is minimised."""
    needs_pi_0: bool


def describe_loss(settings: Loss) -> str:
    """Return a line that says what is minimised, such as `loss nll`.

    It has the loss's name and those of its own fields that are not at their defaults, then the
    anchor with its weight, and that log pi_0 is computed first if it is needed.
    """
    default, module = Loss(), _load_module(settings.name)
    own = [
        f"{name} {getattr(settings, name)}"
        for name in getattr(module, "FIELDS", OBJECTIVE_FIELDS)
        if getattr(settings, name) != getattr(default, name)
    ]
    parts = [", ".join([f"loss {settings.name}", *own])]
    if settings.has_anchor:
        parts.append(f"anchor {settings.anchor} x {settings.anchor_weight:g}")
    if load_objective(settings).needs_pi_0:
        parts.append("log pi_0 computed with the model it starts from")
    return "; ".join(parts)


def objective_names() -> list[str]:
    """Return the names of the shipped objectives in alphabetical order, with hyphens (`a-lol`)."""
    files = Path(__file__).parent.glob("[a-z]*.py")
    return sorted(file.stem.replace("_", "-") for file in files if file.stem not in HELPERS)


def load_objective(settings: Loss) -> Objective:
    """Return the objective that `loss.name` names: a shipped one, or a path to a `.py` file, which
    is run.

    Raise SpecError if there is none, if the file has no function `loss`, or if a field is set that
    the objective does not use.
    """
    module = _load_module(settings.name)
    if not callable(getattr(module, "loss", None)):
        raise SpecError(f"loss.name {settings.name!r}: found no function `loss(seen, settings)`")
    default = Loss()
    for name in OBJECTIVE_FIELDS:
        setting = getattr(settings, name)
        if name not in getattr(module, "FIELDS", OBJECTIVE_FIELDS) and setting != getattr(
            default, name
        ):
            raise SpecError(
                f"loss.{name}: found {setting}, which objective {settings.name} does not use; it "
                f"uses {', '.join(module.FIELDS)}"
            )
    needs = getattr(module, "needs_pi_0", lambda settings: False)
    return Objective(module.loss, bool(needs(settings)))


def _load_module(name: str) -> ModuleType:
    if name.endswith(".py"):
        path = Path(name).expanduser()
        spec = importlib.util.spec_from_file_location(f"convbench_loss_{path.stem}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise SpecError(f"loss.name {name!r}: found no such file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    if name not in objective_names():
        raise SpecError(
            f"loss.name: found {name!r:.80}; expected one of {', '.join(objective_names())}, or "
            "the path of your own file (NAME.py)"
        )
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
