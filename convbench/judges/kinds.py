"""Questions about a judge spec: its kind (`schema/judge_kinds.py`), and whether a model grades."""

from __future__ import annotations

from convbench.schema import JudgeSpec
from convbench.schema.judge_kinds import KINDS, JudgeKindInfo


def asks_grader(spec: JudgeSpec) -> bool:
    """Return whether a model grades the answers after an adaptation (`args.inner.grade: model`);
    False for judges that adapt nothing."""
    inner = spec.args.get("inner")
    return isinstance(inner, dict) and inner.get("grade") == "model"


def grades_unfenced(spec: JudgeSpec) -> bool:
    """Return whether a grading model is shown the answers unquoted."""
    return asks_grader(spec) and spec.fence in (None, "none")


def kind_of(spec: JudgeSpec) -> JudgeKindInfo:
    """Return the kind of a judge."""
    return KINDS[spec.kind]
