"""The folder that `publish --dry-run` writes: card, tables, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench.errors import HubError, RunError
from convbench.hub.dataset import write_dataset_folder
from convbench.hub.pull_check import check_run
from convbench.hub.safety import SecretScanner
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.runs import (
    ANSWERS,
    conversation,
    example,
    failed,
    thoughtful,
    verdict,
    write_run,
)


def dry(run: Run, **options: Any) -> Path:
    """The folder of a dry run."""
    return stages.publish(run, "alice/set", **options).folder


def front_of(folder: Path) -> dict[str, Any]:
    """The card's metadata."""
    front: dict[str, Any] = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    return front


def test_front_matter_is_complete(tmp_path: Path) -> None:
    """What the Hub understands, with the source set's licence."""
    front = front_of(dry(write_run(tmp_path / "r")))
    assert front["license"] == "cc-by-sa-4.0"
    assert front["language"] == ["en"]
    assert front["source_datasets"] == ["allenai/ai2_arc"]
    assert front["size_categories"] == ["n<1K"]
    assert {"pretty_name", "task_categories", "tags"} <= set(front)
    first = front["configs"][0]
    assert (first["config_name"], first["default"]) == ("conversations", True)
    assert [c["config_name"] for c in front["configs"]] == [
        "conversations", "turns", "verdicts", "examples",
    ]  # fmt: skip
    assert first["data_files"] == [
        {"split": "train", "path": "conversations/train-*.parquet"},
        {"split": "test", "path": "conversations/test-*.parquet"},
    ]


def test_front_matter_is_what_the_hub_accepts(tmp_path: Path) -> None:
    """Read by huggingface_hub's own card class."""
    from huggingface_hub import DatasetCard

    data = DatasetCard.load(dry(write_run(tmp_path / "r")) / "README.md").data
    assert data.license == "cc-by-sa-4.0"
    assert data.to_dict()["configs"][0]["config_name"] == "conversations"


def test_card_tells_what_a_reader_needs(tmp_path: Path) -> None:
    """Spec, prompts, models and terms, cost, rewards, failures, limits, loading, citation."""
    conversations = [conversation(0, 0), conversation(0, 1, ANSWERS[1]), failed(1)]
    run = write_run(tmp_path / "r", examples=[example(0), example(1)],
                    conversations=conversations)  # fmt: skip
    text = (dry(run) / "README.md").read_text()
    for words in (
        "Step final: teacher says",
        "MUST first state your final answer",
        "openai/tiny",
        "https://openai.com/policies/",
        "0.01 USD",
        "TransientModelError 1",
        "Failed conversations: 1 of 3",
        'load_dataset("alice/set"',
        "hf://datasets/alice/set/conversations",
        "convbench pull alice/set",
        "@article{clark2018think",
        "- protocol reasoning: Mukherjee et al. 2025, sections E.1 and E.2",
        "@inproceedings{mukherjee2025offline,",
        "author = {{convbench contributors}}",
        "| `rules` | train | 0.6500 | 2 | 0 |",
        "clustered by group",
    ):
        assert words in text


def test_equal_runs_give_equal_folders(tmp_path: Path) -> None:
    """Idempotence needs the same bytes."""
    run = write_run(tmp_path / "r")
    one, two = dry(run, folder=tmp_path / "one"), dry(run, folder=tmp_path / "two")
    files = [path.relative_to(one) for path in sorted(one.rglob("*")) if path.is_file()]
    assert len(files) > 10
    for file in files:
        assert (one / file).read_bytes() == (two / file).read_bytes()


def test_dry_run_replaces_its_own_folder_only(tmp_path: Path) -> None:
    """Never what a user keeps there."""
    run = write_run(tmp_path / "r")
    dry(run)
    assert dry(run) == run.path / "publish"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("x")
    with pytest.raises(RunError, match="a folder that no dry run made"):
        dry(run, folder=mine)
    assert [p.name for p in mine.iterdir()] == ["thesis.txt"]
    assert not list(tmp_path.rglob(".publish-*"))


def test_a_run_being_written_is_not_published(tmp_path: Path) -> None:
    """Half of a build is no dataset."""
    run = write_run(tmp_path / "r")
    with run.lock(), pytest.raises(RunError, match="another process"):
        dry(Run.open(run.path))


def test_an_empty_run_and_an_unknown_judge(tmp_path: Path) -> None:
    """One line each."""
    with pytest.raises(RunError, match="found no conversations"):
        dry(write_run(tmp_path / "empty", count=1, conversations=[]))
    with pytest.raises(RunError, match=r"found verdicts of rules in .*; expected one of these"):
        dry(write_run(tmp_path / "r", count=1), judge="gpt-4o")


def test_rewards_of_several_judges(tmp_path: Path) -> None:
    """`reward` is the named judge's; `rewards` holds all; a failure is null."""
    import pyarrow.parquet

    talk = conversation(0)
    run = write_run(tmp_path / "r", examples=[example(0)], conversations=[talk],
                    verdicts=[verdict(talk, 0.5), verdict(talk, None, judge="gpt-4o")])  # fmt: skip
    for judge, reward in (("rules", 0.5), ("gpt-4o", None)):
        folder = tmp_path / str(judge)
        write_dataset_folder(run, "alice/set", folder, judge=judge)
        (path,) = (folder / "conversations").glob("*.parquet")
        (row,) = pyarrow.parquet.read_table(path).to_pylist()
        assert row["reward"] == reward
        assert row["rewards"] == [
            {"judge": "rules", "reward": 0.5}, {"judge": "gpt-4o", "reward": None},
        ]  # fmt: skip


def test_messages_are_conversational_to_trl(tmp_path: Path) -> None:
    """As SFTTrainer asks."""
    data_utils = pytest.importorskip("trl.data_utils", reason="trl: pip install convbench[train]")
    import pyarrow.parquet

    folder = dry(write_run(tmp_path / "r", count=1))
    (path,) = (folder / "conversations").glob("*.parquet")
    row = pyarrow.parquet.read_table(path).to_pylist()[0]
    assert data_utils.is_conversational(row)


KEYS = {
    "openai": "sk-proj-" + "a1B2" * 10,
    "anthropic": "sk-ant-api03-" + "x9" * 20,
    "hugging face": "hf_" + "AbCdEfGhIj" * 4,
    "aws": "AKIA" + "ABCDEFGHIJ234567",
    "google": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "github": "ghp_" + "a1B2c3" * 6,
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "password": "https://ada:hunter22@example.org/v1",
}


PLACES = ("question", "justification", "manifest", "key")


@pytest.mark.parametrize(
    ("kind", "place"), [*((kind, "turn") for kind in KEYS), *(("pem", place) for place in PLACES)]
)
def test_key_like_text_is_refused_wherever_it_stands(kind: str, place: str, tmp_path: Path) -> None:
    """Place, not value; nothing is written."""
    key = KEYS[kind]
    talk = conversation(0, said=f"Use {key} please" if place == "turn" else ANSWERS[0])
    asked = example(0, question=f"Is {key} a key?" if place == "question" else "Why?")
    if place == "key":
        asked = example(0, inputs={key: 1})
    score = verdict(talk, justifications={"overall": f"It said {key}."}
                    if place == "justification" else {})  # fmt: skip
    extra = {"extra": {"note": key}} if place == "manifest" else {}
    run = write_run(tmp_path / "r", examples=[asked], conversations=[talk], verdicts=[score],
                    **extra)  # fmt: skip
    with pytest.raises(RunError, match="looks like secrets") as caught:
        dry(run)
    text = str(caught.value)
    assert key not in text
    assert key[:12] not in text
    assert "\n" not in text
    files = {"turn": "conversations.jsonl:1 (run-q0-0, turns[3].content)",
             "question": "examples.jsonl:1 (q0, question)", "key": "examples.jsonl:1",
             "justification": "verdicts.jsonl:1", "manifest": "run.json"}  # fmt: skip
    assert files[place] in text
    assert not (run.path / "publish").exists()


def test_values_of_this_machine_s_keys_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they look like; the variable is named."""
    monkeypatch.setenv("ACME_API_KEY", 'plain"words 4711')
    talk = conversation(0, said='I saw plain"words 4711 there')
    run = write_run(tmp_path / "r", examples=[example(0)], conversations=[talk])
    with pytest.raises(RunError, match=r"the value of \$ACME_API_KEY") as caught:
        dry(run)
    assert "4711" not in str(caught.value)


def test_ordinary_text_is_no_secret() -> None:
    """Words that only resemble keys."""
    scanner = SecretScanner({})
    for text in (
        "a task-specific-question-about-some-things", "risk-averse", "sk-learn",
        "hf_hub_download is a function", "see https://example.org/a:b@c", "AKIA is a prefix",
        "ratio 3:4@noon", "The keyword is AIza", "BEGIN PUBLIC KEY",
    ):  # fmt: skip
        assert scanner.find_secret(text) is None, text


def test_reasoning_is_published_and_loads_in_datasets(tmp_path: Path) -> None:
    """Beside the content in `messages`, with tokens and blocks in `turns`; records bit by bit."""
    import datasets

    run = thoughtful(tmp_path / "run")
    laid = write_dataset_folder(run, "me/set", tmp_path / "set")
    loaded = datasets.load_dataset("parquet", data_dir=str(laid.folder / "conversations"))
    row = loaded["train"][0]
    said = [m["reasoning_content"] for m in row["messages"] if m["role"] == "assistant"]
    assert said == ["T1", "T3"]
    assert row["temperature"] is None
    assert (row["reasoned"], row["reasoning_tokens"]) == (True, 14)
    turns = datasets.load_dataset("parquet", data_dir=str(laid.folder / "turns"))["train"]
    assert json.loads(turns[1]["reasoning_blocks"])[0]["signature"] == "sig=="
    assert turns[3]["reasoning"] == "T3"
    before, after = (path / "conversations.jsonl" for path in (run.path, laid.folder / "run"))
    assert before.read_bytes() == after.read_bytes()
    names = {path.name: path.stat().st_size for path in (laid.folder / "run").iterdir()}
    assert names
    manifest = check_run(laid.folder / "run", "me/set")
    assert list(Run(laid.folder / "run", manifest).conversations()) == list(run.conversations())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"text": "x" * (5 << 20)}, "characters"),
        ({"blocks": [{"type": "thinking", "thinking": "x"}] * 300}, "at most 256"),
        ({"blocks": [{"type": "python", "code": "x"}]}, "thinking"),
        ({"blocks": [{"type": "thinking", "thinking": "x", "run": "rm"}]}, "not permitted"),
        ({"tokens": -4}, "greater than or equal"),
        ({"tokens": 1e300}, "tokens"),
        ({"via": "telepathy"}, "reasoning_content"),
        ({"frame": ["a", "b", "c"]}, "frame"),
        ({"text": ["a"]}, "string"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_another_s_reasoning_is_plain_and_bounded(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    laid = write_dataset_folder(thoughtful(tmp_path / "run"), "me/set", tmp_path / "set")
    file = laid.folder / "run" / "conversations.jsonl"
    record = json.loads(file.read_text())
    record["turns"][1]["reasoning"].update(change)
    file.write_text(json.dumps(record) + "\n")
    with pytest.raises(HubError, match=why):
        check_run(laid.folder / "run", "me/set")
