"""Open the model that a reference names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from convbench.errors import FatalModelError
from convbench.models import prices
from convbench.models.aliases import ResolvedModel, default_policy, resolve
from convbench.models.devices import Placement, list_devices
from convbench.models.model import Model
from convbench.models.parameters import Note, Parameters, to_stderr
from convbench.models.prices import OPENAI_LIKE, Price
from convbench.schema import ModelConfig
from convbench.util.untrusted import check_address
from convbench.util.words import Structured

OPENAI = "https://api.openai.com/v1"


def open_model(
    ref: str,
    *,
    api_base: str | None = None,
    log_dir: Path | None = None,
    downloaded: bool = False,
    media: Path | None = None,
    specs: Sequence[Path] = (),
    short: str | None = None,
    member: ModelConfig | None = None,
    placement: Placement | None = None,
    note: Note = to_stderr,
) -> Model:
    """Return the model of a reference or short name; nothing is sent or loaded.

    `short` is the name by which a recorded reference was requested, `member` a run's settings in
    its place; `placement` concerns models that run here. `downloaded` limits rules to ours. Raise
    FatalModelError for what cannot be opened, SpecError for a rule.
    """
    if api_base is not None:
        check_address(api_base, f"{ref}: --api-base")
    resolved = resolve(ref, api_base=api_base, specs=specs, short=short)
    if member is not None:
        settings = {"reads": member.reads, "extra_body": dict(member.extra_body)}
        resolved = replace(resolved, alias=resolved.alias.model_copy(update=settings))
    placement = placement or Placement()
    scheme, _, rest = resolved.ref.partition(":")
    if scheme == "rule":
        from convbench.models.rule import RuleModel

        return RuleModel(resolved.ref, downloaded=downloaded, media=media)
    if scheme == "scripted":
        from convbench.models.scripted import ScriptedModel

        return ScriptedModel(rest)
    if scheme == "local":
        if placement.vllm:
            raise FatalModelError(
                f"{resolved.ref}: found arguments of vLLM among its devices; expected "
                f"vllm:{rest}, or none"
            )
        from convbench.models.local import LocalModel

        return LocalModel(
            resolved.ref,
            device=placement.torch_device,
            reads=resolved.alias.reads,
            template=resolved.alias.extra_body.get("chat_template_kwargs"),
            share=placement.share,
        )
    base = None if scheme == "vllm" else api_base or base_of(resolved.provider)
    parameters = Parameters(
        resolved.ref,
        drop=never_sent(resolved),
        headroom=resolved.alias.headroom,
        limit="max_completion_tokens" if base == OPENAI else "max_tokens",
        reads=resolved.alias.reads,
        extra_body=resolved.alias.extra_body,
        structured=structured_of(resolved),
        note=note,
    )
    if scheme == "vllm":
        from convbench.models.vllm import VLLMModel

        names = tuple(device.name for device in list_devices())
        if names and placement.names is None:
            placement = replace(placement, names=names)
        return VLLMModel(resolved.ref, parameters, log_dir or Path.cwd(), media, placement)
    return _open_remote(resolved, api_base, parameters, media)


def _open_remote(
    resolved: ResolvedModel, api_base: str | None, parameters: Parameters, media: Path | None
) -> Model:
    from convbench.models.batches import AnthropicBatches, Batches

    base, price = api_base or base_of(resolved.provider), price_of(resolved)
    half = price.over(2) if price else None
    variable = f"{resolved.provider.upper()}_API_KEY"
    if resolved.provider not in OPENAI_LIKE:
        from convbench.models.litellm_model import LitellmModel

        address, anthropic = api_base, resolved.provider == "anthropic"
        if anthropic and base:  # litellm appends the route
            address = base.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        model = LitellmModel(resolved.ref, address, parameters, price, media, variable)
        model.needs_key = api_base is None
        if anthropic:
            model.batches = AnthropicBatches(model, half, address)
        return model
    from convbench.models.openai import OpenAIModel

    key = os.environ.get(variable, "").strip()
    if base == OPENAI and not key:
        raise FatalModelError(f"{resolved.ref}: no key; set the environment variable {variable}")
    if not (key.isascii() and key.isprintable()):
        raise FatalModelError(f"{variable}: expected one line of ASCII; found other characters")
    if base is None:
        raise FatalModelError(
            f"{resolved.ref}: no server; give --api-base http://HOST:PORT/v1 or set "
            f"{resolved.provider.upper()}_API_BASE"
        )
    name = resolved.ref.partition("/")[2]
    served = OpenAIModel(resolved.ref, name, base, key, variable, parameters, price, media)
    served.batches = Batches(served, half)
    return served


def never_sent(resolved: ResolvedModel) -> set[str]:
    """Return the sampling parameters that a model is known to refuse: those that its alias drops,
    and `temperature` and `top_p` if the price list says that it takes none."""
    takes = prices.list_entry(resolved.ref).get("supports_sampling_params")
    return {*resolved.alias.drop, *(("temperature", "top_p") if takes is False else ())}


def structured_of(resolved: ResolvedModel) -> Structured:
    """Return `json_schema` unless the price list says that a model takes none, else `text`."""
    takes = prices.list_entry(resolved.ref).get("supports_response_schema")
    return "text" if takes is False else "json_schema"


def policy_or_default(
    ref: str | None = None, *, api_base: str | None = None, specs: Sequence[Path] = ()
) -> str:
    """Return `ref` unchecked if it is given, else the default policy's name or reference. Raise
    FatalModelError if that is unknown, or (with alternatives) if it needs a vLLM and a GPU that are
    not here."""
    name = ref or default_policy(specs)
    if ref or not resolve(name, api_base=api_base, specs=specs).ref.startswith("vllm:"):
        return name
    from convbench.models.vllm import PYTHON, find_interpreter

    if find_interpreter() is not None:
        return name
    raise FatalModelError(
        f"no --model, and the default {name} needs vLLM and a GPU, which are not here; give --model"
        f" PROVIDER/NAME, --model NAME --api-base URL, --model local:PATH, or set {PYTHON}; or run "
        "`convbench demo`, which needs none"
    )


def base_of(provider: str) -> str | None:
    """Return the address in PROVIDER_API_BASE or PROVIDER_BASE_URL, without a slash at its end;
    else OpenAI's own for `openai`, None for others. Raise FatalModelError if it is none."""
    for name in (f"{provider.upper()}_API_BASE", f"{provider.upper()}_BASE_URL"):
        if base := os.environ.get(name):
            check_address(base, name)
            return base.rstrip("/")
    return OPENAI if provider == "openai" else None


def price_of(resolved: ResolvedModel) -> Price | None:
    """Return the alias's price if it gives input and output, else the price list's, or None."""
    alias = resolved.alias
    if alias.input_per_million is None or alias.output_per_million is None:
        return prices.list_price(resolved.ref)
    cached, written = alias.cached_per_million, alias.cache_write_per_million
    return Price(alias.input_per_million, alias.output_per_million, cached, written).over(1e6)


def has_batches(resolved: ResolvedModel) -> bool:
    """Return True for Anthropic and OpenAI-compatible servers, which may have none after all."""
    return resolved.provider in (*OPENAI_LIKE, "anthropic")
