"""One group of test questions: no error can be had, which is said at build and at the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench import catalog
from convbench.schema import ProtocolSpec
from convbench.store import Run
from tests.helpers.typed import Typist

TASK = """title: things
source: {file: things.csv}
rows: {key: id, question: q, group: g, choices: "['yes', 'no']", answer: "0"}
sample: {train: 0.5}
"""


def build(typist: Typist, groups: int) -> str:
    """Build a run of eight questions about so many things; return what was noted."""
    rows = "".join(f"{n},{n % groups},Is it {n}?\n" for n in range(8))
    Path("things.csv").write_text(f"id,g,q\n{rows}")
    folder = Path("specs/tasks")
    folder.mkdir(parents=True)
    (folder / "things.yaml").write_text(TASK)
    command = ("build", "things", "--model", "scripted:policy", "--run", "runs/a")
    told = typist(*command, "--dry-run").err
    said = typist(*command)
    assert said.code == 0, said.err
    assert ("of one group" in told) is ("of one group" in said.err)
    return said.err


def test_two_groups_in_all_are_said_to_leave_no_error(typist: Typist) -> None:
    assert "note: all 4 test questions are in one group" in build(typist, 2)
    report = typist("report", "runs/a").out
    assert "about 1 group" in report
    assert "±" not in report.partition("Base")[2].splitlines()[0]


def test_more_groups_are_nothing_to_speak_of(typist: Typist) -> None:
    assert "in one group" not in build(typist, 4)
    assert "±0" in typist("report", "runs/a").out


STEPS = """title: two turns
modes: [standard]
speakers: {{assistant: {{policy: true}}, teacher: {{}}}}
steps:
  - {{id: ask, speaker: teacher, say: "{{{{ question }}}}"}}
  - {{id: plan, speaker: assistant}}
{loop}  - {{id: final, speaker: teacher, say: "And so?"}}
  - {{id: answer, speaker: assistant}}
"""
LOOP = """  - loop:
      - {{id: more, speaker: teacher, say: "More?"}}
      - {{id: thinks, speaker: assistant}}
    times: {times}
"""


@pytest.mark.parametrize(
    ("loop", "turns"),
    [("", 2), (LOOP.format(times=3), 5), (LOOP.format(times="turns"), 1)],
)
def test_policy_turns_outside_loops_count(
    typist: Typist, tmp_path: Path, loop: str, turns: int
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(STEPS.format(loop=loop))
    assert catalog.load_spec(ProtocolSpec, "protocols", str(file)).turns.default == turns
    if loop:
        return
    said = typist("build", "demo", "--protocol", str(file), "--model", "scripted:policy",
                  "--tasks", "2", "--run", "runs/b")  # fmt: skip
    assert said.code == 0, said.err
    assert Run.open(Path("runs/b")).manifest.turns == 2
    assert "n = 2" in typist("report", "runs/b", "--split", "all").out
    assert "has exactly 2 turns" in typist(
        "build", "demo", "--protocol", str(file), "--turns", "3", "--model", "scripted:policy"
    ).err  # fmt: skip
