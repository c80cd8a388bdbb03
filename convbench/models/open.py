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
from convbench.models.prices import OPENAI_LIKE, Price
from convbench.models.refusals import Note, Parameters, to_stderr
from convbench.net.body import check_address
from convbench.schema import ModelConfig
from convbench.util.words import Structured


def open_model(
    ref: str,
    *,
    api_base: str | None = None,
    vllm_python: str | Path | None = None,
    log_dir: Path | None = None,
    downloaded: bool = False,
    context: int | None = None,
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
    its place; `context` (most tokens) and `placement` concern models that run here. `downloaded`
    limits rules to convbench's own. Raise FatalModelError for an unknown name, bad address, missing
    weights, vLLM or OpenAI key, SpecError for an unknown rule.
    """
    if api_base is not None:
        check_address(api_base, f"{ref}: --api-base")
    resolved = resolve(ref, api_base=api_base, specs=specs, short=short)
    if member is not None:
        resolved = with_member_settings(resolved, member)
    scheme, _, rest = resolved.ref.partition(":")
    if scheme == "rule":
        from convbench.models.rule import RuleModel

        return RuleModel(resolved.ref, downloaded=downloaded, media=media)
    if scheme == "scripted":
        from convbench.models.scripted import open_scripted

        return open_scripted(rest)
    if scheme == "local":
        return _open_local(resolved, context, placement or Placement())
    if scheme == "vllm":
        from convbench.models.vllm import VLLMModel

        return VLLMModel(
            resolved.ref,
            python=vllm_python,
            log_dir=log_dir,
            context=context,
            media=media,
            parameters=_parameters_for(resolved, None, note),
            placement=_on_all_devices(placement or Placement()),
        )
    return _open_remote(resolved, api_base, media, note)


def _on_all_devices(placement: Placement) -> Placement:
    """Return a vLLM server's placement, on all devices that it may use if none are set."""
    names = tuple(device.name for device in list_devices())
    return replace(placement, names=names) if names and placement.names is None else placement


def _open_local(resolved: ResolvedModel, context: int | None, placement: Placement) -> Model:
    """Return a model of the local engine, on the first of its devices."""
    if placement.vllm is not None:
        raise FatalModelError(
            f"{resolved.ref}: found arguments of vLLM among its devices; expected "
            f"vllm:{resolved.ref.removeprefix('local:')}, or none"
        )
    from convbench.models.local import LocalModel

    return LocalModel(
        resolved.ref,
        context=context,
        device=placement.torch_device,
        reads=resolved.alias.reads,
        template=resolved.alias.extra_body.get("chat_template_kwargs"),
        share=placement.share,
    )


def with_member_settings(resolved: ResolvedModel, member: ModelConfig) -> ResolvedModel:
    """Return a copy of a resolved model with `reads` and `extra_body` as a run recorded them."""
    settings = {"reads": member.reads, "extra_body": dict(member.extra_body)}
    return replace(resolved, alias=resolved.alias.model_copy(update=settings))


def never_sent(resolved: ResolvedModel) -> frozenset[str]:
    """Return the names of the sampling parameters that a model is known to refuse; empty if none.

    They are those that its alias drops, and `temperature` and `top_p` if the price list says that
    it takes none.
    """
    takes = prices.read_capability(resolved.ref, "sampling_params") is not False
    return frozenset({*resolved.alias.drop, *(() if takes else ("temperature", "top_p"))})


def _parameters_for(resolved: ResolvedModel, base: str | None, note: Note) -> Parameters:
    alias = resolved.alias
    return Parameters(
        resolved.ref,
        drop=never_sent(resolved),
        headroom=alias.headroom,
        limit="max_completion_tokens" if base == OPENAI else "max_tokens",
        reads=alias.reads,
        extra_body=alias.extra_body,
        structured=alias.structured or structured_of(resolved),
        note=note,
    )


def structured_of(resolved: ResolvedModel) -> Structured:
    """Return how a model is made to reply by a JSON schema: `json_schema`, `tool` or `text` (it is
    not).

    It follows the provider and the price list, not the alias. `json_schema` is also assumed for
    vLLM and OpenAI-compatible servers unless the list denies it: one that takes no schema refuses
    the first call, and is asked for text from then on.
    """
    if prices.read_capability(resolved.ref, "native_structured_output"):
        return "json_schema"
    if resolved.provider == "anthropic":
        forced = prices.read_capability(resolved.ref, "forced_tool_use") is not False
        return "tool" if forced else "text"
    served = resolved.ref.startswith("vllm:") or resolved.provider in OPENAI_LIKE
    listed = prices.read_capability(resolved.ref, "response_schema")
    return "json_schema" if (served and listed is not False) or listed else "text"


def _open_remote(
    resolved: ResolvedModel, api_base: str | None, media: Path | None, note: Note
) -> Model:
    """Return a model that a provider or another server serves. Raises FatalModelError."""
    base = api_base or base_of(resolved.provider)
    parameters = _parameters_for(resolved, base, note)
    price = price_of(resolved)
    if resolved.provider not in OPENAI_LIKE:
        from convbench.models.litellm_model import LitellmModel

        anthropic = resolved.provider == "anthropic"
        address = _anthropic_root(base) if anthropic and base else api_base
        model = LitellmModel(
            resolved.ref,
            api_base=address,
            needs_key=api_base is None,
            parameters=parameters,
            price=price,
            media=media,
        )
        if anthropic:
            from convbench.models.anthropic_batch import AnthropicBatches

            model.batches = AnthropicBatches(model, batch_price_of(resolved), address)
        return model
    from convbench.models.openai_batch import OpenAIBatches
    from convbench.models.openai_http import OpenAIModel

    variable = f"{resolved.provider.upper()}_API_KEY"
    key = os.environ.get(variable)
    if base is None or (base == OPENAI and not key):
        raise FatalModelError(_no_server_message(resolved, variable))
    date = prices.retirement_date(resolved.ref)
    served = OpenAIModel(
        resolved.ref,
        resolved.name,
        base,
        key=key,
        key_variable=variable,
        parameters=parameters,
        price=price,
        media=media,
        hint=f" (the price list ends it on {date})" if date else "",
    )
    served.batches = OpenAIBatches(served, batch_price_of(resolved))
    return served


def policy_or_default(
    ref: str | None = None,
    *,
    api_base: str | None = None,
    vllm_python: str | Path | None = None,
    specs: Sequence[Path] = (),
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
        from convbench.models.vllm import can_run

        if not can_run(vllm_python):
            raise FatalModelError(
                f"no --model, and the default {name} ({resolved.ref}) needs vLLM and a GPU, which "
                "are not here; give --model PROVIDER/NAME (e.g. openai/gpt-4o-mini), --model NAME "
                "--api-base URL of a server, --model local:PATH, --vllm-python PATH; or run "
                "`convbench demo`, which needs none"
            )
    return name


OPENAI = "https://api.openai.com/v1"


def base_of(provider: str) -> str | None:
    """Return the address in PROVIDER_API_BASE, else in PROVIDER_BASE_URL, as litellm reads it.

    Without one it is OpenAI's own for `openai`, and None for any other provider. Raise
    FatalModelError if the variable holds no HTTP address.
    """
    for name in (f"{provider.upper()}_API_BASE", f"{provider.upper()}_BASE_URL"):
        if base := os.environ.get(name):
            check_address(base, name)
            return base
    return OPENAI if provider == "openai" else None


def _anthropic_root(base: str) -> str:
    """Return the root of an address of Anthropic's API; litellm appends `/v1/messages` to it."""
    return base.rstrip("/").removesuffix("/messages").removesuffix("/v1")


def _no_server_message(resolved: ResolvedModel, variable: str) -> str:
    if resolved.provider == "openai":
        return f"{resolved.ref}: no key; set the environment variable {variable}"
    return (
        f"{resolved.ref}: no server; give --api-base http://HOST:PORT/v1 or set "
        f"{resolved.provider.upper()}_API_BASE"
    )


def price_of(resolved: ResolvedModel) -> Price | None:
    """Return the alias's price if it gives both input and output, else the price list's, else
    None."""
    alias = resolved.alias
    if alias.input_per_million is not None and alias.output_per_million is not None:
        return Price(
            alias.input_per_million / 1e6,
            alias.output_per_million / 1e6,
            _per_token(alias.cached_per_million),
            _per_token(alias.cache_write_per_million),
        )
    return prices.list_price(resolved.ref)


def batch_price_of(resolved: ResolvedModel) -> Price | None:
    """Return the price of a model's calls in batches, None if its ordinary price is unknown.

    It is the price list's own figure for batches where there is one, else half of the ordinary
    price.
    """
    listed = price_of(resolved)
    return prices.batch_price(resolved.ref, listed) if listed else None


def has_batches(resolved: ResolvedModel) -> bool:
    """Return True if the provider is Anthropic or called as an OpenAI-compatible server.

    Whether that server really has batches shows only when one is sent.
    """
    return resolved.provider in (*OPENAI_LIKE, "anthropic")


def _per_token(per_million: float | None) -> float | None:
    return None if per_million is None else per_million / 1e6
