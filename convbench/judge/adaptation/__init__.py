"""Adaptation: a fresh LoRA is trained on what a self-edit says, then asked closed book.

Zweiger et al. 2025 (SEAL), the inner loop. `settings` and `texts` say what is trained, `lora`,
`fit` and `answer` do it (torch), `learner` joins them, `cache` remembers, `continual` goes through
passages one after the other. Nothing here imports torch before a learner is made.
"""
