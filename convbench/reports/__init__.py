"""Reports on runs: tables with clustered errors, paired differences, pictures, writers.

May use every stage before it.
"""
