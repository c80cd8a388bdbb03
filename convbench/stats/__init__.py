"""Statistics: means with clustered errors, paired differences, agreement between judges, duels.

May use the schema and `words`, and nothing else of convbench.
"""
