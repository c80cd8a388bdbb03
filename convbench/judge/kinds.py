"""What is asked of a judge's kind (`schema/judge_kinds.py`), and of how it is asked."""

from __future__ import annotations

from convbench.schema import JudgeSpec
from convbench.schema.judge_kinds import KINDS, Kind


def asks_grader(spec: JudgeSpec) -> bool:
    """Whether a model says which of the answers that are measured are right."""
    inner = spec.args.get("inner")
    return isinstance(inner, dict) and inner.get("grade") == "model"


def grades_unfenced(spec: JudgeSpec) -> bool:
    """Whether such a model is shown the answers as they were written."""
    return asks_grader(spec) and spec.fence in (None, "none")


def kind_of(spec: JudgeSpec) -> Kind:
    """Return the kind of a judge."""
    return KINDS[spec.kind]
