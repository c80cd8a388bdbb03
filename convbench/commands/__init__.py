"""The command line: one file for each word that is typed.

It has the word's options, what it does, its answer and what it prints. Options that a stage takes
as a value are declared in `options`. May use every stage; only the Python API uses it. A command's
file is loaded when it is typed.
"""
