"""What strangers send over HTTP: bodies bounded, redirects refused, JSON and counts made safe.

Uses nothing of convbench but its errors; every room that speaks HTTP uses it.
"""
