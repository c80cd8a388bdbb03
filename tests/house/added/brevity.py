"""Judges that like few words: a kind of their own, as somebody would add one."""

from __future__ import annotations

from convbench.judge.case import Case
from convbench.judge.verdicts import scored
from convbench.judge.work import Tools, plain
from convbench.schema import Verdict
from convbench.views import final_text

opened = plain


async def score(case: Case, tools: Tools) -> Verdict:
    """Score 10 for no words, less for each."""
    words = len((final_text(case.protocol, case.conversation) or "").split())
    return scored(case.judge, case.conversation, case.protocol, {"overall": 10 / (1 + words / 10)})
