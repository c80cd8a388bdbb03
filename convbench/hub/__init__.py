"""Publish runs and checkpoints on the Hub with their cards, pull them back, and verify them.

May use reports and every stage before it.
"""
