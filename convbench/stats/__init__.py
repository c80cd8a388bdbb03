"""Figures of samples: means with clustered errors, paired differences, agreement.

Uses the schema alone.
"""
