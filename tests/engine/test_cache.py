"""Replies are shared by runs: found again for the same call alone, by processes side by side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from convbench.engine import Journal
from convbench.engine.reply_cache import ReplyCache, reply_name
from convbench.errors import RunError
from convbench.schema import Completion, Message, Reasoning, Sampling
from tests.helpers import stages
from tests.helpers.cli import records
from tests.helpers.typed import Typist
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

MESSAGES: list[Message] = [{"role": "user", "content": "Which?"}]


def name(**changed: object) -> str:
    said = {
        "ref": "openai/m", "identity": {"url": "u"}, "messages": MESSAGES,
        "sampling": Sampling(max_tokens=8), "key": "q#0@1",
    } | changed  # fmt: skip
    return reply_name(**said)  # type: ignore[arg-type]


OTHERS = [
    {"ref": "openai/n"}, {"identity": {"url": "v"}}, {"identity": {"url": "u", "headroom": 1}},
    {"sampling": Sampling(max_tokens=9)}, {"sampling": Sampling(max_tokens=8, temperature=0.5)},
    {"sampling": Sampling(max_tokens=8, seed=4)}, {"key": "q#1@1"}, {"key": "q#0@2"},
    {"key": "p#0@1"}, {"messages": [{"role": "user", "content": "Which"}]},
]  # fmt: skip


def test_a_name_hangs_on_everything() -> None:
    names = [name(), *(name(**changed) for changed in OTHERS)]
    assert len(set(names)) == len(names)


def test_a_name_does_not_hang_on_the_run() -> None:
    one = name(key=f"judge/fp/{'a1' * 10}#0")
    assert one == name(key=f"judge/fp/{'b2' * 10}#0") != name(key=f"judge/fp/{'b2' * 10}#1")
    marked: list[Message] = [{"role": "user", "content": "Which?", "stable": True}]
    assert name(messages=marked) == name()


def test_a_reply_comes_back_whole_and_costs_nothing(tmp_path: Path) -> None:
    said = Completion("yes", "length", 3, 4, 0.5, "m", Reasoning(text="so"), ("temperature",))
    cache = ReplyCache(tmp_path / "deep" / "replies.db")
    assert cache.get("a") is None
    cache.put("a", said)
    cache.close()
    again = ReplyCache(tmp_path / "deep" / "replies.db")
    found = again.get("a")
    assert found is not None
    assert found.cost_usd == 0.0
    assert (found.content, found.finish_reason, found.reasoning, found.left_out) == (
        "yes", "length", Reasoning(text="so"), ("temperature",),
    )  # fmt: skip
    assert (tmp_path / "deep" / "replies.db").stat().st_mode & 0o077 == 0


def test_what_is_no_cache_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("these are no replies, but something that I need\n" * 100)
    with pytest.raises(RunError, match="cannot be used as a cache of replies"):
        ReplyCache(tmp_path / "file").get("a")
    assert (tmp_path / "file").read_text().startswith("these are")


def test_a_record_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.db")
    cache._database.execute("INSERT INTO replies VALUES ('a', '{')")
    with pytest.raises(RunError, match=r"replies\.db: cannot be used as a cache"):
        cache.get("a")
    cache.close()


def test_processes_side_by_side_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from convbench.engine.reply_cache import ReplyCache\n"
        "from convbench.schema import Completion\n"
        "cache = ReplyCache(Path(sys.argv[1]))\n"
        "for n in range(100): cache.put(f'{sys.argv[2]}-{n}', Completion(f'{n}'))\n"
    )
    path = str(tmp_path / "replies.db")
    started = [subprocess.Popen([sys.executable, "-c", code, path, who]) for who in "abc"]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    cache = ReplyCache(Path(path))
    assert all(cache.get(f"{who}-{n}") for who in "abc" for n in range(100))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider(Plan()) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.api_base)
        yield server


def test_a_second_run_pays_nothing_and_says_the_same(typist: Typist, server: Provider) -> None:
    words = ("build", "demo", "--model", "hosted_vllm/policy", "--tasks", "5", "--samples", "3",
             "--cache", "replies.db")  # fmt: skip
    for run in ("runs/one", "runs/two"):
        assert typist(*words, "--run", run).code == 0
        assert typist("judge", "--judge", "hosted_vllm/judge", "--run", run,
                      "--cache", "replies.db").code == 0  # fmt: skip
        if run == "runs/one":
            before = server.stats.calls
    assert server.stats.calls == before
    one, two = (records(Path(run) / "conversations.jsonl") for run in ("runs/one", "runs/two"))
    said = [{r["key"]: [turn["content"] for turn in r["turns"]] for r in run} for run in (one, two)]
    assert said[0] == said[1]
    samples = [{tuple(said[0][f"{r['example_id']}#{n}"]) for n in range(3)} for r in one]
    assert any(len(different) == 3 for different in samples)
    assert typist.json("list", "runs")["result"]["runs"][0]["usd"] == 0
    third = typist(*words, "--run", "runs/three", "--seed", "8")
    assert third.code == 0
    assert server.stats.calls > before
    assert json.loads(Path("runs/two/calls.jsonl").read_text().splitlines()[0])["cost_usd"] == 0
    told = Path("runs/two/conversations.jsonl")
    told.write_text("".join(told.read_text().splitlines(keepends=True)[:-1]))
    cached = ("--cache", "replies.db", "--budget-tokens", "1")
    assert typist("build", "--run", "runs/two", *cached).code == 0, "replies of a cache are free"
    assert len(records(told)) == len(said[1])


def test_a_file_that_cannot_be_closed_leaves_no_other_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def refuse(self: ReplyCache) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(ReplyCache, "close", refuse)
    monkeypatch.setattr(Journal, "close", lambda self: closed.append("journal"))
    with pytest.raises(OSError, match="the disk is full"):
        stages.build(
            "demo",
            tasks=1,
            model="scripted:policy",
            run=tmp_path / "run",
            cache=tmp_path / "cache" / "replies.db",
        )
    assert closed == ["journal"]
