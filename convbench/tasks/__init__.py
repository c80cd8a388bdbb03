"""Question sets: sources, rows to examples, draws and splits.

Uses hub and catalog beside it, and what lies below.
"""
