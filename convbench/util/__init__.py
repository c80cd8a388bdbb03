"""What every room may use: files, words for the terminal, guards against untrusted data.

May use `errors` alone.
"""
