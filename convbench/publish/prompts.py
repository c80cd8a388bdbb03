"""The prompts of a run as they stand in a card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from convbench.printable import printable
from convbench.schema import JudgeSpec, RunManifest, pick


def prompts(manifest: RunManifest, judges: Mapping[str, JudgeSpec]) -> str:
    """Return a section with every template that was used; empty for imported conversations."""
    blocks = [*_speakers(manifest), *_steps(manifest), *_judges(judges)]
    if not blocks:
        return ""
    return "## Prompts\n\nTemplates as given to the models (`{{ … }}` is filled in).\n\n" + (
        "\n\n".join(blocks)
    )


def _speakers(manifest: RunManifest) -> Iterator[str]:
    override = manifest.task.overrides.get(manifest.protocol.name)
    for name, speaker in manifest.protocol.speakers.items():
        own = override.systems.get(name) if override else None
        text = pick(speaker.system if own is None else own, manifest.mode)
        if text:
            yield _block(f"System prompt of {name}", text)


def _steps(manifest: RunManifest) -> Iterator[str]:
    override = manifest.task.overrides.get(manifest.protocol.name)
    for step in manifest.protocol.all_steps():
        own = override.steps.get(step.id) if override else None
        said = step.say if step.say is not None else step.ask
        text = pick(said if own is None else own, manifest.mode)
        if text:
            verb = "says" if step.say is not None else "is asked"
            yield _block(f"Step {step.id}: {step.speaker} {verb}", text)
    instruction = pick(manifest.task.instruction, manifest.mode)
    if instruction:
        yield _block("Instruction of the task", instruction)


def _judges(judges: Mapping[str, JudgeSpec]) -> Iterator[str]:
    for spec in judges.values():
        if spec.system:
            yield _block(f"System prompt of judge {spec.name}", spec.system)
        if spec.prompt:
            yield _block(f"Prompt of judge {spec.name}", spec.prompt)
        if spec.metrics:
            yield _block(f"Criteria of judge {spec.name}", "\n".join(_criteria(spec)))


def _criteria(spec: JudgeSpec) -> Iterator[str]:
    """Yield what a judge scores, a line a metric, and what becomes the reward."""
    for metric in spec.metrics:
        low, high = spec.limits(metric.name)
        weight = f", weight {metric.weight:g}" if metric.weight is not None else ""
        about = f": {metric.about}" if metric.about else ""
        yield f"{metric.label} ({metric.name}, {low:g} to {high:g}{weight}){about}"
    if spec.weighted:
        yield f"Overall (overall, {spec.lowest:g} to {spec.highest:g}): the weighted mean"
    yield f"reward = {spec.reward.metric} / {spec.reward.scale:g}"


def _block(title: str, text: str) -> str:
    summary = escape(printable(title).replace("\n", " "))
    block = fenced(printable(text).strip(), "text")
    return f"<details><summary>{summary}</summary>\n\n{block}\n\n</details>"


def fenced(text: str, language: str) -> str:
    """Return text as a block of code that nothing in it ends."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
