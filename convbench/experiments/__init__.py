"""Run an experiment from one file: its cells, preflight checks, steps, and the record of outcomes.

May use report, learn, judge, rollout and what lies below them.
"""
