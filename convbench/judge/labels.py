"""Judge kind `human`: people's labels become verdicts."""

from __future__ import annotations

from convbench.errors import DataError
from convbench.judge.case import Case
from convbench.judge.verdicts import scored, unscorable
from convbench.judge.work import Tools, plain
from convbench.schema import Verdict

opened = plain
"""Labels need nothing opened: they are read when the judge is resolved."""


async def score(case: Case, tools: Tools) -> Verdict:
    """Return a verdict with the mean scores of people; a failed one without a label."""
    judge, name = case.judge, case.conversation.conversation_id
    if judge.labels is None:
        raise DataError(f"judge {judge.name}: found no labels; expected human:FILE")
    if name not in judge.labels.rows:
        return unscorable(judge, name, "NotLabelled", f"{judge.labels.file}: no label of {name}")
    scores, details, note = judge.labels.scores(name)
    words = {judge.spec.reward.metric: note} if note else {}
    return scored(
        judge, case.conversation, case.protocol, scores, justifications=words, details=details
    )
