"""Where the questions come from: real rows where they lie, else our excerpts; SciQ is our own."""

from __future__ import annotations

import os
from pathlib import Path

from tests.helpers.excerpts import EXCERPTS, SHARED, written
from tests.support.hub_server import HubServer

VARIABLE = "CONVBENCH_PAPER_ROWS"
"""Names a folder of `OWNER__NAME/CONFIG/SPLIT.parquet`."""
ELEMENTS = {
    "hydrogen": "H", "helium": "He", "lithium": "Li", "carbon": "C", "nitrogen": "N",
    "oxygen": "O", "sodium": "Na", "magnesium": "Mg", "aluminium": "Al", "silicon": "Si",
    "sulphur": "S", "chlorine": "Cl", "potassium": "K", "calcium": "Ca", "iron": "Fe",
    "copper": "Cu", "zinc": "Zn", "silver": "Ag", "tin": "Sn", "iodine": "I", "gold": "Au",
    "mercury": "Hg", "lead": "Pb", "uranium": "U",
}  # fmt: skip
"""What our SciQ asks about."""


def place(folder: Path) -> tuple[Path, bool]:
    """Return the folder of rows, and whether they are the real ones."""
    said = os.environ.get(VARIABLE)
    real = Path(said) if said else SHARED / "data" / "hub"
    if real.is_dir():
        return real, True
    return written(EXCERPTS / "hub", folder / "rows"), False


def serve(hub: HubServer, rows: Path) -> None:
    """Put the sets on a local Hub, SciQ of our own among them."""
    hub.add_data_root(rows)
    hub.add_rows("allenai/sciq", {"default": {"train": _sciq()}})


def _sciq() -> list[dict[str, str]]:
    names = list(ELEMENTS)
    found = []
    for at, (name, symbol) in enumerate(ELEMENTS.items()):
        others = [names[(at + step) % len(names)] for step in (3, 7, 11)]
        keys = ("distractor3", "distractor1", "distractor2")
        found.append({
            "question": f"Which element has the symbol {symbol}?",
            **dict(zip(keys, others, strict=True)),
            "correct_answer": name, "support": f"The symbol of {name} is {symbol}.",
        })  # fmt: skip
    return found
