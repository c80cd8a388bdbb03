"""Few-shot adaptation: a self-edit says how to train on a task's demonstrations, then its test is
asked.

Zweiger et al. 2025 (SEAL), few-shot learning. `settings` has the values, `views` makes the views of
a test and votes over their answers, `solve` turns puzzles into tokens and tries one edit, `runner`
caches finished trials, `verdict` is the judge. Adapters and their training are those of
`judge.adaptation`. Nothing here imports torch before a learner is loaded.
"""
