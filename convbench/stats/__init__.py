"""Statistics: means with clustered errors, paired differences, agreement between judges, duels.

May use the schema and nothing else of convbench.
"""
