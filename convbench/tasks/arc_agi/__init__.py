"""ARC-AGI tasks (Chollet 2019): a few pairs of grids that show a rule, and grids to apply it to.

`grids` has what everything here is about, and brings in the JSON files; `edit` has the tools that
change whole tasks, reads which of them a self-edit asks for, and makes training rows by them.
"""

from convbench.tasks.arc_agi.grids import Grid, Pair, Puzzle, load

__all__ = ["Grid", "Pair", "Puzzle", "load"]
