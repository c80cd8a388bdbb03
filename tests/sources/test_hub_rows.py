"""Rows of question sets through the real datasets client, and from local files."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import DataError, HubError
from convbench.schema.task import Source
from convbench.sources import load_rows
from tests.helpers.excerpts import Source as Rows
from tests.helpers.hub_client import Client
from tests.support.one_line import one_line

ROWS = [{"id": f"q{n}", "choices": {"text": ["wood", "iron"], "label": ["A", "B"]},
         "answer": n % 2} for n in range(3)]  # fmt: skip


def load(**source: Any) -> tuple[list[dict[str, Any]], str]:
    """`load_rows`, for the client's process."""
    return load_rows(Source(**source))


def put(hub: Client, repo: str, **access: Any) -> str:
    """Put a set of two configs and three splits on the Hub; its commit."""
    splits = {"validation": ROWS[1:2], "test": ROWS[2:], "train": ROWS[:1]}
    hub.hub.add_rows(repo, {"one": splits, "two": {"train": ROWS}}, **access)
    return hub.hub.repo(repo).head.sha


def test_all_splits_in_one_order_with_the_commit(hub: Client) -> None:
    """train, validation, test; the revision is a commit."""
    commit = put(hub, "org/plain")
    rows, revision = hub(load, hub="org/plain", config="one")
    assert revision == commit
    assert [row["_split"] for row in rows] == ["train", "validation", "test"]
    assert rows[0] == {**ROWS[0], "_split": "train"}


def test_named_splits_come_in_the_same_order(hub: Client) -> None:
    """However they are named."""
    put(hub, "org/named")
    rows, _ = hub(load, hub="org/named", config="one", splits=("test", "train"))
    assert [row["id"] for row in rows] == ["q0", "q2"]


def test_a_revision_is_resolved(hub: Client) -> None:
    """A commit asked for is what is loaded, newer ones notwithstanding."""
    commit = put(hub, "org/moving")
    repo = hub.hub.repo("org/moving")
    repo.commit(repo.head.files, "newer")
    rows, revision = hub(load, hub="org/moving", config="two", revision=commit)
    assert (len(rows), revision) == (3, commit)
    assert hub(load, hub="org/moving", config="two")[1] == repo.head.sha


CASES = [
    ({"hub": "org/here", "config": "nope"}, "'nope' not found.*--set task.source.config="),
    ({"hub": "org/here"}, "--set task.source.config="),
    ({"hub": "org/here", "config": "two", "splits": ("dev",)}, "no split 'dev'; there is: train"),
    ({"hub": "org/here", "config": "one", "revision": "v9"}, "no such revision"),
    ({"hub": "org/absent"}, "found no such repository.*HF_TOKEN"),
    ({"hub": "not a name"}, "not a repository id"),
    ({"hub": "a/b/c"}, "not a repository id"),
]


@pytest.mark.parametrize(("source", "words"), CASES)
def test_what_is_missing_is_said_in_one_line(
    source: dict[str, Any], words: str, hub: Client
) -> None:
    """With what there is and what to do."""
    put(hub, "org/here")
    with pytest.raises(HubError, match=words) as caught:
        hub(load, **source)
    one_line(caught.value)


def test_private_and_gated(hub: Client, tmp_path: Path) -> None:
    """A token of the right account opens them; the line for others says what to do.

    Others have a cache of their own: like the datasets library, we use what lies in one's cache.
    """
    put(hub, "alice/private", private=True)
    put(hub, "org/gated", gated=True, granted=("alice",))
    for repo, words in (("alice/private", "HF_TOKEN"), ("org/gated", "accept the terms at")):
        assert len(hub(load, hub=repo, config="two")[0]) == 3
        for token in ("hf_bob", None):
            with pytest.raises(HubError, match=words):
                hub(load, hub=repo, config="two", token=token, home=tmp_path)
    with pytest.raises(HubError, match="asks for a token") as caught:
        hub(load, hub="alice/private", config="two", token="hf_wrong", home=tmp_path)
    assert "hf_wrong" not in str(caught.value)


def test_offline_mode_uses_the_cache_and_records_its_commit(hub: Client, tmp_path: Path) -> None:
    """As HF_HUB_OFFLINE users know it."""
    commit = put(hub, "org/cached")
    hub(load, hub="org/cached", config="two")
    hub.hub.log.clear()
    rows, revision = hub(load, hub="org/cached", config="two", offline=True)
    assert (len(rows), revision, hub.hub.log) == (3, commit, [])
    with pytest.raises(HubError, match="offline mode is on and it is not in the cache"):
        hub(load, hub="org/never", offline=True, home=tmp_path)


def test_a_hub_that_is_down_is_said_at_once(tmp_path: Path) -> None:
    """Seconds, not the minutes that the clients' own retries take."""
    code = (
        "from convbench.sources import load_rows; from convbench.schema.task import Source\n"
        "try: load_rows(Source(hub='org/x'))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_TOKEN": "",
                   "PATH": "/usr/bin"}  # fmt: skip
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, check=True,
                          capture_output=True, timeout=60)  # fmt: skip
    assert "HubError dataset org/x: cannot reach http://127.0.0.1:9" in done.stdout
    assert "--set task.source.hub=null --set task.source.file=PATH" in done.stdout
    assert done.stderr == ""
    assert time.monotonic() - start < 50


def test_a_hub_that_is_down_gives_way_to_the_cache(hub: Client) -> None:
    """Nobody answers: what was loaded before still loads."""
    commit = put(hub, "org/away")
    hub(load, hub="org/away", config="two")
    hub.hub.fail("*", "/", drop=True, times=1000)
    rows, revision = hub(load, hub="org/away", config="two")
    assert (len(rows), revision) == (3, commit)


def test_images_are_not_decoded(tmp_path: Path) -> None:
    """Only whether there is one; broken bytes do no harm."""
    import pyarrow
    import pyarrow.parquet

    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    column = pyarrow.array([{"bytes": b"not an image", "path": None}, None], type=kind)
    table = pyarrow.table({"image": column, "question": ["a", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    rows, _ = load(file=str(tmp_path))
    assert [row["image"] for row in rows] == ["[media]", None]


def test_local_files_and_their_hash(tmp_path: Path) -> None:
    """JSON lines, a JSON list, CSV, a folder; the revision follows the content."""
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"q": 1}\n\n{"q": 2}\n')
    rows, first = load(file=str(lines))
    assert rows == [{"q": 1, "_split": "train"}, {"q": 2, "_split": "train"}]
    lines.write_text('{"q": 1}\n{"q": 3}\n')
    assert first.startswith("sha256:")
    assert load(file=str(lines))[1] != first
    (tmp_path / "b.json").write_text('[{"q": 1}]')
    assert len(load(file=str(tmp_path / "b.json"))[0]) == 1
    (tmp_path / "c.csv").write_text('q,a\n"x, y",\n')
    assert load(file=str(tmp_path / "c.csv"))[0] == [{"q": "x, y", "a": "", "_split": "train"}]
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "test.jsonl").write_text('{"q": 1}\n')
    (folder / "train.jsonl").write_text('{"q": 2}\n')
    assert [row["_split"] for row in load(file=str(folder))[0]] == ["train", "test"]
    with pytest.raises(DataError, match="no split 'dev'; there is: train, test"):
        load(file=str(folder), splits=("dev",))


BAD_FILES = {
    "x.jsonl": (b'{"q": 1}\n{"q": \n', r"x\.jsonl:2: not JSON"),
    "y.jsonl": (b"[1, 2]\n", "expected JSON objects"),
    "x.parquet": (b"PAR0", "not a parquet file"),
    "x.csv": (b"q\n\xff\xfe\n", "not UTF-8"),
    "x.txt": (b"q", "expected .parquet"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_local_file_is_one_line(name: str, tmp_path: Path) -> None:
    """File, line, found, expected."""
    data, words = BAD_FILES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=words) as caught:
        load(file=str(tmp_path / name))
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="no such file or folder"):
        load(file=str(tmp_path / "absent"))


def test_sets_load_in_hub_schema(hub: Client, hub_rows: Rows) -> None:
    """ARC's two configs, ScienceQA with its image column (which is empty in the real part)."""
    hub.hub.add_dataset("allenai/ai2_arc", hub_rows.place / "allenai__ai2_arc")
    hub.hub.add_dataset("derek-thomas/ScienceQA", hub_rows.place / "derek-thomas__ScienceQA")
    rows, _ = hub(load, hub="allenai/ai2_arc", config="ARC-Challenge")
    assert len(rows) == hub_rows.pick(15, 1418)
    assert set(rows[0]) == {"id", "question", "choices", "answerKey", "_split"}
    rows, _ = hub(load, hub="derek-thomas/ScienceQA")
    assert len(rows) == hub_rows.pick(18, 700)
    assert {row["image"] for row in rows} == hub_rows.pick({None, "[media]"}, {None})


def imported(place: str, folder: str) -> list[tuple[str, str, float | None]]:
    """Import a set of the Hub; (question, split, reward) of each conversation."""
    from convbench.formats.write import import_logs

    run = import_logs(place, Path(folder) / "run", "id").run
    assert run is not None
    rewards = {verdict.conversation_id: verdict.reward for verdict in run.verdicts()}
    return [
        (run.examples[talk.example_id].question, run.examples[talk.example_id].split,
         rewards.get(talk.conversation_id))
        for talk in run.conversations()
    ]  # fmt: skip


def test_a_set_of_pairs_on_the_hub_is_imported(hub: Client, tmp_path: Path) -> None:
    pair = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}
    hub.hub.add_rows("org/pairs", {"one": {"train": [pair], "test": [pair | {"prompt": "3?"}]}})
    found = hub(imported, "hf://org/pairs", str(tmp_path))
    assert found == [
        ("2 + 2?", "train", 1.0), ("2 + 2?", "train", 0.0), ("3?", "test", 1.0), ("3?", "test", 0.0)
    ]  # fmt: skip
    with pytest.raises(HubError):
        hub(imported, "hf://org/nothing", str(tmp_path / "none"))
