"""Judges: one loop over all kinds (`kinds` registers them), panels, evaluation by the same judges.

May use rollout and what comes before it. It loads none of its files by itself: a command that only
asks what kind a judge is need not load what reads replies.
"""

from convbench.callable import make_callable

make_callable(__name__)
