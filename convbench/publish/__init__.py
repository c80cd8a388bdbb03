"""Runs and checkpoints to the Hub and back, with their cards.

May use report and every stage before it.
"""

from convbench.callable import make_callable

make_callable(__name__)
