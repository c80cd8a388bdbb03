"""ARC-AGI tasks (Chollet 2019): a few pairs of grids that show a rule, and grids to apply it to.

`grids` are what everything here is about; `tools` change whole tasks, `rows` makes training rows of
one by them, `edit` reads which tools a self-edit asks for, `read` brings in the JSON files.
"""

from convbench.tasks.arc_agi.grids import Grid, Pair, Puzzle, load

__all__ = ["Grid", "Pair", "Puzzle", "load"]
