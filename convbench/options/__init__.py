"""What a user may say where a stage takes it as a value, and what several commands share.

Declared once for typing, Python and the docs; what one command alone takes stands in its file. Its
classes load nothing that takes time; `specs` reads what they name. May use the engine's row and
what lies below.
"""
