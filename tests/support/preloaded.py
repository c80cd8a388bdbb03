"""What the server of commands has imported: the command line and all that commands import of ours
and of the light libraries. Nothing that starts threads, and nothing that reads the environment when
it is imported (huggingface_hub, transformers): a command's own is another."""

import pkgutil
from importlib import import_module

import duckdb  # noqa: F401
import pyarrow.parquet  # noqa: F401
import typer.main

import convbench
from convbench.commands._app import app, register_commands
from tests.support.tree import keep_tree

ROOMS = (
    "answers", "api", "catalog", "commands", "engine", "formats", "judge", "publish", "report",
    "rollout", "stats", "store", "tasks", "view",
)  # fmt: skip
WITHOUT = ("convbench.judges.adaptation",)
"""What is heavy itself."""

register_commands()
for room in ROOMS:
    for module in pkgutil.walk_packages([f"{convbench.__path__[0]}/{room}"], f"convbench.{room}."):
        if not module.name.startswith(WITHOUT):
            import_module(module.name)

keep_tree()
typer.main.get_command(app)
