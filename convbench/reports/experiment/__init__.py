"""The document of an experiment.

It has every printed table with our results in it, the agreement of the orders, what is missing and
why, language patterns, cost, and a few conversations.
"""
