"""The Python API: the commands as functions, and classes for what they return.

May use every room; nothing uses it.
"""
