"""Judges that like few words: a kind of their own, as somebody would add one."""

from __future__ import annotations

from convbench.judges.verdicts import scored_verdict
from convbench.judges.work import Case, JudgeTools, open_without_model
from convbench.schema import Verdict
from convbench.views import final_text

open_kind = open_without_model


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Score 10 for no words, less for each."""
    words = len((final_text(case.protocol, case.conversation) or "").split())
    return scored_verdict(
        case.judge, case.conversation, case.protocol, {"overall": 10 / (1 + words / 10)}
    )
