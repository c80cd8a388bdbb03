"""The catalog of specs: find a file by its name, load it with `extends:` and `--set`.

Uses the schema and templates.
"""

from convbench.catalog.find import KINDS, folders, locate, names, shipped
from convbench.catalog.load import assign, check, load, parse_sets
from convbench.catalog.python import function, plugin

__all__ = [
    "KINDS",
    "assign",
    "check",
    "folders",
    "function",
    "load",
    "locate",
    "names",
    "parse_sets",
    "plugin",
    "shipped",
]
