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
    """Return the model of a reference or short name, with that name's settings; nothing is sent or
    loaded.

    `short` is the name by which a recorded reference was requested, `member` a run's settings in
    its place; `placement` concerns models that run here. `downloaded` limits rules to convbench's
    own. Raise FatalModelError for an unknown name, bad address, missing weights, vLLM or OpenAI
    key, SpecError for an unknown rule.
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
    if resolved.provider in OPENAI_LIKE:
        return _open_server(resolved, base, parameters, media)
    from convbench.models.batches import AnthropicBatches
    from convbench.models.litellm_model import LitellmModel

    address, anthropic = api_base, resolved.provider == "anthropic"
    if anthropic and base:  # litellm appends the route
        address = base.rstrip("/").removesuffix("/messages").removesuffix("/v1")
    model = LitellmModel(
        resolved.ref,
        api_base=address,
        needs_key=api_base is None,
        parameters=parameters,
        price=price_of(resolved),
        media=media,
    )
    if anthropic:
        model.batches = AnthropicBatches(model, batch_price_of(resolved), address)
    return model


def _open_server(
    resolved: ResolvedModel, base: str | None, parameters: Parameters, media: Path | None
) -> Model:
    """Return a model of an OpenAI-compatible server. Raises FatalModelError."""
    from convbench.models.batches import Batches
    from convbench.models.openai import OpenAIModel

    variable = f"{resolved.provider.upper()}_API_KEY"
    key = os.environ.get(variable, "").strip()
    if base == OPENAI and not key:
        raise FatalModelError(f"{resolved.ref}: no key; set the environment variable {variable}")
    if not (key.isascii() and key.isprintable()):
        raise FatalModelError(f"{variable}: found other characters; expected one line of ASCII")
    if base is None:
        raise FatalModelError(
            f"{resolved.ref}: no server; give --api-base http://HOST:PORT/v1 or set "
            f"{resolved.provider.upper()}_API_BASE"
        )
    model = OpenAIModel(
        resolved.ref,
        resolved.name,
        base,
        key=key,
        key_variable=variable,
        parameters=parameters,
        price=price_of(resolved),
        media=media,
    )
    model.batches = Batches(model, batch_price_of(resolved))
    return model


def never_sent(resolved: ResolvedModel) -> frozenset[str]:
    """Return the names of the sampling parameters that a model is known to refuse: those that its
    alias drops, and `temperature` and `top_p` if the price list says that it takes none."""
    takes = prices.read_capability(resolved.ref, "sampling_params") is not False
    return frozenset({*resolved.alias.drop, *(() if takes else ("temperature", "top_p"))})


def structured_of(resolved: ResolvedModel) -> Structured:
    """Return `json_schema` unless the price list says that a model takes none, else `text`.

    A model that refuses the first schema is asked for text from then on.
    """
    takes = prices.read_capability(resolved.ref, "response_schema")
    return "text" if takes is False else "json_schema"


def policy_or_default(
    ref: str | None = None, *, api_base: str | None = None, specs: Sequence[Path] = ()
) -> str:
    """Return `ref` unchanged and unchecked if it is given, else the default policy's name or
    reference.

    The default is CONVBENCH_MODEL, else `default:` of models.yaml. Raise FatalModelError if it is
    unknown, or (with alternatives) if it needs a vLLM and a GPU that are not here.
    """
    if ref:
        return ref
    name = default_policy(specs)
    resolved = resolve(name, api_base=api_base, specs=specs)
    if resolved.ref.startswith("vllm:"):
        from convbench.models.vllm import PYTHON, find_interpreter

        if find_interpreter() is None:
            raise FatalModelError(
                f"no --model, and the default {name} ({resolved.ref}) needs vLLM and a GPU, which "
                "are not here; give --model PROVIDER/NAME (e.g. openai/gpt-4o-mini), --model NAME "
                f"--api-base URL of a server, --model local:PATH, or set {PYTHON}; or run "
                "`convbench demo`, which needs none"
            )
    return name


def base_of(provider: str) -> str | None:
    """Return the address in PROVIDER_API_BASE, else in PROVIDER_BASE_URL, as litellm reads it,
    without a slash at its end.

    Without one it is OpenAI's own for `openai`, and None for any other provider. Raise
    FatalModelError if the variable holds no HTTP address.
    """
    for name in (f"{provider.upper()}_API_BASE", f"{provider.upper()}_BASE_URL"):
        if base := os.environ.get(name):
            check_address(base, name)
            return base.rstrip("/")
    return OPENAI if provider == "openai" else None


def price_of(resolved: ResolvedModel) -> Price | None:
    """Return the alias's price if it gives both input and output, else the price list's, else
    None."""
    alias = resolved.alias
    if alias.input_per_million is None or alias.output_per_million is None:
        return prices.list_price(resolved.ref)
    cached, written = (
        None if dollars is None else dollars / 1e6
        for dollars in (alias.cached_per_million, alias.cache_write_per_million)
    )
    return Price(alias.input_per_million / 1e6, alias.output_per_million / 1e6, cached, written)


def batch_price_of(resolved: ResolvedModel) -> Price | None:
    """Return the price of a model's calls in batches, None if its ordinary price is unknown."""
    listed = price_of(resolved)
    return prices.batch_price(resolved.ref, listed) if listed else None


def has_batches(resolved: ResolvedModel) -> bool:
    """Return True if the provider is Anthropic or called as an OpenAI-compatible server.

    Whether that server really has batches shows only when one is sent.
    """
    return resolved.provider in (*OPENAI_LIKE, "anthropic")
