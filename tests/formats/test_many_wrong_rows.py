"""A file of which many rows cannot be read: each is said on a line of its own, twenty at most."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.errors import DataError
from convbench.formats.importing import MOST_WRONG, import_file
from tests.helpers.cli import convbench


def log_text(wrong: int, right: int = 1) -> str:
    said = [{"role": "user", "content": "q"}, {"role": "wizard", "content": "a"}]
    good = [said[0], {"role": "assistant", "content": "a"}]
    lines = [{"messages": said}] * wrong + [{"messages": good, "reward": 1}] * right
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize("wrong", [2, MOST_WRONG, MOST_WRONG + 1, 57])
def test_the_first_is_in_the_line_and_the_others_below_it(wrong: int, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(log_text(wrong))
    with pytest.raises(DataError) as caught:
        import_file(file, tmp_path / "run", "20260101-000000-abcdef01")
    assert str(caught.value).startswith(f"{wrong} rows cannot be read, the first: {file}:1: mess")
    assert "\n" not in str(caught.value)
    below = list(caught.value.__notes__)
    beyond = [below.pop()] if wrong > MOST_WRONG else []
    assert beyond == [f"and {wrong - MOST_WRONG} more"] * (wrong > MOST_WRONG)
    numbers = [line.removeprefix(f"{file}:").partition(":")[0] for line in below]
    assert numbers == [str(n) for n in range(2, min(wrong, MOST_WRONG) + 1)]
    assert not (tmp_path / "run").exists()


def test_one_that_is_wrong_is_one_line_alone(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(log_text(0, 3) + log_text(1))
    with pytest.raises(DataError, match=r"log\.jsonl:4: messages\[1\]: role 'wizard'") as caught:
        import_file(tmp_path / "log.jsonl", tmp_path / "run", "20260101-000000-abcdef01")
    assert not hasattr(caught.value, "__notes__")


def test_what_is_typed_shows_a_line_each_and_json_a_note_each(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(log_text(23))
    done = convbench(tmp_path, "import", "log.jsonl", "--run", "logged")
    assert (done.code, done.out) == (1, "")
    lines = done.err.splitlines()
    assert lines[0].startswith("error: 23 rows cannot be read, the first: log.jsonl:1: ")
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["log.jsonl"] * 19 + ["and 3 more"]
    found = json.loads(convbench(tmp_path, "import", "log.jsonl", "--run", "x", "--json").out)
    assert (found["exit_code"], len(found["notes"])) == (1, MOST_WRONG)
    assert "\n" not in found["error"]


def map_error(tmp_path: Path, *rows: dict[str, object]) -> DataError:
    """The error of an import of these rows whose reward is mapped to a field `typo`."""
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError) as caught:
        import_file(file, tmp_path / "run", "20260101-000000-abcdef01", names={"reward": "typo"})
    return caught.value


def test_a_misspelt_map_is_named_once_with_the_number_of_rows(tmp_path: Path) -> None:
    error = map_error(tmp_path, *[{"messages": [], "score": 1}] * 57)
    assert str(error) == (
        f"57 rows cannot be read, the first: {tmp_path}/log.jsonl:1: --map reward=typo: found no "
        "'typo'; expected one of messages, score"
    )
    assert not hasattr(error, "__notes__")


def test_rows_wrong_for_other_reasons_are_listed_beside_a_misspelt_map(tmp_path: Path) -> None:
    lacking, other = {"messages": []}, {"typo": 1}
    error = map_error(tmp_path, lacking, other, *[lacking] * 30, *[other] * MOST_WRONG)
    assert str(error).startswith("52 rows cannot be read, the first: ")
    assert str(error).endswith("expected one of messages (31 rows)")
    notes = error.__notes__
    assert len(notes) == MOST_WRONG
    assert notes[0].startswith(f"{tmp_path}/log.jsonl:2: found no messages")
    assert notes[-1] == "and 2 more"
