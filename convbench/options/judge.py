"""Options of `judge`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.options.declare import WHERE, Opt
from convbench.options.shared import CallOptions, DryRun, ModelCallMixin, SpecOptions


@dataclass(frozen=True)
class JudgeOptions(ModelCallMixin):
    """Score every conversation of a run and of its evaluations; existing scores are kept."""

    EXAMPLES: ClassVar = (
        "convbench judge --judge claude-opus",
        "convbench judge --judge gpt-4o --judge claude-opus --budget 20",
        "convbench judge --judge rules",
        "convbench judge --judge human:labels.csv",
        "convbench judge --judge gpt-4o --controls",
        "convbench judge --judge rubric-section4@gpt-4o --dry-run",
        "convbench judge --pairwise swift base --judge gpt-4o",
    )

    judges: Annotated[
        tuple[str, ...],
        Opt(
            "A model (claude-opus, gpt-4o, provider/name), rules, human:FILE, a judge spec, or "
            "SPEC@MODEL; several times for a panel. Without it the task's own.",
            "--judge",
            "NAME",
            names="judges",
        ),
    ] = ()
    run: Annotated[
        Path | None,
        Opt(
            "Run directory, several times for several runs; without it the newest run.",
            "--run",
            "DIR",
            WHERE,
            each=True,
            names="runs",
            either=True,
        ),
    ] = None
    pairwise: Annotated[
        tuple[str, str] | None,
        Opt(
            "Compare two policies' conversations on the same question and sample, in both orders. "
            "A and B: a run directory, base, or the name of an evaluation.",
            "--pairwise",
            "A B",
        ),
    ] = None
    controls: Annotated[
        bool,
        Opt(
            "Also show each judge worthless answers (empty, constant, padded, copied, "
            "injected); a judge that pays more for them than for the policy's own is unfit."
        ),
    ] = False
    dry_run: DryRun = False
    calls: CallOptions = field(default_factory=CallOptions)
    specs: SpecOptions = SpecOptions()
