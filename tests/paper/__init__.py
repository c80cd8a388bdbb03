"""The paper in miniature: every table of it, by a policy of random weights. See `__main__`."""
