"""Reviews of simulated humans: faults found by rules, and by a model if the judge names one."""
