"""All sets of an experiment, published with one command through the real Hub clients."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import convbench
from convbench.errors import ConvbenchError, HubError, RunError
from convbench.hub import repo as hub_repo
from convbench.hub.collection import plan_sets, publish_experiment
from convbench.options.publish import PublishOptions
from convbench.schema.task import Licence
from tests.helpers.hub_client import Client
from tests.helpers.runs import append, conversation, manifest, verdict, write_run
from tests.helpers.typed import Said, Typist, type_here

CELLS = ("arc-thinking-seed0", "arc-standard-seed0", "arc-thinking-seed1")
NAMES = ("arc-thinking", "arc-standard", "arc-thinking-seed1")
QUERY = ("```sql\n", "\n```")


def write_cell(root: Path, number: int, name: str, **more: Any) -> Path:
    """Write a judged run of five questions with two conversations each as a cell."""
    talks = [
        conversation(n, s, key=f"q{n}#{s}", conversation_id=f"{name}-{n}-{s}")
        for n in range(5) for s in range(2)
    ]  # fmt: skip
    verdicts = [verdict(talk, 0.9 - 0.1 * number - 0.5 * talk.sample) for talk in talks]
    values = {"conversations": talks, "verdicts": verdicts, **more}
    options = {"id": f"2026010{number + 1}-000000-abcdef01", "mode": name.split("-")[1], **values}
    return write_run(root / name, **options).path


def record_steps(root: Path, **states: str) -> None:
    """Write the plan, and that every step is done but those given otherwise (`""`: no line)."""
    cells = [path.name for path in sorted(root.iterdir()) if path.is_dir()]
    steps = [
        f"{cell}/{kind}" for cell in dict.fromkeys([*CELLS, *cells]) for kind in ("build", "judge")
    ]
    plan = {"title": "study: two modes & two seeds", "steps": steps}
    (root / "plan.json").write_text(json.dumps(plan))
    ends = [{"address": step, "mark": "x", "state": states.get(step, "done")} for step in steps]
    lines = [
        json.dumps({**end, "said": ["no key"] * (end["state"] == "failed")})
        for end in ends
        if end["state"]
    ]
    (root / "steps.jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A finished experiment: two modes, one of them with two seeds."""
    folder = tmp_path / "study"
    for number, name in enumerate(CELLS):
        write_cell(folder, number, name)
    record_steps(folder)
    return folder


def options(root: Path, prefix: str = "alice/", **more: Any) -> PublishOptions:
    return PublishOptions(experiment=root, prefix=prefix, **more)


def send(root: Path, prefix: str = "alice/", **more: Any) -> dict[str, Any]:
    """Publish in the client's process: what became of each set, in words that can be sent back."""
    hub_repo.FIRST_PAUSE = 0.01
    done = publish_experiment(options(root, prefix, **more))
    changed = {each.repo: each.uploaded and each.uploaded.changed for each in done.sets}
    card = done.uploaded and done.uploaded.changed
    return {"sets": changed, "card": card, "url": done.collection, "stopped": repr(done.stopped)}


def type_publish(*words: str) -> Said:
    """Type the command in the client's process."""
    hub_repo.FIRST_PAUSE = 0.01
    return type_here("publish", *words)


def ask_duckdb(sql: str) -> list[tuple[Any, ...]]:
    """Answer a card's query, which reads the Hub's files through the client's own file system."""
    import duckdb
    from huggingface_hub import HfFileSystem

    connection = duckdb.connect()
    connection.register_filesystem(HfFileSystem(skip_instance_cache=True))
    return connection.sql(sql).fetchall()


def query_of(card: str) -> str:
    return card.split(QUERY[0])[1].split(QUERY[1])[0]


EXPECTED = [
    ("arc", "reasoning", "standard", "test", 2, 0.55, 1.0),
    ("arc", "reasoning", "standard", "train", 8, 0.55, 1.0),
    ("arc", "reasoning", "thinking", "test", 4, 0.55, 1.0),
    ("arc", "reasoning", "thinking", "train", 16, 0.55, 1.0),
]
"""What the query gives of the three runs: .9 and .4, .8 and .3, .7 and .2 by sample."""


def rounded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows]


def test_a_dry_run_writes_a_folder_for_each_repository(root: Path) -> None:
    done = publish_experiment(options(root, dry_run=True))
    assert done.folder == root / "publish"
    assert sorted(path.name for path in done.folder.iterdir()) == sorted([*NAMES, "study"])
    card = (done.folder / "study" / "README.md").read_text()
    assert "# study: two modes &amp; two seeds" in card
    assert card.count("@inproceedings{mukherjee2025offline,") == card.count("@software{") == 1
    for name in NAMES:
        assert f"[alice/{name}](https://huggingface.co/datasets/alice/{name})" in card
        assert (done.folder / name / "README.md").is_file()
    assert "| arc | standard | reasoning | 3 | 0 | 5 | 2 | 10 | `rules` | 0.5500 " in card
    assert not list(root.glob(".publish-*"))
    assert not list(root.glob("*/published.json"))
    again = convbench.publish(experiment=str(root), prefix="alice/", dry_run=True)
    assert (again, (root / "publish/study/README.md").read_text()) == (done.folder, card)


def test_the_card_s_query_gives_the_means_of_the_local_files(root: Path) -> None:
    import duckdb

    folder = publish_experiment(options(root, dry_run=True)).folder
    sql = query_of((root / "publish/study/README.md").read_text())
    local = duckdb.sql(sql.replace("hf://datasets/alice", str(folder)))
    assert local is not None
    assert rounded(local.fetchall()) == EXPECTED


def test_sets_card_and_collection_are_on_the_hub_and_a_second_call_changes_nothing(
    root: Path, hub: Client
) -> None:
    done = hub(send, root, "alice/one-")
    assert done["sets"] == {f"alice/one-{name}": True for name in NAMES}
    assert (done["card"], done["stopped"]) == (True, "None")
    slug = done["url"].partition("/collections/")[2]
    items = hub.hub.store.collections[slug].items
    assert [item["id"] for item in items] == [
        "alice/one-study", *(f"alice/one-{name}" for name in NAMES)
    ]  # fmt: skip
    assert items[2]["note"]["text"] == (
        "arc, reasoning, standard, 3 policy turns, 2 conversations a question, seed 0"
    )
    card = hub.hub.repo("alice/one-study").head.files["README.md"].data.decode()
    assert rounded(hub(ask_duckdb, query_of(card))) == EXPECTED
    note = json.loads((root / CELLS[0] / "published.json").read_text())
    assert note["repo"] == "alice/one-arc-thinking"
    again = hub(send, root, "alice/one-")
    assert set(again["sets"].values()) == {False}
    assert (again["card"], again["url"]) == (False, done["url"])
    assert len(hub.hub.store.collections[slug].items) == 4


def test_a_hub_that_breaks_is_said_and_the_second_call_uploads_what_is_missing(
    root: Path, hub: Client
) -> None:
    words = ("--experiment", str(root), "--prefix", "alice/two-", "--public")
    hub.hub.fail("POST", "alice/two-arc-standard/commit/", status=500, times=1000)
    said = hub(type_publish, *words)
    assert said.code == 1
    assert "sets           1 new, 2 missing\n" in said.out
    assert "card           missing\ncollection     missing\n" in said.out
    assert "stopped: dataset alice/two-arc-standard: the Hub has a server error (500)" in said.err
    assert "   uploads what is missing" in said.out
    hub.hub.faults.clear()
    again = json.loads(hub(type_publish, *words, "--json").out)
    assert again["exit_code"] == 0
    assert [each["state"] for each in again["result"]["sets"]] == ["unchanged", "new", "new"]
    assert again["result"]["url"].endswith("/datasets/alice/two-study")
    assert again["result"]["collection"]
    first = hub.hub.repo("alice/two-arc-thinking")
    assert len(list(first.history(first.head))) == 2  # the Hub's own, and ours


def test_a_collection_that_fails_is_said_and_made_by_the_second_call(
    root: Path, hub: Client
) -> None:
    hub.hub.fail("POST", "/items", status=500, times=1000)
    done = hub(send, root, "alice/three-")
    assert set(done["sets"].values()) == {True}
    assert (done["card"], done["url"]) == (True, None)
    assert "collection alice/three-study: the Hub has a server error" in done["stopped"]
    hub.hub.faults.clear()
    again = hub(send, root, "alice/three-")
    assert again["url"]
    assert set(again["sets"].values()) == {False}


def test_everything_is_private_on_request(root: Path, hub: Client) -> None:
    done = hub(send, root, "alice/four-", private=True)
    slug = done["url"].partition("/collections/")[2]
    assert hub.hub.store.collections[slug].private
    assert all(hub.hub.repo(f"alice/four-{name}").private for name in (*NAMES, "study"))
    hub(send, root, "alice/five-")
    with pytest.raises(HubError, match="alice/five-arc-thinking: found a public repository"):
        hub(send, root, "alice/five-", private=True)
    hub.hub.store.collections[slug].private = False
    assert "found a public collection" in hub(send, root, "alice/four-", private=True)["stopped"]


def uploads(hub: Client) -> list[str]:
    """What was sent to be written."""
    return [entry.path for entry in hub.hub.log
            if entry.method == "POST" and entry.path != "/api/validate-yaml"]  # fmt: skip


def spoil(root: Path, how: str) -> None:
    """Make the experiment's last run one that may not be published."""
    path = root / CELLS[2]
    if how == "key":
        talk = conversation(4, 1, "sk-ant-api03-" + "Ab1" * 31, key="q4#1", attempt=1)
        append(path / "conversations.jsonl", [talk])
    elif how == "judges":
        scored = verdict(conversation(0, 0, conversation_id=f"{CELLS[2]}-0-0"))
        append(path / "verdicts.jsonl", [scored.model_copy(update={"judge": "gpt-4o"})])
    else:
        (path / "verdicts.jsonl").write_bytes(b"")


@pytest.mark.parametrize(("how", "words"), [
    ("key", "looks like secrets"),
    ("judges", "verdicts of 2 judges"),
    ("unscored", "no judge has scored it; nothing was sent"),
])  # fmt: skip
def test_what_may_not_be_published_is_found_before_the_first_upload(
    how: str, words: str, root: Path, hub: Client
) -> None:
    spoil(root, how)
    with pytest.raises(RunError, match=rf"study: {CELLS[2]}: .*{words}"):
        hub(send, root, "alice/six-")
    assert not uploads(hub)
    assert not list(root.glob(".publish-*"))


@pytest.mark.parametrize(("prefix", "words"), [
    ("alice/seven-", "arc-thinking-seed1: the name is taken: it holds something else"),
    ("bob/", "--prefix bob/: found no namespace of this token's user; expected one of: alice"),
])  # fmt: skip
def test_names_that_are_not_ours_are_refused_before_the_first_upload(
    prefix: str, words: str, root: Path, hub: Client
) -> None:
    hub.hub.add_repo("alice/seven-arc-thinking-seed1", {"data.csv": b"a\n1\n", "b.csv": b"b\n"})
    with pytest.raises(HubError, match=words):
        hub(send, root, prefix)
    assert not uploads(hub)


def test_a_licence_that_the_hub_does_not_know_is_said_before_the_first_upload(
    root: Path, hub: Client
) -> None:
    task = manifest().task.model_copy(update={"licence": Licence(id="made-up-2.0")})
    shutil.rmtree(root / CELLS[2])
    write_cell(root, 2, CELLS[2], task=task)
    words = 'alice/nine-arc-thinking-seed1: the Hub refuses its card: "license" must be one of'
    with pytest.raises(HubError, match=words):
        hub(send, root, "alice/nine-")
    assert not uploads(hub)


def test_no_token_is_said_before_the_first_upload(root: Path, hub: Client) -> None:
    with pytest.raises(HubError, match="HF_TOKEN"):
        hub(send, root, token=None)
    assert not uploads(hub)


def test_a_judge_is_chosen_for_all(root: Path) -> None:
    spoil(root, "judges")
    done = publish_experiment(options(root, dry_run=True, judge="rules"))
    assert {each.written.judge for each in done.sets} == {"rules"}
    with pytest.raises(RunError, match=f"study: {CELLS[0]}: --judge gpt-4o: found verdicts of rul"):
        publish_experiment(options(root, dry_run=True, judge="gpt-4o"))


def test_a_run_without_a_licence_is_left_out_and_said(root: Path, typist: Typist) -> None:
    task = manifest().task.model_copy(update={"licence": Licence()})
    shutil.rmtree(root / CELLS[1])
    write_cell(root, 1, CELLS[1], task=task)
    said = typist("publish", "--experiment", str(root), "--prefix", "me/", "--dry-run")
    assert said.code == 0
    assert "sets           2 written, 1 left out\n" in said.out
    reason = "the licence of arc is unknown"
    assert f"note: {CELLS[1]} is not published: {reason}; check its terms" in said.err
    assert f"- {CELLS[1]}: {reason}\n" in (root / "publish/study/README.md").read_text()
    for name in (CELLS[0], CELLS[2]):
        shutil.rmtree(root / name)
        write_cell(root, 0, name, task=task)
    with pytest.raises(RunError, match="found no run with a licence to be published"):
        plan_sets(options(root))


@pytest.mark.parametrize(("step", "state", "words"), [
    ("build", "failed", "build: no key"),
    ("judge", "", "its judge is not done yet"),
    ("judge", "waits", "judge: it failed without a message"),
])  # fmt: skip
def test_runs_that_are_not_finished_are_all_named(
    step: str, state: str, words: str, root: Path, typist: Typist
) -> None:
    shutil.rmtree(root / CELLS[2])
    record_steps(root, **{f"{CELLS[1]}/{step}": state})
    said = typist("publish", "--experiment", str(root), "--prefix", "me/", "--dry-run")
    assert said.code == 1
    tail = "; nothing was sent; resume the experiment"
    assert f"error: {root}: {CELLS[1]}: {words}{tail}\n" in said.err
    assert f"       {CELLS[2]}: it is not built yet\n" in said.err


def test_a_log_with_fewer_conversations_than_planned_is_not_finished(root: Path) -> None:
    file = root / CELLS[0] / "conversations.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-3]))
    with pytest.raises(RunError, match="3 of its conversations are not built yet; nothing"):
        plan_sets(options(root))


@pytest.mark.parametrize(("changes", "words"), [
    ({"prefix": None}, "--prefix: found no namespace of the Hub"),
    ({"prefix": "me"}, r"--prefix me: found no namespace of the Hub; expected OWNER/ \(me/\)"),
    ({"prefix": "me/a/b-"}, "found no namespace"),
    ({"prefix": "m e/"}, "not a repository id"),
    ({"repo": "me/set"}, "leave out REPO_ID, --run and --checkpoint"),
    ({"experiment": Path("study/arc-thinking-seed0")}, "found a run; expected an experiment's"),
    ({"experiment": Path("nowhere")}, "found no experiment; expected an experiment's folder"),
    ({"prefix": "me/", "experiment": Path("arc-thinking")}, "would be me/arc-thinking"),
])  # fmt: skip
def test_what_is_no_experiment_or_no_prefix_is_refused(
    changes: dict[str, Any], words: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    shutil.copytree(root, "arc-thinking")
    values = {"experiment": Path("study"), "prefix": "me/", **changes}
    with pytest.raises(ConvbenchError, match=words):
        plan_sets(PublishOptions(**values))


def test_options_of_an_experiment_alone_are_refused(typist: Typist) -> None:
    assert "found no repository; expected OWNER/NAME" in typist("publish", "--dry-run").err
    said = typist("publish", "me/set", "--prefix", "me/")
    assert (said.code, "--prefix is for --experiment" in said.err) == (2, True)


def test_an_interruption_says_what_is_published(
    root: Path, typist: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def upload(repo: str, folder: Path, **more: Any) -> hub_repo.UploadResult:
        if sent:
            raise KeyboardInterrupt
        sent.append(repo)
        return hub_repo.UploadResult(repo, f"https://hub/{repo}", "c" * 40, True, True)

    monkeypatch.setattr("convbench.hub.collection.upload_folder", upload)
    monkeypatch.setattr("convbench.hub.collection.check_upload", lambda *a, **k: None)
    monkeypatch.setattr("convbench.hub.collection.own_namespaces", lambda: ("me",))
    said = typist("publish", "--experiment", str(root), "--prefix", "me/", "--private")
    assert (said.code, sent) == (130, ["me/arc-thinking"])
    assert "new            https://hub/me/arc-thinking, 10 conversations\n" in said.out
    assert "sets           1 new, 2 missing\n" in said.out
    assert "stopped: interrupted" in said.err
