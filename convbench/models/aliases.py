"""Short names for models: `specs/models.yaml`, overridden by the user's own files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from convbench.catalog.find import spec_folders
from convbench.catalog.load import check_spec
from convbench.catalog.read import parse_yaml, read_source
from convbench.errors import FatalModelError
from convbench.models import prices
from convbench.models.weights_path import sibling_hint, without_latest
from convbench.schema import FrozenModel
from convbench.schema.reasoning import ExtraBody, Reads, Replay

SCHEMES = ("rule", "scripted", "local", "vllm")
"""Kinds of model that convbench runs itself: `SCHEME:REST`."""
USER_FILE = Path("~/.config/convbench/models.yaml")


class Alias(FrozenModel):
    """The meaning of a short name: a model's `ref`, or `retired` with its `successor`."""

    ref: str | None = None
    """Model reference: `provider/name` as litellm writes it, `vllm:ID`, `local:PATH`."""
    drop: tuple[Literal["temperature", "top_p", "seed", "reasoning_effort"], ...] = ()
    """Sampling parameters that this model refuses; they are not sent, which is noted once."""
    headroom: int = Field(default=0, ge=0)
    """Tokens added to max_tokens for reasoning that the provider counts but does not show."""
    reads: Reads = "field"
    """Where its reasoning is read: a field of the reply (`reasoning_content`, `reasoning`,
    `thinking_blocks`), or `tags` such as <think> at the start of its text too."""
    replay: Replay = "never"
    """Which of its earlier reasoning is sent back with the next call."""
    extra_body: ExtraBody = Field(default_factory=dict)
    """Additional fields of every request."""
    weights: str | None = None
    """Where the weights of a served name lie, so that training finds them."""
    input_per_million: float | None = Field(default=None, ge=0)
    """Dollars per million prompt tokens; with `output_per_million` it replaces the price list."""
    output_per_million: float | None = Field(default=None, ge=0)
    """Dollars per million reply tokens."""
    cached_per_million: float | None = Field(default=None, ge=0)
    """Dollars per million prompt tokens that the provider had cached; null: as any other."""
    cache_write_per_million: float | None = Field(default=None, ge=0)
    """Dollars per million prompt tokens that it caches; null: as any other."""
    retired: str | None = None
    """Why this name is no longer served."""
    successor: str | None = None
    """The name to use instead."""
    note: str | None = None
    """One line for lists."""

    @model_validator(mode="after")
    def _check_ref_or_retired(self) -> Self:
        if (self.ref is None) == (self.retired is None):
            raise ValueError("give exactly one of ref and retired")
        return self


class AliasFile(FrozenModel):
    """A `models.yaml`."""

    default: str | None = None
    """The policy if none is given: a name below, or a reference."""
    models: dict[str, Alias] = Field(default_factory=dict)
    """Short names."""


@dataclass(frozen=True)
class ResolvedModel:
    """A model reference (`scheme:rest` or `provider/name`, as a run records it), its settings, and
    the short name by which it was requested."""

    ref: str
    alias: Alias = Alias(ref="")  # noqa: RUF009 - frozen
    short: str | None = None

    @property
    def provider(self) -> str:
        """Return what is before the first slash of `ref`, e.g. `openai`: litellm's provider."""
        return self.ref.partition("/")[0]


def aliases(specs: Sequence[Path] = ()) -> AliasFile:
    """Return all short names, retired ones included, and the default policy, None if no file names
    one. A name has the whole entry of the first file that has it: of the folders `specs`, ./specs,
    the user's file, the shipped one. Raise SpecError for an invalid file or a missing folder."""
    files = list(_read_files(specs).values())
    models: dict[str, Alias] = {}
    for content in files:
        models |= {name: each for name, each in content.models.items() if name not in models}
    default = next((content.default for content in files if content.default), None)
    return AliasFile(default=default, models=models)


def file_of(name: str, specs: Sequence[Path] = ()) -> Path:
    """Return the path of the first `models.yaml` that defines a short name."""
    return next(path for path, content in _read_files(specs).items() if name in content.models)


def _read_files(specs: Sequence[Path]) -> dict[Path, AliasFile]:
    *own, shipped = (folder / USER_FILE.name for folder in spec_folders(specs))
    paths = [path for path in (*own, USER_FILE.expanduser(), shipped) if path.is_file()]
    return {path: _parse_file(read_source(path), str(path)) for path in paths}


@lru_cache(maxsize=16)
def _parse_file(text: str, origin: str) -> AliasFile:
    return check_spec(AliasFile, parse_yaml(text, origin), origin)


def resolve(
    ref: str, *, api_base: str | None = None, specs: Sequence[Path] = (), short: str | None = None
) -> ResolvedModel:
    """Return the model that a short name, a path of weights or a model reference stands for. With
    `api_base`, a name without a known provider becomes `openai/NAME`.

    A reference gets the settings of `short`, by which it was once requested, if that still stands
    for it, else those of the first short name with this reference. Raise FatalModelError for an
    unknown name, a retired one (with its successor) or a missing folder of weights.
    """
    known = aliases(specs).models
    if short in known and known[short].ref == ref:
        return ResolvedModel(ref, known[short], short)
    if ref in known:
        alias = known[ref]
        if alias.ref is not None:
            return ResolvedModel(alias.ref, alias, ref)
        raise FatalModelError(
            f"{ref}: {alias.retired}; use {alias.successor or 'another'}, or give the id that "
            "still serves it as provider/name (results with another model are not comparable)"
        )
    model = _resolve_ref(ref, api_base, sorted(known))
    alias = next((alias for alias in known.values() if alias.ref == model.ref), model.alias)
    return replace(model, alias=alias)


def _resolve_ref(ref: str, api_base: str | None, known: list[str]) -> ResolvedModel:
    scheme, _, rest = ref.partition(":")
    if scheme in SCHEMES and rest:
        return ResolvedModel(without_latest(ref))
    provider, slash, name = ref.partition("/")
    provided = bool(slash) and prices.is_provider(provider)
    if not ref.strip() or (provided and not name.strip()):
        raise FatalModelError(f"found {ref!r} as a model; expected a name too: PROVIDER/NAME")
    path = Path(ref)
    weights = (path / "config.json").is_file() or (path / "adapter_config.json").is_file()
    if weights and api_base is None:
        return ResolvedModel(f"local:{without_latest(ref)}")
    if weights:  # servers name a model by the folder that they were started with
        alias = Alias(ref=f"openai/{ref}", weights=without_latest(ref))
        return ResolvedModel(f"openai/{ref}", alias)
    if api_base is not None:
        return ResolvedModel(ref if provided else f"openai/{ref}")
    marked = ref.startswith(("/", ".", "~")) or "checkpoints" in path.parts
    if marked or (slash and path.is_dir() and not provided):
        raise FatalModelError(f"{ref}: no such folder of weights{sibling_hint(ref)}")
    if slash:
        return ResolvedModel(ref)
    row = prices.price_list().get(ref, {})
    if row.get("mode") == "chat":
        return ResolvedModel(f"{row['litellm_provider']}/{ref}")
    close = difflib.get_close_matches(ref, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise FatalModelError(
        f"no model {ref!r}; {hint}expected provider/name (e.g. openai/gpt-4o-mini), local:PATH, "
        f"vllm:HF_ID, --api-base with the name a server gives it, or one of: {', '.join(known)}"
    )


def default_policy(specs: Sequence[Path] = ()) -> str:
    """Return the default policy as it is written: a short name or a reference, not checked. It is
    CONVBENCH_MODEL, else the `default` of the first file that has one, else `llama-3.1-8b`."""
    return os.environ.get("CONVBENCH_MODEL") or aliases(specs).default or "llama-3.1-8b"
