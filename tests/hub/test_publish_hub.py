"""Publish and pull through the real Hub clients."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import HubError, RunError
from convbench.schema import RunManifest
from convbench.store import Run
from tests.helpers.hub_client import Client
from tests.helpers.published import RECORDS, fetch, load, push
from tests.helpers.runs import append, conversation, failed, verdict, write_run


def stream(repo: str) -> dict[str, Any]:
    """The first row of the default config, streamed."""
    import datasets

    row: dict[str, Any] = next(iter(datasets.load_dataset(repo, split="train", streaming=True)))
    return row


def test_build_publish_pull_gives_equal_records(hub: Client, tmp_path: Path) -> None:
    """Byte for byte; the manifest but for where it came from and addresses."""
    run = write_run(tmp_path / "r", count=5)
    append(run.conversations_file, [failed(4, 1, attempt=1), conversation(4, 1, attempt=2)])
    done = hub(push, run.path, "alice/round")
    assert (done["created"], done["changed"]) == (True, True)
    back = Run.open(Path(hub(fetch, "alice/round", tmp_path / "back")))
    for name in RECORDS:
        assert (back.path / name).read_bytes() == (run.path / name).read_bytes()
    assert list(back.conversations()) == list(run.conversations())
    assert back.judge_specs() == run.judge_specs()
    assert back.manifest.pulled_from == f"alice/round@{done['commit']}"
    assert back.manifest.model_copy(update={"pulled_from": None}) == run.manifest
    cited = (back.path / "CITATION.bib").read_text()
    assert re.findall(r"@\w+\{(\w+),", cited) == [
        "clark2018think",
        "mukherjee2025offline",
        "convbench",
    ]
    assert sorted(p.name for p in back.path.parent.iterdir()) == ["back", "r"]


def test_every_config_loads(hub: Client, tmp_path: Path) -> None:
    """The first config is the default; splits as the examples say; streaming too."""
    run = write_run(tmp_path / "r", count=5)
    hub(push, run.path, "alice/configs")
    first = hub(load, "alice/configs")
    assert {split: len(rows) for split, rows in first.items()} == {"train": 8, "test": 2}
    row = first["train"][0]
    assert row["messages"][0] == {"role": "system", "content": "You are a helpful student."}
    assert [m["role"] for m in row["messages"][1:]] == ["user", "assistant"] * 2
    assert (row["reward"], row["answer"], row["correct"]) == (0.9, "B", True)
    assert row["rewards"] == [{"judge": "rules", "reward": 0.9}]
    for config, rows in (("conversations", 8), ("turns", 32), ("verdicts", 8), ("examples", 4)):
        assert len(hub(load, "alice/configs", config)["train"]) == rows
    assert hub(stream, "alice/configs")["messages"] == row["messages"]
    assert any(entry.range for entry in hub.hub.log)


def test_same_content_makes_no_new_commit(hub: Client, tmp_path: Path) -> None:
    """And new content makes one, without what is there no more."""
    run = write_run(tmp_path / "r", count=5)
    first = hub(push, run.path, "alice/again")
    again = hub(push, run.path, "alice/again")
    assert (again["commit"], again["changed"]) == (first["commit"], False)
    repo = hub.hub.repo("alice/again")
    extra = dict(repo.head.files) | {"turns/old.parquet": repo.head.files["README.md"]}
    repo.commit(extra, "a file of an older layout")
    append(run.verdicts_file, [verdict(conversation(0), 0.1)])
    newer = hub(push, run.path, "alice/again")
    assert newer["changed"]
    assert "turns/old.parquet" not in repo.head.files
    assert ".gitattributes" in repo.head.files
    assert {row["reward"] for row in hub(load, "alice/again")["train"]} >= {0.1}


@pytest.mark.parametrize("fault", [
    {"method": "POST", "path": "/commit/", "status": 503},
    {"method": "POST", "path": "/commit/", "status": 500, "after": True},
    {"method": "POST", "path": "/commit/", "drop": True},
    {"method": "POST", "path": "/preupload/", "status": 502},
])  # fmt: skip
def test_a_fault_in_the_middle_of_a_commit_is_tried_again(
    fault: dict[str, Any], hub: Client, tmp_path: Path
) -> None:
    """One commit in the end, even where the first one's reply was lost."""
    run = write_run(tmp_path / "r", count=2)
    name = "alice/fault-" + "-".join(str(value).strip("/") for value in fault.values())
    hub.hub.fail(**fault)
    hub(push, run.path, name)
    commits = list(hub.hub.repo(name).history(hub.hub.repo(name).head))
    assert [commit.title for commit in commits] == ["Publish with convbench", "initial commit"]


def test_a_hub_that_stays_broken_is_left_as_it_was(hub: Client, tmp_path: Path) -> None:
    """Nothing is half-published, and the next try works."""
    run = write_run(tmp_path / "r", count=2)
    hub(push, run.path, "alice/broken")
    before = hub.hub.repo("alice/broken").head.sha
    append(run.conversations_file, [conversation(1, 1, "The answer is A.", attempt=1)])
    hub.hub.fail("POST", "/commit/", status=500, times=1000)
    with pytest.raises(HubError, match=r"a server error \(500\)"):
        hub(push, run.path, "alice/broken")
    assert hub.hub.repo("alice/broken").head.sha == before
    hub.hub.faults.clear()
    assert hub(push, run.path, "alice/broken")["changed"]


def test_private(hub: Client, tmp_path: Path) -> None:
    """Others do not see it."""
    run = write_run(tmp_path / "r", count=2)
    hub(push, run.path, "alice/secret", private=True)
    assert hub.hub.repo("alice/secret").private
    hub(fetch, "alice/secret", tmp_path / "mine")
    with pytest.raises(HubError, match="found no such repository"):
        hub(fetch, "alice/secret", tmp_path / "other", token="hf_bob")
    assert not (tmp_path / "other").exists()
    hub(push, run.path, "alice/public")
    with pytest.raises(HubError, match="found a public repository"):
        hub(push, run.path, "alice/public", private=True)


def test_a_taken_name_is_refused(hub: Client, tmp_path: Path) -> None:
    """Another run's set, someone else's set, and someone else's namespace."""
    one = write_run(tmp_path / "one", count=2)
    two = write_run(tmp_path / "two", count=2, id="20260102-000000-abcdef02")
    hub(push, one.path, "alice/mine")
    hub.hub.add_repo("alice/other", {"README.md": b"# mine", "data.csv": b"a\n1\n"})
    with pytest.raises(HubError, match="the name is taken: it holds run 20260101"):
        hub(push, two.path, "alice/mine")
    with pytest.raises(HubError, match="the name is taken: it holds something else"):
        hub(push, two.path, "alice/other")
    with pytest.raises(HubError, match=r"the Hub refuses \(403.*write access"):
        hub(push, two.path, "bob/new")
    assert list(hub.hub.repo("alice/other").head.files) != []
    hub.hub.add_repo("alice/empty", {"README.md": b"# to come"})
    assert hub(push, two.path, "alice/empty")["changed"]


def test_no_token_and_a_wrong_one(hub: Client, tmp_path: Path) -> None:
    """Said before anything is sent."""
    run = write_run(tmp_path / "r", count=2)
    with pytest.raises(HubError, match="HF_TOKEN"):
        hub(push, run.path, "alice/none", token=None)
    with pytest.raises(HubError, match="HF_TOKEN") as caught:
        hub(push, run.path, "alice/none", token="hf_wrong")
    assert "hf_wrong" not in str(caught.value)
    assert not any(entry.method == "POST" for entry in hub.hub.log)


SOUND: dict[str, bytes] = {}
"""Files of a set as it was published, once a process."""


def hostile(hub: Client, repo: str, tmp_path: Path, **changes: bytes | None) -> None:
    """Put a sound set with other files in place of its own on the Hub."""
    if not SOUND:
        hub(push, write_run(tmp_path / f"src-{repo}", count=2).path, "alice/sound")
        head = hub.hub.repo("alice/sound").head
        SOUND.update({path: file.data for path, file in head.files.items()})
    files = dict(SOUND)
    for path, data in changes.items():
        files.pop(path, None)
        if data is not None:
            files[path] = data
    hub.hub.add_repo(f"alice/{repo}", files)


GOOD = conversation(0).model_dump_json()
FUNCTION = '"checks":[{"function":"os:system"}]'
HOSTILE: dict[str, tuple[dict[str, bytes | None], str]] = {
    "climb": ({"run/../../evil.json": b"{}"}, "leaves its folder; refused"),
    "climb-elsewhere": ({"data/../../../evil": b"x"}, "leaves its folder; refused"),
    "hidden-file": ({"run/media/.bashrc": b"x"}, "no file of a run; refused"),
    "script": ({"run/evil.py": b"x"}, "no file of a run; refused"),
    "not-a-run": ({"run/run.json": None}, "found no run/run.json"),
    "not-json": ({"run/run.json": b"{"}, r"run/run\.json: damaged, not JSON"),
    "a-list": ({"run/run.json": b"[]"}, "found list; expected an object"),
    "newer": (
        {"run/run.json": b'{"format": 2, "version": "0.9.0"}'},
        "format: found 2, written by convbench '0.9.0'; .*pip install -U convbench",
    ),
    "no-manifest": ({"run/run.json": b"{}"}, r"run/run\.json: format: found None"),
    "deep": ({"run/conversations.jsonl": b"[" * 100_000 + b"\n"}, r"conversations\.jsonl:1"),
    "wrong-type": (
        {"run/conversations.jsonl": GOOD.replace('"sample":0', '"sample":"x"').encode() + b"\n"},
        r"conversations\.jsonl:1: sample",
    ),
    "unknown-field": (
        {"run/conversations.jsonl": GOOD.replace("{", '{"evil":1,', 1).encode() + b"\n"},
        r"conversations\.jsonl:1: evil",
    ),
    "stranger": (
        {"run/conversations.jsonl": GOOD.replace('"assistant"', '"mallory"').encode() + b"\n"},
        "found speaker 'mallory'",
    ),
    "lost-example": (
        {"run/conversations.jsonl": GOOD.replace('"q0"', '"q99"').encode() + b"\n"},
        "found example 'q99'",
    ),
    "lost-image": (
        {"run/conversations.jsonl": GOOD.replace(
            '"Iron, I think."', '[{"type":"image","file":"x.png"}]').encode() + b"\n"},
        r"image 'x\.png' is missing",
    ),
    "climbing-image": (
        {"run/conversations.jsonl": GOOD.replace(
            '"Iron, I think."', '[{"type":"image","file":"../x.png"}]').encode() + b"\n"},
        r"turns\.1\.content",
    ),
    "huge-field": (
        {"run/conversations.jsonl": GOOD.replace(
            "Iron, I think.", "x" * (5 << 20)).encode() + b"\n"},
        "found 5,242,880 characters",
    ),
    "huge-line": ({"run/examples.jsonl": b"x" * (33 << 20)}, "more than 33,554,432 bytes"),
    "lost-verdict": (
        {"run/verdicts.jsonl": verdict(conversation(99)).model_dump_json().encode() + b"\n"},
        "no conversation of the run",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_set_is_refused_and_leaves_nothing(case: str, hub: Client, tmp_path: Path) -> None:
    """One clear line; no file, no half of a run."""
    changes, words = HOSTILE[case]
    hostile(hub, case, tmp_path, **changes)
    target = tmp_path / "in" / "pulled"
    with pytest.raises(HubError, match=words) as caught:
        hub(fetch, f"alice/{case}", target)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert not target.parent.exists() or list(target.parent.iterdir()) == []
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize(("way", "change"), [
    ("task.source", {"task": {"source": {"rows": "os:system"}}}),
    ("task.rows.maker", {"task": {"rows": {"maker": "subprocess:run"}}}),
    ("task.speakers.teacher", {"task": {"speakers": {"teacher": "rule:os:system"}}}),
    ("cast.teacher.model", {"cast": {"teacher": {"model": "rule:os:system"}}}),
    ("protocol.checks", {"protocol": {"checks": [{"function": "os:system"}]}}),
    ("check-file", {"protocol": {"checks": [{"function": "evil.py:f"}]}}),
    ("check-shipped-file", {"protocol": {"checks": [{"function": "convbench.evil.py:f"}]}}),
    ("rule-file", {"cast": {"teacher": {"model": "rule:../evil.py:f"}}}),
])  # fmt: skip
def test_functions_named_by_a_set_are_refused(
    way: str, change: dict[str, Any], hub: Client, tmp_path: Path
) -> None:
    """Specs from elsewhere are data."""
    import json

    name = way.replace(".", "-")
    run = write_run(tmp_path / "r", count=1)
    value = json.loads((run.path / "run.json").read_bytes())
    for key, part in change.items():
        for inner, new in part.items():
            old = value[key].get(inner)
            keep = isinstance(old, dict) and isinstance(new, dict) and inner != "source"
            value[key][inner] = {**old, **new} if keep else new
    RunManifest.model_validate(value)  # it is refused for the function, not for its shape
    hostile(hub, name, tmp_path, **{"run/run.json": json.dumps(value).encode()})
    with pytest.raises(HubError, match=r"names the Python function.*a set from elsewhere is data"):
        hub(fetch, f"alice/{name}", tmp_path / "pulled")


def test_addresses_do_not_travel(hub: Client, tmp_path: Path) -> None:
    """Neither out of a run nor, from a set made by other means, into one."""
    from convbench.schema import ModelConfig

    cast = {"assistant": ModelConfig(model="openai/x", api_base="http://10.0.0.7:8000/v1"),
            "teacher": ModelConfig(model="script")}  # fmt: skip
    run = write_run(tmp_path / "r", count=1, cast=cast)
    hub(push, run.path, "alice/address")
    files = hub.hub.repo("alice/address").head.files
    assert not any(b"10.0.0.7" in file.data for file in files.values())
    hostile(hub, "rogue", tmp_path, **{"run/run.json": (run.path / "run.json").read_bytes()})
    back = Run.open(Path(hub(fetch, "alice/rogue", tmp_path / "back")))
    assert back.manifest.cast["assistant"].api_base is None


def test_pull_wants_an_empty_place(hub: Client, tmp_path: Path) -> None:
    """What is there stays."""
    run = write_run(tmp_path / "r", count=1)
    hub(push, run.path, "alice/place")
    with pytest.raises(RunError, match="already exists"):
        hub(fetch, "alice/place", run.path)
    os.makedirs(tmp_path / "empty")
    assert hub(fetch, "alice/place", tmp_path / "empty") == str(tmp_path / "empty")
    with pytest.raises(HubError, match="found no such repository"):
        hub(fetch, "alice/absent", tmp_path / "x")
    with pytest.raises(HubError, match="no such revision"):
        hub(fetch, "alice/place", tmp_path / "x", revision="v9")
