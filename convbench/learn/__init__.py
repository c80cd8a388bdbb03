"""Learn from a run: select, weigh or pair, make rows of tokens, and start a program of `trainers/`.

Nothing here imports torch.
"""
