"""Other programs' formats of conversations: import, export, and the check of pulled runs.

`source.py` reads files, `readers` say what is in them (`log`), `fold` makes turns of it,
`importing` numbers and groups them, `write` stores the run. A format more is a file in `readers`.

Uses store and catalog of the same layer, and the layers below.
"""
