"""Adaptation: a fresh LoRA is trained on what a self-edit says, then asked closed book.

Zweiger et al. 2025 (SEAL), the inner loop. `settings` says what is trained, `lora`, `fit` and
`answer` do it (torch), `learner` joins them, `cache` remembers, `passages` goes through passages
at once or one after the other. Nothing here imports torch before a learner is made.
"""
