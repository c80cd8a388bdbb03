"""Conversations: the cast, the manifest, the play of a protocol, resume, branches.

May use engine, store, models and what lies below them.
"""
