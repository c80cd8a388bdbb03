"""Open the model that a reference names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from convbench.errors import FatalModelError
from convbench.models import prices
from convbench.models.aliases import Resolved, default_policy, resolve
from convbench.models.devices import Placement, inventory
from convbench.models.model import Model
from convbench.models.prices import OPENAI_LIKE, Price
from convbench.models.refusals import Note, Parameters, to_stderr
from convbench.net.body import check_address
from convbench.schema import Member
from convbench.words import Structured


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
    member: Member | None = None,
    placement: Placement | None = None,
    note: Note = to_stderr,
) -> Model:
    """Return the model of a reference or short name, with that name's settings.

    Nothing is sent, started or loaded yet: servers start and weights load with the first call.
    `context` is the longest context in tokens for models that convbench runs itself, `media` the
    folder of image bytes, `log_dir` the folder of a server's log, `downloaded` True for a reference
    from a pulled run (it may then name only convbench's own functions), `short` the short name by
    which a recorded reference was requested, `member` the settings that a run recorded, in place of
    the name's own, `placement` the devices of a model that convbench runs itself.
    Raises FatalModelError for an unknown or retired name or a missing key, MissingDependency.
    """
    if api_base is not None:
        check_address(api_base, f"{ref}: --api-base")
    found = resolve(ref, api_base=api_base, specs=specs, short=short)
    if member is not None:
        found = recorded(found, member)
    scheme, _, rest = found.ref.partition(":")
    if scheme == "rule":
        from convbench.models.rule import RuleModel

        return RuleModel(found.ref, downloaded=downloaded, media=media)
    if scheme == "scripted":
        from convbench.models.scripted import scripted

        return scripted(rest)
    if scheme == "local":
        return _local(found, context, placement, note)
    if scheme == "vllm":
        from convbench.models.vllm import VLLMModel

        return VLLMModel(
            found.ref,
            python=vllm_python,
            log_dir=log_dir,
            context=context,
            media=media,
            parameters=_parameters(found, None, note),
            placement=placement or Placement(),
        )
    return _remote(found, api_base, media, note)


def _local(found: Resolved, context: int | None, placement: Placement | None, note: Note) -> Model:
    """Return a model of the local engine: in a subprocess if it has a placement or the machine has
    devices, whose memory it must release; else in this process, which is faster to start."""
    settings: dict[str, Any] = {
        "context": context,
        "reads": found.alias.reads,
        "template": found.alias.extra_body.get("chat_template_kwargs"),
    }
    if placement is None and not inventory():
        from convbench.models.local import LocalModel

        return LocalModel(found.ref, **settings)
    if placement is not None and placement.vllm is not None:
        raise FatalModelError(
            f"{found.ref}: found arguments of vLLM among its devices; expected "
            f"vllm:{found.ref.removeprefix('local:')}, or none"
        )
    from convbench.models.child import ChildModel

    return ChildModel(found.ref, placement or Placement(), settings, note=note)


def recorded(found: Resolved, member: Member) -> Resolved:
    """Return a resolved model with the settings that a run recorded."""
    said = {"reads": member.reads, "extra_body": dict(member.extra_body)}
    return replace(found, alias=found.alias.model_copy(update=said))


def never_sent(found: Resolved) -> frozenset[str]:
    """Return the names of the parameters that a model is known to refuse."""
    takes = prices.capability(found.ref, "sampling_params") is not False
    return frozenset({*found.alias.drop, *(() if takes else ("temperature", "top_p"))})


def _parameters(found: Resolved, base: str | None, note: Note) -> Parameters:
    alias = found.alias
    return Parameters(
        found.ref,
        drop=never_sent(found),
        headroom=alias.headroom,
        limit="max_completion_tokens" if base == OPENAI else "max_tokens",
        reads=alias.reads,
        extra_body=alias.extra_body,
        structured=alias.structured or structured_of(found),
        note=note,
    )


def structured_of(found: Resolved) -> Structured:
    """Return how a model is made to reply by a JSON schema if its settings do not say.

    A server that takes no schema refuses the first call, and is asked for text from then on."""
    if prices.capability(found.ref, "native_structured_output"):
        return "json_schema"
    if found.provider == "anthropic":
        forced = prices.capability(found.ref, "forced_tool_use") is not False
        return "tool" if forced else "text"
    served = found.ref.startswith("vllm:") or found.provider in OPENAI_LIKE
    listed = prices.capability(found.ref, "response_schema")
    return "json_schema" if (served and listed is not False) or listed else "text"


def _remote(found: Resolved, api_base: str | None, media: Path | None, note: Note) -> Model:
    """Return a model that a provider or another server serves. Raises FatalModelError."""
    base = api_base or base_of(found.provider)
    parameters = _parameters(found, base, note)
    price = price_of(found)
    if found.provider not in OPENAI_LIKE:
        from convbench.models.litellm_model import LitellmModel

        anthropic = found.provider == "anthropic"
        address = _anthropic_root(base) if anthropic and base else api_base
        model = LitellmModel(
            found.ref,
            api_base=address,
            needs_key=api_base is None,
            parameters=parameters,
            price=price,
            media=media,
        )
        if anthropic:
            from convbench.models.anthropic_batch import AnthropicBatches

            model.batches = AnthropicBatches(model, batch_price_of(found), address)
        return model
    from convbench.models.openai_batch import OpenAIBatches
    from convbench.models.openai_http import OpenAIModel

    variable = f"{found.provider.upper()}_API_KEY"
    key = os.environ.get(variable)
    if base is None or (base == OPENAI and not key):
        raise FatalModelError(_missing(found, variable))
    date = prices.retired(found.ref)
    served = OpenAIModel(
        found.ref,
        found.name,
        base,
        key=key,
        key_variable=variable,
        parameters=parameters,
        price=price,
        media=media,
        hint=f" (the price list ends it on {date})" if date else "",
    )
    served.batches = OpenAIBatches(served, batch_price_of(found))
    return served


def policy_or_default(
    ref: str | None = None,
    *,
    api_base: str | None = None,
    vllm_python: str | Path | None = None,
    specs: Sequence[Path] = (),
) -> str:
    """Return `ref` if it is given, else the default policy if it can run here.

    The default is CONVBENCH_MODEL, else `default:` of models.yaml. Raises FatalModelError, with
    alternatives, if it needs a vLLM that is not installed.
    """
    if ref:
        return ref
    name = default_policy(specs)
    found = resolve(name, api_base=api_base, specs=specs)
    if found.ref.startswith("vllm:"):
        from convbench.models.vllm import can_run

        if not can_run(vllm_python):
            raise FatalModelError(
                f"no --model, and the default {name} ({found.ref}) needs vLLM and a GPU, which "
                "are not here; give --model PROVIDER/NAME (e.g. openai/gpt-4o-mini), --model NAME "
                "--api-base URL of a server, --model local:PATH, --vllm-python PATH; or run "
                "`convbench demo`, which needs none"
            )
    return name


OPENAI = "https://api.openai.com/v1"


def base_of(provider: str) -> str | None:
    """Return the address that the environment sets for a provider, as litellm reads it; None if
    there is none and the provider is not openai."""
    for name in (f"{provider.upper()}_API_BASE", f"{provider.upper()}_BASE_URL"):
        if base := os.environ.get(name):
            check_address(base, name)
            return base
    return OPENAI if provider == "openai" else None


def _anthropic_root(base: str) -> str:
    """Return the root of an address of Anthropic's API; litellm appends `/v1/messages` to it."""
    return base.rstrip("/").removesuffix("/messages").removesuffix("/v1")


def _missing(found: Resolved, variable: str) -> str:
    if found.provider == "openai":
        return f"{found.ref}: no key; set the environment variable {variable}"
    return (
        f"{found.ref}: no server; give --api-base http://HOST:PORT/v1 or set "
        f"{found.provider.upper()}_API_BASE"
    )


def price_of(found: Resolved) -> Price | None:
    """Return the price in the alias, else in the price list; None if both lack it."""
    alias = found.alias
    if alias.input_per_million is not None and alias.output_per_million is not None:
        return Price(
            alias.input_per_million / 1e6,
            alias.output_per_million / 1e6,
            _each(alias.cached_per_million),
            _each(alias.cache_write_per_million),
        )
    return prices.price(found.ref)


def batch_price_of(found: Resolved) -> Price | None:
    """Return the price of a model's calls in batches: the list's, else half of the ordinary price;
    None if that is unknown."""
    listed = price_of(found)
    return prices.in_batches(found.ref, listed) if listed else None


def has_batches(found: Resolved) -> bool:
    """Return True if calls of this model can be sent in batches."""
    return found.provider in (*OPENAI_LIKE, "anthropic")


def _each(per_million: float | None) -> float | None:
    return None if per_million is None else per_million / 1e6
