"""One file for each word that is typed: what it does, without what it prints.

May use every stage; the command line and the Python API use it.
"""
