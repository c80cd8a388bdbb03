"""Short names for models: `specs/models.yaml`, overridden by the user's own files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from convbench.catalog.find import folders
from convbench.catalog.load import check
from convbench.catalog.read import parse, source
from convbench.errors import FatalModelError
from convbench.models import prices
from convbench.models.gguf import is_gguf
from convbench.models.where import beside, without_latest
from convbench.schema import Noun
from convbench.schema.reasoning import ExtraBody, Reads, Replay
from convbench.words import Structured

SCHEMES = ("rule", "scripted", "local", "vllm")
"""Kinds of model that convbench runs itself: `SCHEME:REST`."""
FILE = "models.yaml"
USER_FILE = Path("~/.config/convbench/models.yaml")
VARIABLE = "CONVBENCH_MODEL"
"""Environment variable that names another default policy."""

Droppable = Literal["temperature", "top_p", "seed", "reasoning_effort"]


class Alias(Noun):
    """What a short name stands for: `ref`, or `retired` with its `successor`."""

    ref: str | None = None
    """Model reference: `provider/name` as litellm writes it, `vllm:ID`, `local:PATH`."""
    drop: tuple[Droppable, ...] = ()
    """Sampling parameters this model refuses; they are not sent, which is noted once."""
    headroom: int = Field(default=0, ge=0)
    """Tokens added to max_tokens for reasoning that the provider counts but does not show."""
    reads: Reads = "field"
    """Where its reasoning is read: a field of the reply (`reasoning_content`, `reasoning`,
    `thinking_blocks`), or `tags` such as <think> at the start of its text too."""
    replay: Replay = "never"
    """Which of its earlier reasoning it is sent with the next call."""
    extra_body: ExtraBody = Field(default_factory=dict)
    """More fields of every request."""
    structured: Structured | None = None
    """How it is made to reply by a JSON schema; null goes by provider and price list."""
    weights: str | None = None
    """Where the weights of a served name lie, so that training finds them."""
    input_per_million: float | None = Field(default=None, ge=0)
    """Dollars for a million prompt tokens, where the price list does not say."""
    output_per_million: float | None = Field(default=None, ge=0)
    """Dollars for a million reply tokens."""
    cached_per_million: float | None = Field(default=None, ge=0)
    """Dollars for a million prompt tokens that the provider had cached; null: as any other."""
    cache_write_per_million: float | None = Field(default=None, ge=0)
    """Dollars for a million prompt tokens that it caches; null: as any other."""
    retired: str | None = None
    """Why this name is no longer answered."""
    successor: str | None = None
    """The name to use instead."""
    note: str | None = None
    """One line for lists."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.ref is None) == (self.retired is None):
            raise ValueError("give exactly one of ref and retired")
        return self


class AliasFile(Noun):
    """A `models.yaml`."""

    default: str | None = None
    """The policy where none is named: a name below, or a reference."""
    models: dict[str, Alias] = Field(default_factory=dict)
    """Short names."""


@dataclass(frozen=True)
class Resolved:
    """A model reference with all that is known of it."""

    ref: str
    """`scheme:rest` or `provider/name`; what a run records."""
    alias: Alias = field(default_factory=lambda: Alias(ref=""))
    """Its settings."""
    short: str | None = None
    """The short name it was asked for by."""

    @property
    def provider(self) -> str:
        """litellm's provider, e.g. `openai`."""
        return self.ref.split("/", 1)[0]

    @property
    def name(self) -> str:
        """The name the provider knows."""
        return self.ref.split("/", 1)[1]


def aliases(specs: Sequence[Path] = ()) -> AliasFile:
    """Return all aliases: --specs, then ./specs, the user's file, the shipped ones."""
    default: str | None = None
    models: dict[str, Alias] = {}
    for _, content in _files(specs):
        default = default or content.default
        models = {**models, **{n: a for n, a in content.models.items() if n not in models}}
    return AliasFile(default=default, models=models)


def file_of(name: str, specs: Sequence[Path] = ()) -> Path:
    """Return the file that a known short name is taken from."""
    return next(path for path, content in _files(specs) if name in content.models)


def _files(specs: Sequence[Path]) -> Iterator[tuple[Path, AliasFile]]:
    """Yield every file of aliases there is, the first to count first."""
    found = [folder / FILE for folder in folders(specs)]
    found.insert(max(0, len(found) - 1), USER_FILE.expanduser())
    for path in found:
        if path.is_file():
            yield path, _content(source(path), str(path))


@lru_cache(maxsize=16)
def _content(text: str, origin: str) -> AliasFile:
    """Return a file's aliases; a command resolves many names by the same few files."""
    return check(AliasFile, parse(text, origin), origin)


def resolve(
    ref: str,
    *,
    api_base: str | None = None,
    specs: Sequence[Path] = (),
    short: str | None = None,
) -> Resolved:
    """Return what a name on the command line, or a reference that a run recorded, stands for.

    A reference has the settings of `short`, the name it was once asked for by, if that still
    stands for it; else of the first short name that does. FatalModelError where a name is retired
    (naming the successor) or nobody knows it.
    """
    known = aliases(specs).models
    if short in known and known[short].ref == ref:
        return Resolved(ref, known[short], short)
    if ref in known:
        return _alias(ref, known[ref])
    found = _reference(ref, api_base, sorted(known))
    alias = next((alias for alias in known.values() if alias.ref == found.ref), found.alias)
    return replace(found, alias=alias)


def _reference(ref: str, api_base: str | None, known: list[str]) -> Resolved:
    """Return what anything but a short name stands for."""
    scheme, _, rest = ref.partition(":")
    if scheme in SCHEMES and rest:
        return Resolved(without_latest(ref))
    if not ref.strip() or (ref.rstrip()[-1] == "/" and prices.is_provider(ref.split("/", 1)[0])):
        raise FatalModelError(
            f"found {ref!r} as a model; expected a name too: PROVIDER/NAME, e.g. openai/gpt-4o-mini"
        )
    if api_base is None and is_gguf(ref):
        return Resolved(f"local:{ref}")
    if _checkpoint(Path(ref)):
        if api_base is None:
            return Resolved(f"local:{without_latest(ref)}")
        # Servers name a model by the folder it was started with.
        alias = Alias(ref=f"openai/{ref}", weights=without_latest(ref))
        return Resolved(f"openai/{ref}", alias)
    if api_base is None and _is_path(ref):
        raise FatalModelError(f"{ref}: no such folder of weights{beside(ref)}")
    if api_base is None and "/" not in ref and (provider := prices.provider(ref)):
        return Resolved(f"{provider}/{ref}")
    if "/" in ref and (api_base is None or prices.is_provider(ref.split("/", 1)[0])):
        return Resolved(ref)
    if api_base is not None:
        return Resolved(f"openai/{ref}")
    raise FatalModelError(_unknown(ref, known))


def default_policy(specs: Sequence[Path] = ()) -> str:
    """Return the policy's reference where none is named: CONVBENCH_MODEL, else the files'."""
    return os.environ.get(VARIABLE) or aliases(specs).default or "llama-3.1-8b"


def _alias(name: str, alias: Alias) -> Resolved:
    if alias.ref is None:
        instead = f"; use {alias.successor}" if alias.successor else ""
        raise FatalModelError(
            f"{name}: {alias.retired}{instead}, or give the id that still serves it as "
            "provider/name (results with another model are not comparable)"
        )
    return Resolved(alias.ref, alias, name)


def _is_path(ref: str) -> bool:
    """Whether a reference can only be meant as a folder's path, or names one that is there."""
    path = Path(ref)
    marked = ref.startswith(("/", ".", "~")) or "checkpoints" in path.parts
    return marked or ("/" in ref and path.is_dir() and not prices.is_provider(path.parts[0]))


def _checkpoint(path: Path) -> bool:
    return (path / "config.json").is_file() or (path / "adapter_config.json").is_file()


def _unknown(ref: str, known: list[str]) -> str:
    close = difflib.get_close_matches(ref, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return (
        f"no model {ref!r}; {hint}expected provider/name (e.g. openai/gpt-4o-mini), local:PATH, "
        f"vllm:HF_ID, --api-base with the name a server gives it, or one of: {', '.join(known)}"
    )
