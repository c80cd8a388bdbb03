"""Other programs' formats of conversations: import, export, and the check of pulled runs.

Uses store and catalog of the same layer, and the layers below.
"""
