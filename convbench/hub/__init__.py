"""Publish runs and checkpoints on the Hub with their cards, and pull them back.

May use reports and every stage before it.
"""
