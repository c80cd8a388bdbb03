"""Learners: from a judged run to a checkpoint, and what sampling learners do before.

May use judge, rollout and what comes before them.
"""
