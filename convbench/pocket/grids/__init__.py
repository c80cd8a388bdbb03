"""The second tiny world: small grids changed by rules, and edits that say how to learn one.

`world` makes tasks of one rule or a pair of them, `corpus` what the shipped policy
(`local:pocket-grids`) has read, `tokenizer` its tokens, `rows` the rows of its task. Uses the grids
of `tasks.arc_agi`; nothing here imports torch.
"""
