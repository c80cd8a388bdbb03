"""Safe handling of untrusted HTTP: bounded bodies, refused redirects, sanitised JSON and counts.

Imports nothing of convbench but its errors; every room that speaks HTTP uses it.
"""
