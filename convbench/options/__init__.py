"""Options that stages take as values, and options that several commands share.

Declared once for the command line, Python and the docs; options of a single command are in its
file. The classes import nothing slow; `specs` loads what they name. May use the engine's row and
what lies below.
"""
