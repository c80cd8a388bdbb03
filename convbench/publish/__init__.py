"""Runs and checkpoints to the Hub and back, with their cards. May use every stage before it."""

from convbench.callable import make_callable

make_callable(__name__)
