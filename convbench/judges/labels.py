"""Judge kind `human`: people's labels become verdicts."""

from __future__ import annotations

from convbench.errors import DataError
from convbench.judges.verdicts import scored_verdict, unscorable_verdict
from convbench.judges.work import Case, JudgeTools, open_without_model
from convbench.schema import Verdict

open_kind = open_without_model
"""Labels need nothing opened: they are read when the judge is resolved."""


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Return a verdict with the mean scores of the raters, each rater's in its details, and their
    notes as the justification of the reward's metric.

    A conversation without a label gets a failed verdict of kind `NotLabelled`. Raise DataError if
    the judge has no labels.
    """
    judge, name = case.judge, case.conversation.conversation_id
    if judge.labels is None:
        raise DataError(f"judge {judge.name}: found no labels; expected human:FILE")
    if name not in judge.labels.rows:
        return unscorable_verdict(
            judge, name, "NotLabelled", f"{judge.labels.file}: no label of {name}"
        )
    scores, details, note = judge.labels.conversation_scores(name)
    words = {judge.spec.reward.metric: note} if note else {}
    return scored_verdict(
        judge, case.conversation, case.protocol, scores, justifications=words, details=details
    )
