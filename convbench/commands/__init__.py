"""The command line: one file for each command, with its options, work, answer and printing.

Options that a stage takes as a value are declared in `options`. May use every stage; only the
Python API uses it. A command's file is loaded when it is typed.
"""
