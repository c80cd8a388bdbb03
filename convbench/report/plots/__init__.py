"""Plots of a report: readable in print, in grey, and by colour-blind readers."""
