"""What `convbench --help` shows first."""

from __future__ import annotations

import typer

from convbench.cli import app
from convbench.cli.main import PANELS
from tests.cli.typed import Typist


def test_every_command_has_one_panel_and_they_stand_in_the_order_of_their_use(
    typist: Typist,
) -> None:
    listed = [name for names in PANELS.values() for name in names]
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(listed) == sorted(known)
    said = typist("--help")
    assert said.code == 0
    places = [said.out.index(f"│ {name} ") for name in listed]
    assert places == sorted(places)
    assert all(f" {panel} " in said.out for panel in PANELS)
