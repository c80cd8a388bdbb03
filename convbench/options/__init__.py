"""What a user may say of each command, declared once for typing, Python and the docs.

Its classes load nothing that takes time; `specs` reads what they name. May use the engine's row
and what lies below.
"""
