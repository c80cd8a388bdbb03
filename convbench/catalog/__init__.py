"""The catalog of specs: find a file by its name, load it with `extends:` and `--set`.

Uses the schema and templates.
"""

from convbench.catalog.find import KINDS, locate_spec, shipped_folder, spec_files, spec_folders
from convbench.catalog.load import assign_key, check_spec, load_spec, parse_sets
from convbench.catalog.python import find_function, load_plugin

__all__ = [
    "KINDS",
    "assign_key",
    "check_spec",
    "find_function",
    "load_plugin",
    "load_spec",
    "locate_spec",
    "parse_sets",
    "shipped_folder",
    "spec_files",
    "spec_folders",
]
