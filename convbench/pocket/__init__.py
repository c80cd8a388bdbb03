"""Pocket: a tiny closed world and a tiny policy that has read about it.

The world (`world`) is a table of plain facts about invented names. `questions` asks about it,
`notes` tells new facts, `rows` gives the task rows, `texts` holds every wording, `speakers` holds
the rule teacher and the rule human. `weights/` is the policy (`local:pocket`), trained by
`tests/lab/pocket/`. Nothing here imports torch. Uses the schema only.
"""
