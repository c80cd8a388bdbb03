"""The Hugging Face Hub: rows of question sets, and published runs, with errors in one line.

May use what lies below the engine.
"""

from convbench.sources.rows import load_rows, open_rows

__all__ = ["load_rows", "open_rows"]
