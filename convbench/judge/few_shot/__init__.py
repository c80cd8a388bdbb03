"""Few-shot adaptation: a self-edit says how a task's demonstrations are trained on; then the task's
own test is asked.

Zweiger et al. 2025 (SEAL), few-shot learning. `settings` holds the values, `rows` turns what
`tasks.arc_agi` makes into tokens, `views` asks from several sides and `vote` joins the answers;
`solve` does one edit, `runner` keeps what is done, `verdict` is the judge. Adapters and their
training are those of `judge.adaptation`. Nothing here imports torch before a learner is made.
"""
