"""Adaptation: a fresh LoRA is trained on a self-edit, then asked questions closed book.

Zweiger et al. 2025 (SEAL), the inner loop. `settings` has the values and the training texts;
`lora`, `full_finetune`, `fit` and `answer` train and decode (torch); `learner` combines them;
`cache` stores outcomes; `passages` trains on several passages, at once or one after the other.
Nothing here imports torch before a learner is loaded.
"""
