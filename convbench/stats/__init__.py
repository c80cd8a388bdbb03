"""Statistics: means with clustered errors, paired differences, agreement between judges, duels.

Imports the schema and nothing else of convbench.
"""
