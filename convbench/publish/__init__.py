"""Publish runs and checkpoints on the Hub with their cards, pull them back, and verify them.

May use report and every stage before it.
"""

from convbench.callable import make_callable

make_callable(__name__)
