"""Read what a conversation answered from its text. All parsing of answers is here.

Uses the schema alone. The package imports none of its modules: those that read answers are slow to
load, and most callers only need to recognise thinking blocks.
"""
