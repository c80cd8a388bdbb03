"""Several transcripts in one prompt: each between marks of its own, which nobody in any knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convbench.judge.ask import judge_fields, rendered
from convbench.judge.fence import ABOUT_SET, ABOUT_SEVERAL, fenced_several
from convbench.schema import Conversation, Example, JudgeSpec, Message
from convbench.views import transcript

FIELDS = {"group": ("marks", "transcripts"), "pair": ("marks", "transcripts", "first", "second")}
"""What templates see of several conversations, by `per`, beside what every rubric sees."""


def messages_of(
    spec: JudgeSpec, talks: Sequence[Conversation], example: Example, key: str
) -> list[Message]:
    """Return what a judge of two conversations, or of a group, is sent.

    Templates see `marks` (what the marks around transcripts mean), `transcripts` in the order in
    which they are shown, and of two `first` and `second`, beside what every rubric sees. `key`
    names the asking, from which the marks are drawn.
    """
    if spec.fence in ("quoted", "nonce"):
        marks = ABOUT_SEVERAL + (ABOUT_SET if spec.fence == "quoted" else "")
        shown = fenced_several(talks, key, reasoning=spec.sees_reasoning)
    else:
        marks, shown = "", [transcript(one, reasoning=spec.sees_reasoning) for one in talks]
    fields: dict[str, Any] = {
        **judge_fields(example, "\n\n".join(shown)),
        "marks": marks,
        "transcripts": tuple(shown),
    }
    if len(shown) == 2:
        fields |= {"first": shown[0], "second": shown[1]}
    system, prompt = rendered(spec, fields, marks, *shown, fields["transcript"])
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
