"""The second tiny world: small grids changed by rules, and edits that say how to learn one.

`world` makes tasks of a rule, `rows` the rows of the task, whose rules are pairs. `weights/` is the
policy that ships (`local:pocket-grids`), trained by `tests/lab/pocket/`. Uses the grids of
`tasks.arc_agi`; nothing here imports torch.
"""
