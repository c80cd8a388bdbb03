"""The page for people who write Python: each of its functions is called as it says, from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import convbench
from convbench import catalog
from convbench.catalog import python
from convbench.errors import SpecError
from convbench.store import Run
from tests.helpers.pages import ROOT, write_files
from tests.helpers.typed import Typist
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call
from tests.support.chat.shopper import CALLS
from tests.support.provider import Provider

PAGE = ROOT / "docs" / "howto" / "python.md"


@pytest.fixture
def towns(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> Typist:
    """A folder with the files that the page writes out, and the run that it builds."""
    write_files(PAGE, monkeypatch)
    said = typist("build", "towns", "--model", "rule:mine.py:pupil", "--run", "runs/towns")
    assert said.code == 0, said.err
    assert "1 the last one" in said.err, "what the maker left out is counted"
    return typist


def calls_the_tool(call: Call) -> str:
    """A model that counts by the tool where the name is long enough."""
    role, text = call.messages[-1]
    if role == "tool":
        return "The answer is A."
    word = str(text).split()[-1].removesuffix("?")
    return (
        "THE ANSWER IS A."
        if len(word) < 4
        else CALLS + json.dumps([{"name": "count_letters", "arguments": {"word": word}}])
    )


def test_rows_maker_rule_tool_and_check(towns: Typist) -> None:
    with Provider(Plan(), reply=calls_the_tool) as provider:
        said = towns("build", "towns", "--model", "openai/m", "--api-base", provider.api_base,
                     "--run", "runs/counted")  # fmt: skip
    assert said.code == 0, said.err
    run = Run.open(Path("runs/counted"))
    assert {one.inputs["town"] for one in run.examples.values()} == {
        "Bath", "Ulm", "Prague", "Cork",
    }  # fmt: skip
    for talk in run.conversations():
        town, turn = run.examples[talk.example_id].inputs["town"], talk.turns[-1]
        if town == "Ulm":
            assert (turn.tool_calls, talk.flags) == ((), ("assistant:shouts",))
            continue
        (call,), (result,) = turn.tool_calls, turn.tool_results
        assert (call.name, result.name, talk.flags) == ("count_letters", "count_letters", ())
        assert town in call.arguments
        assert f'"letters": {len(town)}' in result.content
        assert f'"asked about": "{town}"' in result.content
    sql = "select tool_calls from turns where tool_calls != '[]' limit 1"
    (row,) = towns.json("query", sql, "--run", "runs/counted")["result"]["rows"]
    assert "count_letters" in str(row)


def test_judge_with_metrics_and_details_and_a_judge_of_pairs(towns: Typist) -> None:
    assert towns("judge", "--judge", "brief", "--run", "runs/towns").code == 0
    scored = {(v.scores["overall"], v.scores["tools"], v.details["mode"])
              for v in Run.open(Path("runs/towns")).verdicts()}  # fmt: skip
    assert scored == {(10.0, 0.0, "standard"), (5.0, 0.0, "standard")}
    towns("eval", "scripted:echo", "--name", "echo", "--run", "runs/towns")
    said = towns("judge", "--pairwise", "base", "echo", "--judge", "shorter", "--run", "runs/towns")
    assert said.code == 0, said.err
    (found,) = towns.json("report", "runs/towns")["result"]["runs"]
    assert found == "runs/towns"
    lines = Path("runs/towns/comparisons.jsonl").read_text().splitlines()
    assert {json.loads(line)["judge"] for line in lines} == {"shorter"}


def test_a_learner_of_a_file(towns: Typist) -> None:
    towns("judge", "--judge", "brief", "--run", "runs/towns")
    said = towns("train", "halved", "--model", "local:pocket", "--run", "runs/towns", "--dry-run")
    assert said.code == 0, said.err
    assert "18 conversations about 6 questions" in said.out
    assert "omitted: 9 flagged" in said.out, "the check of the page flags a shout"


def test_python_takes_files_too(towns: Typist) -> None:
    convbench.judge(Path("runs/towns"), "brief", quiet=True)
    assert len(list(Run.open(Path("runs/towns")).verdicts())) == 33


def test_a_file_is_run_once_and_a_plugin_of_its_name_stands_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "_files", {})
    (tmp_path / "lib").mkdir()
    file = tmp_path / "lib" / "counted_once.py"
    file.write_text("calls = []\ncalls.append(1)\ndef f():\n    return len(calls)\n")
    monkeypatch.chdir(tmp_path)
    try:
        with pytest.raises(SpecError, match=r"no file counted_once.py in .*--plugin FOLDER"):
            catalog.find_function("counted_once.py:f")
        catalog.load_plugin(file)
        for ref in ("counted_once.py:f", "lib/counted_once.py:f", f"{file}:f", "counted_once:f"):
            assert catalog.find_function(ref)() == 1
    finally:
        python.sys.modules.pop("counted_once", None)
    with pytest.raises(SpecError, match="has no function 'g'"):
        catalog.find_function(f"{file}:g")
    python.sys.modules.pop("counted_once", None)
    (tmp_path / "json.py").write_text("def f(): ...\n")
    with pytest.raises(SpecError, match="a module named 'json' exists; rename the file"):
        catalog.find_function("json.py:f")


@pytest.mark.parametrize("ref", ["mine.py:f", "convbench.tasks.py:f", "convbench.tasks./mine.py:f",
                                 "/etc/mine.py:f", "convbench.judges.x/../mine.py:f"])  # fmt: skip
def test_no_file_is_run_for_a_downloaded_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ref: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(ref.partition(":")[0])
    if not file.is_absolute():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("raise SystemError('run')\n")
    with pytest.raises(SpecError, match="named by a downloaded spec"):
        catalog.find_function(ref, downloaded=True)
