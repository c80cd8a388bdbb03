"""Conversations: the cast, the manifest, playing a protocol, resuming.

May use engine, store, models and what lies below them.
"""
