"""A report of a split that a run has nothing of: the line offers what helps, and that works."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.helpers.cli import convbench


def offered_options(error: str) -> list[str]:
    """The options that an error names behind a colon."""
    return re.findall(r": (--split \w+)", error)


def test_an_imported_log_offers_the_splits_it_has_and_no_build(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": asked},
                          {"role": "assistant", "content": "That."}], "reward": 1, "split": split}
            for asked, split in (("a", "train"), ("b", "train"), ("c", "validation"))]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert convbench(tmp_path, "import", "log.jsonl", "--run", "runs/log").code == 0
    error = convbench(tmp_path, "report", "runs/log").error
    assert "build" not in error
    assert offered_options(error) == ["--split train", "--split validation"]
    for option in offered_options(error):
        assert convbench(tmp_path, "report", "runs/log", *option.split()).code == 0


def test_a_run_without_such_questions_is_not_sent_to_build_them(tmp_path: Path) -> None:
    build = ("build", "demo", "--model", "scripted:policy", "--tasks", "1", "--samples", "1")
    assert convbench(tmp_path, *build, "--run", "runs/a run", "--temperatures", "0").code == 0
    assert convbench(tmp_path, "judge", "--judge", "rules", "--run", "runs/a run").code == 0
    error = convbench(tmp_path, "report", "runs/a run").error
    assert "nor questions of it" in error
    assert "convbench build" not in error
    assert convbench(tmp_path, "report", "runs/a run", *offered_options(error)[0].split()).code == 0
