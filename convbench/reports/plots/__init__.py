"""Plots of a report, readable in print, in grey and with colour blindness."""
