"""Slips of the pen and of the machine, through the real command line: one clear line, or the thing
itself; nothing in silence, nothing for ever, and nothing left that the next command trips over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

from convbench.commands._words import ENTRIES, load_command
from convbench.options.declare import flat_options
from convbench.schema import ModelConfig, Verdict
from convbench.store import Run
from tests.helpers.cli import convbench as typed
from tests.helpers.cli import environment, start
from tests.helpers.runs import write_run
from tests.support.exhaustive import by_turns

LONG = "a" * 300
SCRIPTED = ["--tasks", "1", "--model", "scripted:policy", "--quiet"]
SAID: list[dict[str, Any]] = [
    {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"},
]  # fmt: skip
ROW = json.dumps({"messages": SAID})[:-1]
KTO = '{"prompt": "2 + 2?", "completion": "4", "label": %s}'


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a judged run, `run`."""
    cast = {
        "assistant": ModelConfig(model="rule:tests.helpers.files:says"),
        "teacher": ModelConfig(model="script"),
    }
    write_run(tmp_path / "run", cast=cast)
    return tmp_path


@pytest.mark.parametrize(("words", "said"), [
    (["build", "demo", *SCRIPTED, "--run", LONG], "File name too long"),
    (["build", "demo", *SCRIPTED, "--run", LONG, "--json"], "File name too long"),
    (["import", LONG], "File name too long"),
    (["query", "select 1", "--run", "run", "--out", LONG], "File name too long"),
    (["build", "demo", *SCRIPTED, "--plugin", "/etc/passwd"], "found no Python file; expected"),
    (["build", "demo", *SCRIPTED, "--set", "task.title=!foo bar"], "found a tag of YAML (!foo)"),
    (["build", "demo", *SCRIPTED, "--set", "task.title=!!str 5"], "found a tag of YAML (!!str)"),
    (["build", "demo", *SCRIPTED, "--run", "runs/latest"], "is reserved for the link"),
    *((["publish", name, "--dry-run", "--run", "run"], "not a repository id")
      for name in ("", "../x", "a/b/c", "me/..", "me/.", "/x")),
    (["publish", "a/b/c", "--run", "run"], "not a repository id"),
    (["query", "select {} a", "--run", "run", "--format", "parquet", "--out", "x"],
     "--format parquet: "),
])  # fmt: skip
def test_a_slip_gets_one_line(here: Path, words: list[str], said: str) -> None:
    done = typed(here, *words)
    assert done.code == 1
    assert said in done.error
    assert not (here / "runs").exists() or not list((here / "runs").iterdir())


@pytest.mark.parametrize("words", [
    ["build", "demo", *SCRIPTED, "--samples", "100001"],
    ["build", "demo", *SCRIPTED, "--seed", "9" * 30],
    ["build", "demo", *SCRIPTED, "--seed", "9" * 5000],
    ["build", "demo", *SCRIPTED, "--budget", "inf"],
    ["build", "demo", *SCRIPTED, "--budget", "1e400"],
    ["build", "demo", *SCRIPTED, "--budget-tokens", "9" * 30],
    ["judge", "--judge", "rules", "--run", "run", "--rate", "inf"],
    ["export", "--to", "openai", "--recipe", "refit", "--run", "run", "--scale", "1e308"],
    ["export", "--to", "openai", "--recipe", "refit", "--run", "run", "--scale", "1e7"],
    ["gold", "--draw", "5", "--seed", "9" * 30, "--run", "run"],
])  # fmt: skip
def test_a_number_beyond_its_bounds_is_a_usage_error(here: Path, words: list[str]) -> None:
    done = typed(here, *words)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert words[-2] in done.err or words[-1] in done.err or "Invalid value" in done.err


def test_every_number_that_may_be_typed_has_bounds() -> None:
    """So that none is infinite, and none is more than what it is written to can hold."""
    for word in ENTRIES:
        for one in flat_options(load_command(word).options_class):
            kinds = typing.get_args(one.kind) or (one.kind,)
            if {int, float} & set(kinds) and one.opt.parse is None:
                assert one.opt.least is not None, one.name
                assert one.opt.most is not None, one.name


@pytest.mark.parametrize(("words", "sql", "said"), by_turns([
    [], ["--format", "json"], ["--format", "csv"],
], [
    ("select date '290000-01-01' a, timestamp 'infinity' b", ["290000-01-01", "infinity"]),
    ("select [date 'infinity'] a, {'b': timestamptz '-infinity'} b", ["infinity", "-infinity"]),
    ("select interval '3000000' month a, [interval 1 day] b", ["250000 years", "1 day"]),
    ("select 170141183460469231731687303715884105727 a", ["1701411834604692317316873037158"]),
    ("select * from test_all_types()", ["true"]),
]))  # fmt: skip
def test_a_query_shows_what_python_has_no_value_for(
    here: Path, words: list[str], sql: str, said: list[str]
) -> None:
    done = typed(here, "query", sql, "--run", "run", *words)
    assert (done.code, done.err) == (0, "")
    if "test_all_types" not in sql or words:
        assert all(text in done.out for text in said)


def test_texts_that_a_spreadsheet_would_run_are_told(here: Path) -> None:
    """They stand in the file as they are: it is for programs too."""
    sql = "select unnest(['=1+1', '@a', '-b', '- c', '-5', 'd', null]) a, -1 b"
    done = typed(here, "query", sql, "--run", "run", "--format", "csv")
    assert "3 texts begin as a formula does" in done.err
    assert done.out.startswith("a,b\n=1+1,-1\n")
    assert typed(here, "query", sql, "--run", "run", "--format", "json").err == ""


def test_intervals_go_into_parquet_and_what_does_not_is_told(here: Path) -> None:
    words = ("--run", "run", "--format", "parquet", "--out", "x.parquet")
    assert typed(here, "query", "select interval 1 day a", *words).code == 0
    done = typed(here, "query", "select * from test_all_types()", *words)
    assert "--format parquet: " in done.error


@pytest.mark.parametrize(("name", "text"), [
    ("log.jsonl", f'{ROW}, "reward": [1e308, 1e308]}}'),
    ("log.jsonl", f'{ROW}, "reward": -1e308}}'),
    ("log.jsonl", f'{ROW}, "reward": {{"overall": 1e308}}}}'),
    ("log.jsonl", KTO % '"maybe"'),
    ("log.jsonl", KTO % "2"),
    ("log.csv", "prompt,completion,label\nq,a,maybe\n"),
])  # fmt: skip
def test_an_import_of_what_is_no_reward_has_none(here: Path, name: str, text: str) -> None:
    (here / name).write_text(text)
    done = typed(here, "import", name, "--run", "new")
    assert done.code == 0
    assert "1 of 1 conversations have no reward" in done.err


def test_an_import_refuses_two_columns_of_one_name(here: Path) -> None:
    (here / "log.csv").write_text("prompt,completion,reward,reward\nq,a,1,0\n")
    assert "found two columns 'reward'" in typed(here, "import", "log.csv", "--run", "new").error
    assert not (here / "new").exists()


@pytest.mark.parametrize(("name", "text", "said"), [
    ("log.jsonl", KTO.replace("}", ', "reward": 1}') % '"maybe"', "stored as metadata"),
    ("log.csv", 'prompt,completion,reward\n=1+1,"=HYPERLINK(""x"")",1\n', ""),
    ("log.jsonl", f'{ROW}, "example_id": "a\\u0000b", "reward": 1, "split": "test"}}', ""),
])  # fmt: skip
def test_an_import_takes_what_is_only_odd(here: Path, name: str, text: str, said: str) -> None:
    """A note named label, formulas of a spreadsheet, which are texts here, and odd ids."""
    (here / name).write_text(text)
    done = typed(here, "import", name, "--run", "new")
    assert done.code == 0, done.err
    assert said in done.err + done.out
    for words in (["report", "new"], ["view", "new", "--static", "site"],
                  ["query", "from examples join conversations using (example_id)", "--run", "new"],
                  ["export", "--to", "trl", "--run", "new"]):  # fmt: skip
        assert "Traceback" not in typed(here, *words).err


@pytest.mark.parametrize("missing", [False, True])
def test_a_run_without_its_questions_is_not_resumed(here: Path, missing: bool) -> None:
    (here / "run" / "examples.jsonl").write_bytes(b"")
    if missing:
        (here / "run" / "examples.jsonl").unlink()
    for more in ([], ["--dry-run"]):
        done = typed(here, "build", "--run", "run", "--quiet", *more)
        assert "examples.jsonl: found no question" in done.error


def test_rewards_beyond_all_sums_are_refused_in_a_run_too(here: Path) -> None:
    file = here / "run" / "verdicts.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**one, "reward": 1e308}) + "\n" for one in found))
    for words in (["export", "--to", "trl", "--recipe", "swift"], ["query", "from verdicts"]):
        assert "reward: Input should be" in typed(here, *words, "--run", "run").error


def test_a_folder_named_latest_is_told_before_a_call(here: Path) -> None:
    (here / "runs" / "latest").mkdir(parents=True)
    (here / "log.jsonl").write_text(ROW + "}")
    for words in (["build", "demo", *SCRIPTED], ["import", "log.jsonl"]):
        assert "runs/latest: found a folder; expected a link" in typed(here, *words).error
    assert [one.name for one in (here / "runs").iterdir()] == ["latest"]


KILLED = """
import os, signal, sys
from pathlib import Path
place, pattern = Path(sys.argv.pop(1)), sys.argv.pop(1)

def look(event, _):
    if event in ("open", "os.mkdir", "os.rename") and any(place.glob(pattern)):
        os.kill(os.getpid(), signal.SIGKILL)

from convbench.__main__ import main
sys.addaudithook(look)
main()
"""


def killed(here: Path, place: Path, pattern: str, *words: str) -> None:
    """Kill a command as it opens or makes its next file, once one of this pattern lies in a
    folder."""
    command = [sys.executable, "-c", KILLED, str(place), pattern, *words]
    done = subprocess.run(command, cwd=here, env=environment(), capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_what_a_killed_import_left_is_cleared_by_the_next(here: Path) -> None:
    (here / "log.jsonl").write_text((ROW + "}\n") * 20_000)
    killed(here, here, ".import-*/run", "import", "log.jsonl", "--run", "new")
    assert list(here.glob(".import-*"))
    (here / "small.jsonl").write_text(ROW + "}\n")
    assert typed(here, "import", "small.jsonl", "--run", "new").code == 0
    assert list(here.glob(".import-*")) == []


def test_a_site_that_was_not_finished_is_written_again(here: Path) -> None:
    site = here / "site"
    killed(here, site, "assets", "view", "run", "--static", "site")
    (site / "convbench-view.json").unlink(missing_ok=True)  # where the kill came late
    (site / ".convbench-view").touch()
    assert typed(here, "view", "run", "--static", "site").code == 0
    assert sorted(os.listdir(site)) == ["assets", "convbench-view.json", "data", "index.html"]
    (site / "convbench-view.json").unlink()
    assert "found other files" in typed(here, "view", "run", "--static", "site").error


def test_init_goes_on_after_a_kill(here: Path) -> None:
    assert typed(here, "init", "task", "mine").code == 0
    spec, rows = here / "specs" / "tasks" / "mine.yaml", here / "specs" / "tasks" / "mine.jsonl"
    spec.unlink()  # the last to be written
    assert typed(here, "init", "task", "mine").code == 0
    assert spec.exists()
    spec.unlink()
    rows.write_text(rows.read_text() + "\n")  # the user's own by now
    assert "there is a file already" in typed(here, "init", "task", "mine").error


@pytest.mark.exhaustive
def test_very_many_judges_hold_no_page_up(here: Path) -> None:
    run = Run.open(here / "run")
    one = next(iter(run.verdicts()))
    with run.verdicts_file.open("a") as file:
        for number in range(600):
            more = {"judge": f"j{number:03}", "fingerprint": f"{number:016x}"}
            file.write(Verdict.model_validate(one.model_dump() | more).model_dump_json() + "\n")
    process = start(here, "view", "run", "--static", "site")
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err
    assert "rewards of the first" in out + err
