"""Judges: scoring conversations by judges of all kinds (`schema/judge_kinds.py`), panels, controls.

May use rollout and the rooms below it. The package imports none of its own files, so that a
command that only looks up a judge's kind does not load the reader of replies.
"""
