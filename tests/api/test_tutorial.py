"""The tutorial, executed under a real Jupyter kernel, whose event loop runs already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "first-comparison.ipynb"


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_goes_from_build_to_a_paired_table(tmp_path: Path) -> None:
    notebook = nbformat.read(TUTORIAL, 4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    shown = [texts(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert any("build: 180/180" in text for text in shown), "progress shows"
    assert "Run('runs/tutorial'" in shown[0]
    assert "SWiFt" in shown[-2]
    assert "Base" in shown[-2]
    assert "correct_low" in shown[-1]
    assert "SWiFt" in shown[-1]
    assert (tmp_path / "runs" / "tutorial" / "checkpoints" / "swift" / "training.json").exists()


def test_a_question_in_a_notebook_draws_no_bar(tmp_path: Path) -> None:
    """Where DuckDB has nothing to draw one with, it refuses to be told not to."""
    ask = (
        "import duckdb\nfrom convbench.store.limits import allow_spilling\n"
        "connection = duckdb.connect()\nallow_spilling(connection, 10)\n"
        "print(connection.execute(\"SELECT current_setting('enable_progress_bar')\").fetchall())"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ask)])
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=200, kernel_name="python3", resources=where).execute()
    assert texts(notebook.cells[0]).strip() == "[(False,)]"


def texts(cell: Any) -> str:
    """All that a cell shows, as plain text."""
    found = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs]
    return "\n".join(found)
