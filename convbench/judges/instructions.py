"""Append to a rubric's system prompt what it leaves out: criteria, ranges, and the reply format.

A user's rubric is a few sentences and a list of metrics. A judge that answers in text must know the
labels that its reply is read by; for one that answers by a schema the ranges and the metrics'
descriptions are useful.
"""

from __future__ import annotations

import re

from convbench.schema import JudgeSpec, Metric

SCORES = "Give each of these scores exactly once, as a number in its range:"
FORM = "A reply in text MUST be formatted EXACTLY as follows, with these exact labels:"
_MARKS = r"[\"'*_`]*+\s*+:"
"""Characters between a label and the colon, which distinguishes it from a word in a sentence."""


def names_every_label(spec: JudgeSpec) -> bool:
    """Return whether a rubric's own prompts contain, for every metric, its label, name or an alias
    with a colon after it, as in `Overall: [score]`; True without metrics.

    Text that is inserted into the templates does not count.
    """
    text = f"{spec.system or ''}\n{spec.prompt or ''}"
    return all(
        any(re.search(rf"(?<!\w){re.escape(word)}{_MARKS}", text, re.IGNORECASE) for word in words)
        for words in ((metric.label, metric.name, *metric.aliases) for metric in spec.metrics)
    )


def with_instructions(spec: JudgeSpec, system: str) -> str:
    """Return a rubric's system prompt; with `criteria: appended` the metrics with their ranges, and
    the form of a text reply, are added at its end."""
    if spec.criteria != "appended":
        return system
    criteria = [_criterion_line(spec, metric) for metric in spec.metrics]
    return "\n\n".join([system, "\n".join([SCORES, *criteria]), FORM, _reply_form(spec)])


def _criterion_line(spec: JudgeSpec, metric: Metric) -> str:
    low, high = spec.score_limits(metric.name)
    about = f": {metric.about}" if metric.about else ""
    if spec.per == "pair" and metric.name == spec.reward.metric:
        about += (
            f" ({low:g} where conversation 1 is clearly better, {high:g} where conversation 2 is, "
            f"{(low + high) / 2:g} where neither is)"
        )
    return f"- {metric.label} ({low:g} to {high:g}){about}"


def _reply_form(spec: JudgeSpec) -> str:
    words = "justification" if spec.justification == "required" else "justification, optional"
    scores = "\n\n".join(f"{metric.label}: [score]\n[{words}]" for metric in spec.metrics)
    if spec.per != "group":
        return scores
    return f"Conversation 1\n{scores}\n\nConversation 2\n{scores}\n\nand so on, each once."
