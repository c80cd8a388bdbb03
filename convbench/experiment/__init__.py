"""A whole table from one file: its cells, what they need, their steps one by one, and the record.

May use report, learn, judge, rollout and what lies below them.
"""
