"""Reports on runs: tables with clustered errors, paired differences, pictures, writers.

May use every stage before it.
"""

from convbench.callable import make_callable

make_callable(__name__)
