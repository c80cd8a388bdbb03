"""Statistics of reports: estimates with errors, agreement of raters, prediction-powered means.

Imports nothing of convbench.
"""
