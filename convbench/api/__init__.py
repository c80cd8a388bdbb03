"""The Python API: the verbs as functions, and what they return as a notebook shows it.

May use every room; nothing uses it.
"""
