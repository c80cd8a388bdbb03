"""Gold labels: drawn with known probabilities, given blind, read back as units of an estimate."""
