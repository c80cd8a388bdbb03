"""The Python API: lazy, typed, the same options as the commands, data frames of a real run."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import convbench
from convbench.api import verbs
from convbench.api.signature import keyword_options, name_of
from convbench.errors import ConvbenchError, QueryError, RunError
from convbench.options.declare import flat_options
from tests.helpers.runs import write_run

PUBLIC = [name for name in convbench.__all__ if not inspect.isclass(getattr(convbench, name))]


@pytest.fixture
def run(tmp_path: Path) -> convbench.Run:
    return convbench.open_run(write_run(tmp_path / "run").path)


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, convbench\n"
        "heavy = ('torch', 'litellm', 'duckdb', 'pandas', 'pyarrow', 'pydantic', 'aiohttp')\n"
        "sys.exit(','.join(name for name in heavy if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PUBLIC)
def test_every_verb_is_typed_and_documented(name: str) -> None:
    value = getattr(verbs, name)
    assert value.__doc__
    signature = inspect.signature(value)
    assert signature.return_annotation is not signature.empty
    assert all(p.annotation is not p.empty for p in signature.parameters.values())
    page = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
    assert f"## convbench.{name}\n" in page.read_text()


@pytest.mark.parametrize("name", [n for n in PUBLIC if hasattr(getattr(verbs, n), "__options__")])
def test_python_says_what_the_command_line_says(name: str) -> None:
    """All but what is for typing alone; nothing else."""
    function = getattr(verbs, name)
    said = set(inspect.signature(function).parameters)
    options = function.__options__
    assert {name_of(one) for one in keyword_options(options)} <= said
    own = {name_of(one) for one in flat_options(options) if not one.opt.typed_only}
    assert said <= own | {"judge", "runs", "run"}


def test_tables_are_data_frames(run: convbench.Run) -> None:
    assert len(run.examples) == run.query("select count(*) as n from examples")["n"][0]
    assert {"conversation_id", "policy", "temperature"} <= set(run.conversations.columns)
    assert {"turn_index", "content"} <= set(run.turns.columns)
    assert "overall" in run.verdicts.columns
    arrow = run.table("turns", "arrow")
    assert arrow.num_rows == len(run.turns) == run.table("turns", "polars").height
    assert run.query("select 1 as x", "arrow").to_pydict() == {"x": [1]}
    with pytest.raises(ConvbenchError, match="expected pandas, arrow or polars"):
        run.table("turns", "spark")  # type: ignore[arg-type]
    with pytest.raises(QueryError):
        run.query("drop table turns")
    assert "<table" in run._repr_html_()


def test_reports_are_data_frames(run: convbench.Run) -> None:
    report = convbench.report(run)
    assert "results" in report.tables
    assert report["results"]["correct"].dtype == float
    assert "results" in repr(report)
    assert report.markdown().startswith("#")
    assert "<table" in report._repr_html_()


def test_judge_says_who_gave_no_score(tmp_path: Path) -> None:
    """What the command line prints as notes is a warning here."""
    made = write_run(tmp_path / "run", verdicts=[])
    plugin = tmp_path / "odd.py"
    plugin.write_text("def score(conversation, example, protocol):\n    raise ValueError('odd')\n")
    spec = tmp_path / "odd.yaml"
    spec.write_text("title: odd\nkind: rules\nfunction: odd:score\n")
    said: dict[str, Any] = {"plugin": plugin, "quiet": True}
    with pytest.raises(RunError, match=r"verdicts of odd failed, e\.g\. ValueError: odd"):
        convbench.judge(made.path, str(spec), **said)
    with pytest.warns(UserWarning, match=r"verdicts of odd failed, e\.g\. ValueError: odd"):
        back = convbench.judge(made.path, str(spec), fail_on=1000, **said)
    assert back.path == made.path
    assert back.verdicts["failure"].notna().all()


def test_mistakes_are_the_command_s_errors(tmp_path: Path, run: convbench.Run) -> None:
    with pytest.raises(RunError, match=r"found no run\.json"):
        convbench.open_run(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="found no option temprature"):
        convbench.build("pocket", temprature=0.3)  # type: ignore[call-arg]
    with pytest.raises(ConvbenchError, match="no-such-recipe"):
        convbench.train("no-such-recipe", run)
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        convbench.biuld  # type: ignore[attr-defined]  # noqa: B018
