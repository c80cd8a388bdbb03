"""Question sets: sources, mapping rows to examples, draws and splits.

May use hub, catalog and what lies below them.
"""
