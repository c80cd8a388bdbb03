"""What `convbench --help` shows first."""

from __future__ import annotations

import pytest
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


@pytest.mark.parametrize("width", [60, 80])
def test_help_fits_the_terminal_and_nothing_of_it_is_cut(
    typist: Typist, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        said = typist(name, "--help")
        assert max(map(len, said.out.splitlines())) <= width
        assert "…" not in said.out.replace("T,T,…", ""), name
