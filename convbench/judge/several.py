"""Prompts with several transcripts, each fenced by marks of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convbench.judge.ask import judge_fields, render_prompts
from convbench.judge.fence import ABOUT_SET, ABOUT_SEVERAL, fence_transcripts
from convbench.schema import Conversation, Example, JudgeSpec, Message
from convbench.views import transcript

FIELDS = {"group": ("marks", "transcripts"), "pair": ("marks", "transcripts", "first", "second")}
"""Template fields for several conversations, by `per`, in addition to those of every rubric."""


def transcript_messages(
    spec: JudgeSpec, talks: Sequence[Conversation], example: Example, key: str
) -> list[Message]:
    """Return the messages for a judge of two conversations, or of a group.

    In addition to the fields of every rubric, templates have `marks` (an explanation of the marks
    around transcripts), `transcripts` in the order shown, and for two `first` and `second`. The
    marks' nonces are drawn from `key`, which names the request.
    """
    if spec.fence in ("quoted", "nonce"):
        marks = ABOUT_SEVERAL + (ABOUT_SET if spec.fence == "quoted" else "")
        shown = fence_transcripts(talks, key, reasoning=spec.sees_reasoning)
    else:
        marks, shown = "", [transcript(talk, reasoning=spec.sees_reasoning) for talk in talks]
    fields: dict[str, Any] = {
        **judge_fields(example, "\n\n".join(shown)),
        "marks": marks,
        "transcripts": tuple(shown),
    }
    if len(shown) == 2:
        fields |= {"first": shown[0], "second": shown[1]}
    system, prompt = render_prompts(spec, fields, marks, *shown, fields["transcript"])
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
