"""ARC-AGI tasks (Chollet 2019): a few pairs of grids that show a rule, and grids to apply it to.

`grids` defines grids and puzzles and reads the JSON files; `edit` has the tools that change whole
tasks, reads which of them a self-edit asks for, and makes training rows with them.
"""

from convbench.tasks.arc_agi.grids import Grid, Pair, Puzzle, load

__all__ = ["Grid", "Pair", "Puzzle", "load"]
