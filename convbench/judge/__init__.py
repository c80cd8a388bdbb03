"""Judges: one loop over all kinds (`kinds` registers them), panels, evaluation by the same judges.

May use rollout and what comes before it.
"""

from convbench.callable import make_callable
from convbench.judge.ask import judge_messages
from convbench.judge.dispatch import judge_conversation
from convbench.judge.panel import Panel, panel
from convbench.judge.resolve import Judge, again, resolve_judge
from convbench.judge.verdicts import failed_verdict
from convbench.stats.agreement import alpha, spearman, weighted_kappa

__all__ = [
    "Judge",
    "Panel",
    "again",
    "alpha",
    "failed_verdict",
    "judge_conversation",
    "judge_messages",
    "panel",
    "resolve_judge",
    "spearman",
    "weighted_kappa",
]

make_callable(__name__)
