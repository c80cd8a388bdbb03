"""The Python API: the words of the command line as functions, their results as objects that a
notebook shows. May use every room; nothing uses it."""
