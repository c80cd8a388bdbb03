"""Other programs' logs and sets of conversations: import and export.

`readers` say what is in a file (`log`), `fold` makes turns of it, `records` numbers and groups
them, `importing` writes the run. A format more is a file in `readers`, found by being there.
"""
