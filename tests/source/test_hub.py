"""Files of sets on the Hub, through the real client and a local Hub."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import HubError
from convbench.source import open_source
from tests.helpers.excerpts import Source
from tests.helpers.hub_client import Client
from tests.support.one_line import one_line

ROWS = [{"id": f"q{n}", "choices": {"text": ["wood", "iron"], "label": ["A", "B"]},
         "answer": n % 2} for n in range(3)]  # fmt: skip


def load(place: str) -> tuple[list[tuple[str | None, dict[str, Any]]], str]:
    """((split, row) of each row, revision), for the client's process."""
    files, revision = open_source(place)
    return [(file.split, row) for file in files for _, row in file.rows()], revision


def put(hub: Client, repo: str, **access: Any) -> str:
    """Put a set of two configs and three splits on the Hub; its commit."""
    splits = {"validation": ROWS[1:2], "test": ROWS[2:], "train": ROWS[:1]}
    hub.hub.add_rows(repo, {"one": splits, "two": {"train": ROWS}}, **access)
    return hub.hub.repo(repo).head.sha


def test_open_source_of_the_hub_has_all_splits_in_one_order(hub: Client) -> None:
    commit = put(hub, "org/plain")
    rows, revision = hub(load, "hf://org/plain:one")
    assert revision == commit
    assert rows == [(s, row) for s, row in zip(("train", "validation", "test"), ROWS, strict=True)]
    assert hub(load, "hf://org/plain:one/test")[0] == rows[2:]


def test_open_source_of_a_revision_is_resolved(hub: Client) -> None:
    """A commit asked for is what is loaded, newer ones notwithstanding."""
    commit = put(hub, "org/moving")
    repo = hub.hub.repo("org/moving")
    repo.commit(repo.head.files, "newer")
    rows, revision = hub(load, f"hf://org/moving:two@{commit}")
    assert (len(rows), revision) == (3, commit)
    assert hub(load, "hf://org/moving:two")[1] == repo.head.sha


CASES = [
    ("org/here:nope", "'nope' not found among one, two; name one: hf://org/here:one"),
    ("org/here", "no config found among one, two; .*--set task.source.config=one"),
    ("org/here:two/dev", "no split 'dev'; there is: train"),
    ("org/here:one@v9", "no such revision"),
    ("org/absent", "found no such repository.*HF_TOKEN"),
    ("not a/name", "not a repository id"),
]


@pytest.mark.parametrize(("place", "words"), CASES)
def test_open_source_of_what_is_missing_is_one_line(place: str, words: str, hub: Client) -> None:
    put(hub, "org/here")
    with pytest.raises(HubError, match=words) as caught:
        hub(load, f"hf://{place}")
    one_line(caught.value)


def test_open_source_of_private_and_gated_sets(hub: Client, tmp_path: Path) -> None:
    """A token of the right account opens them; the line for others says what to do.

    Others have a cache of their own: what lies in one's cache is used.
    """
    put(hub, "alice/private", private=True)
    put(hub, "org/gated", gated=True, granted=("alice",))
    for repo, words in (("alice/private", "HF_TOKEN"), ("org/gated", "accept the terms at")):
        assert len(hub(load, f"hf://{repo}:two")[0]) == 3
        for token in ("hf_bob", None):
            with pytest.raises(HubError, match=words):
                hub(load, f"hf://{repo}:two", token=token, home=tmp_path)
    with pytest.raises(HubError, match="asks for a token") as caught:
        hub(load, "hf://alice/private:two", token="hf_wrong", home=tmp_path)
    assert "hf_wrong" not in str(caught.value)


def test_open_source_offline_uses_the_cache_and_its_commit(hub: Client, tmp_path: Path) -> None:
    commit = put(hub, "org/cached")
    hub(load, "hf://org/cached:two")
    hub.hub.log.clear()
    rows, revision = hub(load, "hf://org/cached:two", offline=True)
    assert (len(rows), revision, hub.hub.log) == (3, commit, [])
    with pytest.raises(HubError, match="offline mode is on and it is not in the cache"):
        hub(load, "hf://org/never", offline=True, home=tmp_path)


def test_open_source_of_a_hub_that_is_down_is_one_line_at_once(tmp_path: Path) -> None:
    """Seconds, not the minutes that the clients' own retries take."""
    code = (
        "from convbench.source import open_source\n"
        "try: open_source('hf://org/x')\n"
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


def test_open_source_of_a_hub_that_is_down_gives_way_to_the_cache(hub: Client) -> None:
    commit = put(hub, "org/away")
    hub(load, "hf://org/away:two")
    hub.hub.fail("*", "/", drop=True, times=1000)
    rows, revision = hub(load, "hf://org/away:two")
    assert (len(rows), revision) == (3, commit)


def test_open_source_of_sets_in_the_hub_s_own_schema(hub: Client, hub_rows: Source) -> None:
    """ARC's two configs, ScienceQA with its image column (which is empty in the real part)."""
    hub.hub.add_dataset("allenai/ai2_arc", hub_rows.place / "allenai__ai2_arc")
    hub.hub.add_dataset("derek-thomas/ScienceQA", hub_rows.place / "derek-thomas__ScienceQA")
    rows, _ = hub(load, "hf://allenai/ai2_arc:ARC-Challenge")
    assert len(rows) == hub_rows.pick(15, 1418)
    assert set(rows[0][1]) == {"id", "question", "choices", "answerKey"}
    rows, _ = hub(load, "hf://derek-thomas/ScienceQA")
    assert len(rows) == hub_rows.pick(18, 700)
    assert {row["image"] for _, row in rows} == hub_rows.pick({None, "[media]"}, {None})


def imported(place: str, folder: str) -> list[tuple[str, str, float | None]]:
    """Import a set of the Hub; (question, split, reward) of each conversation."""
    from convbench.formats.importing import import_logs

    run = import_logs(place, Path(folder) / "run", "id", "log").run
    assert run is not None
    rewards = {verdict.conversation_id: verdict.reward for verdict in run.verdicts()}
    return [
        (run.examples[talk.example_id].question, run.examples[talk.example_id].split,
         rewards.get(talk.conversation_id))
        for talk in run.conversations()
    ]  # fmt: skip


def test_import_logs_of_a_set_of_pairs_on_the_hub(hub: Client, tmp_path: Path) -> None:
    pair = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}
    hub.hub.add_rows("org/pairs", {"one": {"train": [pair], "test": [pair | {"prompt": "3?"}]}})
    found = hub(imported, "hf://org/pairs", str(tmp_path))
    assert found == [
        ("2 + 2?", "train", 1.0), ("2 + 2?", "train", 0.0), ("3?", "test", 1.0), ("3?", "test", 0.0)
    ]  # fmt: skip
    with pytest.raises(HubError):
        hub(imported, "hf://org/nothing", str(tmp_path / "none"))
