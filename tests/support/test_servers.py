"""The local servers themselves: the wire, the faults, the counters, the real clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .chat.plan import FAULTS, Plan
from .chat.replies import METRICS
from .hub_client_checks import GATED, PRIVATE, QUIZ
from .hub_server import HubServer
from .provider import Provider, fixed_reply
from .serve import ROOT, spawn

QUESTION = (
    "Question: Which of these melts in the sun?\nChoices:\nA. a stone\nB. an ice cube\n"
    "C. a brick\nD. a spoon\n\nPlease use <thinking></thinking> tags."
)
FINAL = "Thank you. What is your final answer (A, B, C, or D)? Use <thinking></thinking> tags."


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


def post(url: str, body: object, **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Status, JSON and headers of a POST."""
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, json.load(reply), dict(reply.headers)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}"), dict(error.headers)


def get(url: str) -> Any:
    """JSON of a GET."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)


def body(*texts: str, **fields: Any) -> dict[str, Any]:
    """A chat request with alternating user and assistant messages."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"model": "m", "messages": messages, "max_tokens": 500, **fields}


def chat(provider: Provider, *texts: str, **fields: Any) -> tuple[int, Any, dict[str, str]]:
    """POST a chat completion."""
    return post(provider.api_base + "/chat/completions", body(*texts, **fields))


def text_of(reply: Any) -> str:
    """The content of a chat completion."""
    return str(reply["choices"][0]["message"]["content"])


def test_a_conversation_keeps_its_letter_and_states_it_at_the_end(provider: Provider) -> None:
    first = text_of(chat(provider, QUESTION)[1])
    final = text_of(chat(provider, QUESTION, first, FINAL)[1])
    letter = re.match(r"The answer is ([A-D])\. <thinking>.*</thinking>\Z", final)
    assert letter is not None
    assert f"option {letter[1]}" in first
    assert "ice cube" in final
    assert text_of(chat(provider, QUESTION, first, FINAL)[1]) == final
    others = {text_of(chat(provider, QUESTION, first, FINAL, seed=s)[1])[:15] for s in range(20)}
    assert len(others) == 4


def test_a_reply_is_cut_at_max_tokens_words(provider: Provider) -> None:
    whole, cut = chat(provider, QUESTION)[1], chat(provider, QUESTION, max_tokens=5)[1]
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert cut["choices"][0]["finish_reason"] == "length"
    assert text_of(whole).startswith(text_of(cut))
    assert cut["usage"]["completion_tokens"] == 5 == len(text_of(cut).split())
    assert cut["usage"]["prompt_tokens"] == len(QUESTION.split()) + 4


def test_the_evaluator_scores_in_the_exact_form(provider: Provider) -> None:
    system = {"role": "system", "content": "\n".join(f"{m}: [score]" for m in METRICS)}
    form = "\n\n".join(rf"{metric}: (\d+)\n[^\n]+" for metric in METRICS)
    scores = {}
    for said in "AB":
        request = body(f"{QUESTION}\nCorrect Answer: B\nThe answer is {said}.")
        request["messages"].insert(0, system)
        reply = text_of(post(provider.api_base + "/chat/completions", request)[1])
        found = re.fullmatch(form, reply)
        assert found is not None
        scores[said] = [int(score) for score in found.groups()]
    assert max(scores["A"]) < min(scores["B"]) <= max(scores["B"]) <= 10


@pytest.mark.parametrize("kind", [k for k in FAULTS if k not in ("hang", "502", "truncated")])
def test_each_fault_on_the_wire(provider: Provider, kind: str) -> None:
    provider.change(faults={kind: 1.0}, retry_after=7)
    if kind in ("reset", "partial"):
        lost = "reset by peer" if kind == "reset" else "bytes read"
        with pytest.raises((ConnectionResetError, http.client.IncompleteRead), match=lost):
            chat(provider, QUESTION)
    else:
        status, reply, headers = chat(provider, QUESTION)
        assert status == (int(kind[:3]) if kind[0].isdigit() else 200)
        assert headers.get("Retry-After") == ("7" if kind == "429_retry_after" else None)
        if kind in ("empty", "null"):
            content = reply["choices"][0]["message"]["content"]
            assert content == ("" if kind == "empty" else None)
    assert provider.stats.faults == {kind: 1}
    assert (provider.stats.calls, provider.stats.answered) == (1, 0)


def test_bodies_that_are_no_json(provider: Provider) -> None:
    for kind in ("502", "truncated"):
        provider.change(faults={kind: 1.0})
        with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
            chat(provider, QUESTION)


def test_random_faults_have_their_rate_and_stop_for_a_retried_request() -> None:
    plan = Plan(faults={"429": 0.2, "500": 0.2}, max_faults_per_request=2)
    hit = [plan.fault(1, f"request {n}", 1, 0, "") for n in range(2000)]
    assert 340 < hit.count("429") < 460
    assert 340 < hit.count("500") < 460
    assert hit == [plan.fault(1, f"request {n}", 1, 0, "") for n in range(2000)]
    again = [plan.fault(1, f"request {n}", 2, 1, "") for n in range(2000)]
    both = sum(bool(one and two) for one, two in zip(hit, again, strict=True))
    assert 250 < both < 390, "a retry must draw anew"
    assert {plan.fault(1, f"request {n}", 3, 2, "") for n in range(100)} == {None}


def test_scheduled_and_poisoned_calls_fail(provider: Provider) -> None:
    provider.change(schedule={"2": "500"}, poison={"spoon": "empty"})
    assert [chat(provider, f"question {n}")[0] for n in range(3)] == [200, 500, 200]
    assert [text_of(chat(provider, QUESTION)[1]) for _ in range(2)] == ["", ""]
    provider.reset()
    assert [chat(provider, "question")[0] for _ in range(2)] == [200, 500]


@pytest.mark.parametrize(
    ("plan", "fields", "status", "code"),
    [
        (Plan(api_keys=("sk-right",)), {}, 401, "invalid_api_key"),
        (Plan(models=("other",)), {}, 404, "model_not_found"),
        (Plan(context_tokens=100), {}, 400, "context_length_exceeded"),
        (Plan(refuse={"max_tokens": "unsupported_parameter"}), {}, 400, "unsupported_parameter"),
        (
            Plan(refuse={"temperature": "unsupported_value"}),
            {"temperature": 0.3},
            400,
            "unsupported_value",
        ),
    ],
)
def test_refusals(plan: Plan, fields: dict[str, Any], status: int, code: str) -> None:
    with Provider(plan) as provider:
        found, reply, _ = chat(provider, QUESTION, **fields)
        assert (found, reply["error"]["code"]) == (status, code)
        assert code[:11] != "unsupported" or reply["error"]["param"] in plan.refuse
        provider.change(api_keys=None, models=["m"], context_tokens=None, refuse={})
        assert chat(provider, QUESTION, **fields)[0] == 200


async def _burst(url: str, count: int, **options: Any) -> list[int]:
    async def one(session: aiohttp.ClientSession, n: int) -> int:
        request = body(f"question {n}")
        async with session.post(url + "/v1/chat/completions", json=request) as reply:
            await reply.read()
            return reply.status

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, **options) as session:
        return await asyncio.gather(*(one(session, n) for n in range(count)))


def test_256_calls_at_once_take_the_latency_once() -> None:
    latency = 3.0  # long beside what it takes to send so many from a busy machine
    with spawn("provider", "--latency", str(latency)) as url:
        assert asyncio.run(_burst(url, 256)) == [200] * 256
        stats = get(url + "/_stats")
    assert stats["peak_in_flight"] == 256 == stats["answered"] == stats["requests"]
    assert latency <= stats["span_s"] < 2 * latency


def test_the_limiter_is_adjustable_while_it_runs(provider: Provider) -> None:
    provider.change(latency_s=1.5, max_in_flight=5)
    statuses = asyncio.run(_burst(provider.url, 20))
    assert (statuses.count(200), statuses.count(429)) == (5, 15)
    assert provider.stats.peak_in_flight == 5
    changes = {"max_in_flight": 50, "latency_s": 0.2}
    status, plan, _ = post(provider.url + "/_config", changes)
    assert (status, plan["max_in_flight"], plan["latency_s"]) == (200, 50, 0.2)
    assert set(asyncio.run(_burst(provider.url, 20))) == {200}
    assert post(provider.url + "/_config", {"faults": {"nonsense": 1}})[0] == 400


def test_a_hang_ends_when_the_client_leaves(provider: Provider) -> None:
    provider.change(schedule={"1": "hang"}, hang_s=60)
    with pytest.raises(TimeoutError):
        asyncio.run(_burst(provider.url, 1, timeout=aiohttp.ClientTimeout(1.0)))
    _wait_until(lambda: provider.stats.abandoned == 1)
    assert provider.stats.in_flight == 0
    provider.change(schedule={"2": "hang"}, hang_s=0.1)
    assert chat(provider, QUESTION)[0] == 504


def _wait_until(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def test_counters_survive_in_the_state_file(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    for calls in (1, 2):
        with spawn("provider", "--state", str(state), "--reply", "yes") as url:
            assert text_of(post(url + "/v1/chat/completions", body("q"))[1]) == "yes"
            stats = get(url + "/_stats?requests=1")
            assert (stats["calls"], stats["repeats"]) == (calls, calls - 1)
            assert list(stats["answered_by_request"].values()) == [calls]
    assert json.loads(state.read_text())["calls"] == 2


def test_a_server_ends_when_its_parent_is_killed() -> None:
    program = (
        "import time\nfrom tests.support.serve import spawn\n"
        "with spawn('provider') as url:\n    print(url, flush=True)\n    time.sleep(60)"
    )
    command = [sys.executable, "-c", program]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        url = parent.stdout.readline().strip()
        assert get(url + "/_stats")["calls"] == 0
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    _wait_until(lambda: not _listens(url))


def _listens(url: str) -> bool:
    try:
        get(url + "/_stats")
    except OSError:
        return False
    return True


def test_litellm_speaks_to_both_apis(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    provider.change(api_keys=["sk-right"])
    request = body(QUESTION, "Hm.", FINAL)
    for model, base in (("openai/m", provider.api_base), ("anthropic/m", provider.url)):
        options = request | {"model": model, "api_base": base, "max_retries": 0}
        reply = litellm.completion(**options, api_key="sk-right")
        assert reply.choices[0].message.content.startswith("The answer is ")
        assert reply.usage.completion_tokens == len(reply.choices[0].message.content.split())
        with pytest.raises(litellm.AuthenticationError):
            litellm.completion(**options, api_key="sk-wrong")


def test_a_reply_function_of_ones_own() -> None:
    with Provider(Plan(keep_requests=1), reply=fixed_reply("always")) as provider:
        parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]
        request = {"model": "m", "messages": [{"role": "user", "content": parts}]}
        assert text_of(post(provider.api_base + "/chat/completions", request)[1]) == "always"
        assert get(provider.url + "/_requests") == [request]


@pytest.fixture
def hub() -> Iterator[HubServer]:
    def row(name: str) -> dict[str, Any]:
        choices = {"text": ["yes", "no"], "label": ["A", "B"]}
        return {"id": name, "question": f"{name}?", "choices": choices, "answerKey": "A"}

    easy = {"train": [row(f"e{n}") for n in range(3)], "test": [row("e3")]}
    hard = {"train": [row(f"h{n}") for n in range(9)]}
    with HubServer({"hf_alice": "alice", "hf_bob": "bob"}) as running:
        running.add_rows(QUIZ, {"easy": easy, "hard": hard}, license_id="mit")
        two = {"default": {"train": [{"n": 1}, {"n": 2}]}}
        running.add_rows(PRIVATE, two, private=True)
        running.add_rows(GATED, two, gated=True, granted=("bob",))
        yield running


def test_ranges_of_a_file(hub: HubServer) -> None:
    data = hub.repo(QUIZ).head.files["hard/train.parquet"].data
    url = f"{hub.url}/datasets/{QUIZ}/resolve/main/hard/train.parquet"
    size = len(data)
    for asked, start, stop in (
        ("0-3", 0, 4),
        (f"{size - 4}-", size - 4, size),
        ("-9", size - 9, size),
    ):
        request = urllib.request.Request(url, headers={"Range": f"bytes={asked}"})
        with urllib.request.urlopen(request) as reply:
            assert (reply.status, reply.read()) == (206, data[start:stop])
            assert reply.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{size}"
    request = urllib.request.Request(url, headers={"Range": f"bytes={size}-"})
    with pytest.raises(urllib.error.HTTPError, match="416"):
        urllib.request.urlopen(request)


def test_a_listing_has_pages(hub: HubServer) -> None:
    hub.add_repo("org/many", {f"f{n:04}": b"x" for n in range(1500)})
    pages: list[list[str]] = []
    url: str | None = f"{hub.url}/api/datasets/org/many/tree/main?recursive=True"
    while url:
        with urllib.request.urlopen(url) as reply:
            pages.append([entry["path"] for entry in json.load(reply)])
            link = reply.headers.get("Link", "")
        url = link.partition(">")[0].removeprefix("<") or None
    assert [len(page) for page in pages] == [1000, 501]
    listed = [path for page in pages for path in page]
    assert listed == [".gitattributes", *(f"f{n:04}" for n in range(1500))]


def run_check(name: str, environment: dict[str, str]) -> None:
    """Run one of `hub_client_checks` with the real clients."""
    command = [sys.executable, "-m", "tests.support.hub_client_checks", name]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_huggingface_hub_speaks_to_the_hub(hub: HubServer, tmp_path: Path) -> None:
    run_check("hub_files", hub.client_env(tmp_path, token="hf_alice"))
    paths = [(entry.method, entry.path) for entry in hub.log if entry.method == "PUT"]
    assert len(paths) == len(set(paths)), "an LFS object went up twice"
    assert hub.repo("alice/made").head.author == "alice"


@pytest.mark.exhaustive
def test_datasets_speaks_to_the_hub_and_then_to_its_cache(hub: HubServer, tmp_path: Path) -> None:
    environment = hub.client_env(tmp_path, token="hf_alice") | {"USE_TORCH": "0"}
    run_check("datasets_online", environment)
    assert any(entry.range for entry in hub.log), "streaming did not ask for a range"
    assert any(entry.status == 0 for entry in hub.log), "no connection was dropped"
    hub.stop()
    run_check("offline", environment | {"HF_HUB_OFFLINE": "1"})


def test_hub_as_a_process_serves_a_folder(tmp_path: Path) -> None:
    (tmp_path / "org__set" / "main").mkdir(parents=True)
    (tmp_path / "org__set" / "main" / "train.jsonl").write_text('{"n": 1}\n')
    arguments = ("--data-root", str(tmp_path), "--token", "t=alice", "--private", "org/set")
    with spawn("hub_server", *arguments, "--token", "o=org") as url:
        info = f"{url}/api/datasets/org/set"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(info)
        request = urllib.request.Request(info, headers={"Authorization": "Bearer o"})
        with urllib.request.urlopen(request) as reply:
            card = json.load(reply)["cardData"]
        assert card["configs"][0]["data_files"] == [
            {"split": "train", "path": ["main/train.jsonl"]}
        ]
        assert [entry["status"] for entry in get(f"{url}/_log")] == [401, 200]
        post(f"{url}/_fault", {"method": "*", "path": "whoami", "status": 500, "nth": 2})
        for status in ("401", "500", "401"):
            with pytest.raises(urllib.error.HTTPError, match=status):
                get(f"{url}/api/whoami-v2")
