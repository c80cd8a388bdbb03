"""Pocket: a tiny closed world and a tiny policy that has read about it.

The world (`world`) is a table of plain facts about invented names. `questions` asks about it,
`rows` gives the task rows, `texts` holds every wording, `habits` and `corpus` make what the
shipped policy was pre-trained on, `speakers` holds the rule teacher and the rule human.
Nothing here imports torch. Uses the schema alone.
"""
