"""Options of `build`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from convbench.options.declare import MODELS, Opt
from convbench.options.shared import (
    CallOptions,
    DryRun,
    ModelCallMixin,
    RunSettings,
    SpecOptions,
)


def _parse_count(text: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"found {text!r}; expected a number of at least 1, or all")
    return int(text)


def _parse_on(text: str) -> str:
    if text != "ray" and not text.startswith("ray:"):
        raise ValueError(f"found {text!r:.40}; expected ray or ray:ADDRESS, e.g. ray:10.0.0.1:6379")
    return text


@dataclass(frozen=True)
class BuildOptions(ModelCallMixin):
    """Build a run: draw questions and hold a conversation of several turns about each."""

    EXAMPLES: ClassVar = (
        "convbench build arc --mode thinking --model openai/gpt-4o-mini",
        "convbench build arc --model hosted_vllm/llama --api-base http://localhost:8000/v1",
        "convbench build arc --tasks 50 --samples 1 --dry-run",
        "convbench build --run runs/latest        (resume)",
    )
    ORDER: ClassVar = (
        "task",
        "mode",
        "protocol",
        "tasks",
        "samples",
        "temperatures",
        "top_p",
        "turns",
        "max_tokens",
        "reasoning_effort",
        "seed",
        "split",
        "shard",
        "shards",
        "on",
        "run",
        "model",
        "teacher",
        "dry_run",
    )

    task: Annotated[
        str | None,
        Opt("Task: a name from `convbench list tasks`, or a file.", argument=True, names="tasks"),
    ] = None
    protocol: Annotated[
        str | None, Opt("Protocol; without it the task's own.", names="protocols")
    ] = None
    tasks: Annotated[
        int | Literal["all"] | None,
        Opt(
            "Questions drawn (the task's own: 500, of a file of yours all).",
            metavar="N|all",
            parse=_parse_count,
        ),
    ] = None
    shape: RunSettings = RunSettings()
    model: Annotated[
        str | None,
        Opt(
            "The policy: an alias, provider/name, hosted_vllm/NAME, vllm:HF_ID, local:PATH or "
            "scripted:policy.",
            panel=MODELS,
            names="policies",
        ),
    ] = None
    teacher: Annotated[
        str | None,
        Opt(
            "Model of the other speaker, where the protocol asks for one.",
            panel=MODELS,
            names="models",
        ),
    ] = None
    run: Annotated[
        Path | None,
        Opt("Folder of the run; an existing one is resumed.", metavar="DIR", names="runs"),
    ] = None
    dry_run: DryRun = False
    shard: Annotated[
        str | None,
        Opt(
            "Only part I, from 0, of N parts of the questions, by group, in a run of its own; "
            "`convbench merge` joins the runs.",
            metavar="I/N",
        ),
    ] = None
    shards: Annotated[
        int | None,
        Opt(
            "With --on: the number of parts, each a run of its own in DIR-shards, which are merged "
            "in --run DIR at the end.",
            least=1,
            most=10_000,
            typed_only=True,
        ),
    ] = None
    on: Annotated[
        str | None,
        Opt(
            "Build the parts on a Ray cluster: that of RAY_ADDRESS, or at an address.",
            metavar="ray[:ADDRESS]",
            parse=_parse_on,
            typed_only=True,
            own_file_only=True,
        ),
    ] = None
    tested: bool = False
    """Raise an error before anything is built if the set has no question to evaluate on."""
    calls: CallOptions = field(default_factory=CallOptions)
    specs: SpecOptions = SpecOptions()
