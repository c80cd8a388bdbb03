"""What each command has to tell with `--json`: one class a command, its schema in the reference.

Paths are as they would be typed here; dollars are of what has a price; nothing here is cut to a
terminal's width.
"""
