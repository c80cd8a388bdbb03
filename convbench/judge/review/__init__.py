"""Reviews of simulated humans: faults by rules, by a model where one is asked."""
