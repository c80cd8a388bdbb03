"""Keys that a provider's error or reply repeats, in every shape: none reaches a record or an error.

A local server plays a provider that tells a caller its own key back; real builds and judgements
write what they write.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from aiohttp import web

from convbench.errors import ConvbenchError
from convbench.schema import Failure
from convbench.store import Run
from convbench.util import redact
from tests.helpers import stages
from tests.helpers.runs import conversation, example, failed, verdict, write_run
from tests.support.serve import LocalServer, json_reply

HEX, WORD = "9f8b7c6d5e4f3a2b1c0d", "aB3dE5gH7jK9mN1pQ3rS"
KEYS = {
    "openai": f"sk-{WORD}{WORD}", "openai-project": f"sk-proj-{WORD}-{WORD}_{WORD}",
    "anthropic": f"sk-ant-api03-{WORD}-{WORD}", "openrouter": f"sk-or-v1-{HEX}{HEX}",
    "google": f"AIzaSy{WORD}{WORD[:13]}", "groq": f"gsk_{WORD}{WORD}", "xai": f"xai-{WORD}{WORD}",
    "hugging-face": f"hf_{WORD}{WORD[:14]}", "replicate": f"r8_{WORD}{WORD[:17]}",
    "together": (HEX * 4)[:64], "azure": (HEX * 2)[:32], "mistral": (WORD * 2)[:32],
    "cohere": WORD * 2, "fireworks": f"fw_{WORD}{WORD[:4]}", "perplexity": f"pplx-{WORD}{WORD}",
    "nvidia": f"nvapi-{WORD}{WORD}", "databricks": f"dapi{HEX}{HEX[:12]}-2",
    "aws-secret": "wJa/rXUtn+FEMI/K7MD3NG/bPxRfi+CYEXAMPLE1", "voyage": f"pa-{WORD}-{WORD}",
    "cerebras": f"csk-{WORD.lower()}{HEX}", "jwt": f"eyJhbGciOi{WORD}.eyJzdWIi{WORD}.{WORD}",
    "gateway": 'kq"7\\z \u00fc-' + WORD,
}  # fmt: skip
KEY = KEYS["openai-project"]


def wrapped(key: str) -> str:
    """As a terminal or a mail breaks a long word."""
    return "\n    ".join(textwrap.wrap(key, 17))


def basic(key: str, user: str = "api") -> str:
    """HTTP basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{key}".encode()).decode()


SHAPES: dict[str, Callable[[str], str]] = {
    "plain": lambda key: key,
    "header": lambda key: f"{{'Authorization': 'Bearer {key}', 'x': '1'}}",
    "body": lambda key: json.dumps({"api_key": key, "n": 1}),
    "body-in-body": lambda key: json.dumps(json.dumps({"api_key": key})),
    "address": lambda key: f"POST https://h.example/v1?key={key}&alt=sse",
    "address-quoted": lambda key: f"GET https://h.example/v1?key={quote(key, safe='')}",
    "form": lambda key: f"grant=x&token={quote_plus(key)}",
    "user": lambda key: f"https://api:{quote(key, safe='')}@h.example/v1",
    "basic": basic,
    "basic-empty": lambda key: basic(key, ""),
    "basic-longer": lambda key: basic(key, "me") + basic(key, "you"),
    "base64-url": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "wrapped": wrapped,
    "wrapped-escaped": lambda key: wrapped(key).replace("\n", "\\n"),
    "cut": lambda key: "x" * 280 + " " + key,
    "early-cut": lambda key: "x" * (300 - len(key)) + key,
    "twice": lambda key: f"{key},{key}",
}


class Teller(LocalServer):
    """A provider that says `said`, as an error of `status` or as a reply."""

    said = ""
    status = 400

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer every call alike."""
        await request.content.read()
        if self.status == 200:
            message = {"role": "assistant", "content": self.said}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return json_reply({"choices": [choice], "usage": {}})
        text = f"content_filter: {self.said}"
        return json_reply({"error": {"message": text}}, self.status)


@pytest.fixture(scope="module")
def teller() -> Iterator[Teller]:
    """The provider."""
    with Teller() as server:
        yield server


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of the test's own."""
    monkeypatch.chdir(tmp_path)


def held(folder: Path, key: str) -> list[str]:
    """Files that hold a key, a form of it, or a third of it in a row (an AWS example's own words
    are 13 signs long)."""
    third = max(12, len(key) // 3)
    parts = {key[i : i + third] for i in range(len(key) - third + 1)}
    parts |= {quote(key, safe=""), json.dumps(key)[1:-1]}
    for lead in ("", "x", "xx"):
        code = base64.b64encode(f"{lead}{key}".encode()).decode()
        parts |= {code[i : i + 16] for i in range(4, len(code) - 24)}
    return [
        f"{path.name}: {part}"
        for path in folder.rglob("*")
        if path.is_file()
        for part in parts
        if part in path.read_text(errors="replace")
    ]


def talked(teller: Teller, run: Path) -> None:
    """Build two conversations with the teller as policy."""
    try:
        built = stages.build_result(
            "demo",
            protocol="direct",
            tasks=2,
            samples=1,
            split="all",
            model="openai/any",
            run=run,
            api_base=f"{teller.url}/v1",
        ).built
    except ConvbenchError as error:
        (run / "error.txt").write_text(str(error))
        return
    assert built
    (run / "error.txt").write_text(f"{list(built.failures)} {built.jobs.stopped}")


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_an_error_repeats(
    name: str, teller: Teller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value in use, whatever it looks like, in a failed conversation's record."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-called-with-another-1")
    monkeypatch.setenv(f"{name.upper().replace('-', '_')}_API_KEY", KEYS[name])
    teller.said, teller.status = f"I got {KEYS[name]} from you", 400
    talked(teller, tmp_path / "run")
    text = (tmp_path / "run" / "conversations.jsonl").read_text()
    assert "I got" in text
    assert held(tmp_path / "run", KEYS[name]) == []


@pytest.mark.parametrize(
    ("shape", "status"),
    [(shape, 400) for shape in SHAPES] + [(s, 200) for s in SHAPES if not s.startswith("wrapped")],
)
def test_every_shape_of_a_key(
    shape: str, status: int, teller: Teller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an error and, but where a line break splits it, in what a model says."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    teller.said, teller.status = SHAPES[shape](KEY), status
    talked(teller, tmp_path / "run")
    assert (tmp_path / "run" / "conversations.jsonl").stat().st_size
    assert held(tmp_path / "run", KEY) == []


@pytest.mark.parametrize("shape", ["plain", "address-quoted", "basic", "wrapped"])
def test_a_judge_s_failures(
    shape: str, teller: Teller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verdicts, the raw reply kept with them, and the journal."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    run = write_run(tmp_path / "run", count=1, verdicts=[])
    for status in (400, 200):
        teller.said, teller.status = SHAPES[shape](KEY), status
        done = stages.judge_result(run.path, "openai/any", api_base=f"{teller.url}/v1")
        assert done.summaries[0].failed_count == 2
        assert not any(KEY in line for line in done.summaries[0].failures)
    if shape != "wrapped":
        assert held(run.path, KEY) == []
    assert all(v.failure for v in Run.open(run.path).verdicts())


LINES = {
    "bearer": f"Authorization: Bearer {WORD}{HEX}", "quoted": f"'authorization': 'bearer {WORD}'",
    "basic": f"Authorization: {basic(WORD)}", "x-api-key": f"x-api-key: {WORD}{HEX}",
    "address": f"https://h/v1beta?key={WORD}{WORD}", "json": f'{{"api_key": "{WORD}{HEX}"}}',
    "provided": f"Incorrect API key provided: {WORD}{HEX}.", "user": f"http://me:{WORD}@h/v1",
    "sig": f"https://s/x?X-Amz-Signature={HEX}{HEX}&a=1", "access": f"access_token={WORD}",
    "anthropic": f"key sk-ant-api03-{WORD}{WORD} is", "google": f"AIzaSy{WORD}{WORD[:13]}",
    "github": f"ghp_{WORD}{WORD}", "oauth": f"ya29.a0{WORD}{WORD}", "jwt": KEYS["jwt"],
    "aws": "AKIAABCDEFGHIJ234567 signed", "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow",
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_keys_of_nobody_we_know(name: str) -> None:
    """What stands where a key stands, or looks like one, is no part of an error."""
    said = redact.redact_error(LINES[name])
    assert WORD[:10] not in said
    assert HEX[:10] not in said
    assert "AKIAABC" not in said
    assert "[key]" in said
    assert base64.b64encode(f"api:{WORD}".encode()).decode()[8:] not in said


@pytest.mark.parametrize("text", [
    "openai/gpt-4o-mini: HTTP 429: slow down (after 8 tries)",
    "example demo-12 of conversation 20260101-000000-abcdef01-q0/0: no readable reply",
    "HTTP 400: max_tokens: found 100000; expected at most 4096", "token: 12", "key: question",
    "set the environment variable OPENAI_API_KEY", "the key in OPENAI_API_KEY was refused",
    "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "http://127.0.0.1:8000/v1/chat/completions", "local:pocket", "no route /v1/models here",
    "--set task.key=hidden.reference_solution", "a risk-averse sk-learn",
])  # fmt: skip
def test_ordinary_words_stay(text: str) -> None:
    """Ids, names and hashes are no keys."""
    assert redact.redact_error(text) == text


@pytest.mark.parametrize("value", ["EMPTY", "none", "not-needed", "dummy", "token", "x" * 7,
                                   "/home/me/credentials.json", "http://h/v1", "4096"])  # fmt: skip
def test_a_value_that_is_no_key_blots_nothing(value: str) -> None:
    """Placeholders that servers without keys are given, and paths."""
    assert (
        redact.keys_in_use({"OPENAI_API_KEY": value, "GIT_AUTHOR_NAME": "Ada Lovelace 1815"}) == {}
    )


def test_no_path_and_no_traceback_in_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception's words name a file by its last part, and stand on one line."""
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "ada"))
    try:
        (tmp_path / "home" / "ada" / "deep" / "x.txt").read_text()
    except OSError:
        import traceback

        text = traceback.format_exc()
    failure = Failure.from_error(RuntimeError(text))
    assert failure.kind == "RuntimeError"
    assert failure.message.startswith("FileNotFoundError: ")
    assert "x.txt" in failure.message
    for word in (str(tmp_path), "ada", "Traceback", "\n", "line "):
        assert word not in failure.message


def test_old_failures_are_published_without_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of a version that kept more: addresses, paths and keys go before they leave."""
    monkeypatch.setenv("ACME_API_KEY", KEY)
    from convbench.schema import Failure as Kept

    said = f"cannot connect to http://gpu7.corp:8000/v1?x=1 with {KEY}: /home/ada/.config/x.json"
    lost = failed(0, 1, failure=Kept(kind="Unreachable", message=said))
    talk = conversation(0)
    score = verdict(talk, None, failure=Kept(kind="Unreachable", message=said))
    run = write_run(
        tmp_path / "run", examples=[example(0)], conversations=[talk, lost], verdicts=[score]
    )
    stages.publish(run, "me/set", folder=tmp_path / "set")
    for path in (tmp_path / "set").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [w for w in (b"gpu7", b"ada", KEY.encode()) if w in data], path
    assert (
        b"cannot connect to [address]"
        in (tmp_path / "set" / "run" / "conversations.jsonl").read_bytes()
    )


def test_a_dotenv_above_is_not_read(tmp_path: Path) -> None:
    """Nor one in the working folder: keys come from the environment, as the user set it."""
    (tmp_path / "inner").mkdir()
    for place in (tmp_path, tmp_path / "inner"):
        (place / ".env").write_text("ACME_API_KEY=from-a-file\nOPENAI_API_BASE=http://evil/v1\n")
    code = (
        "from convbench.models.litellm_model import load_litellm; load_litellm(); import os;"
        "print([k for k in ('ACME_API_KEY', 'OPENAI_API_BASE') if k in os.environ])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "inner", capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stderr[-500:]


@pytest.mark.parametrize("address", ["http://ada:pw12345@127.0.0.1:{}/v1", "{}?token=pw12345",
                                     "{}#pw12345"])  # fmt: skip
def test_a_secret_in_an_address_is_not_recorded(
    address: str, teller: Teller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--api-base` with a user, a query or a fragment: the run keeps the rest."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    teller.said, teller.status = "The answer is B", 200
    port = teller.url.rpartition(":")[2]
    base = address.format(port if "@" in address else f"{teller.url}/v1")
    stages.build(
        "demo",
        protocol="direct",
        tasks=1,
        samples=1,
        model="openai/any",
        run=tmp_path / "run",
        api_base=base,
    )
    stages.judge_result(tmp_path / "run", "openai/any", api_base=base)
    assert Run.open(tmp_path / "run").manifest.cast["assistant"].api_base == f"{teller.url}/v1"
    assert not [p for p in (tmp_path / "run").rglob("*") if p.is_file()
                and "pw12345" in p.read_text()]  # fmt: skip
