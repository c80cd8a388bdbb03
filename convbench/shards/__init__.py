"""Shards of a run: the work on one, and the schedulers that start it.

May use judge, rollout and what lies below.
"""
