"""Dialogues with thinking, against servers that refuse a history whose reasoning breaks their rule;
killed in the middle and resumed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import Row, write_questions
from tests.helpers.cli import COMMAND, environment, get, post, records, start, until
from tests.support.serve import spawn

KINDS = {
    "deepseek-r1": {"ref": "openai/r1", "replay": "never"},
    "deepseek-v4": {"ref": "openai/v4", "replay": "always"},
    "vllm": {"ref": "hosted_vllm/thinker", "replay": "last"},
    "anthropic": {"ref": "anthropic/claude-thinker", "replay": "signed"},
}
QUESTIONS, SAMPLES, TURNS, CONCURRENCY = 50, 2, 3, 16


def thinking(folder: Path) -> Iterator[Row]:
    """100 dialogues of three turns with each server, killed once half of the calls are made."""
    write_questions(folder / "q.jsonl", QUESTIONS)
    (folder / "specs").mkdir()
    (folder / "specs" / "models.yaml").write_text(json.dumps({"models": KINDS}))
    wanted = QUESTIONS * SAMPLES
    for kind in KINDS:
        with spawn("provider") as url:
            _killed_and_resumed(folder, kind, url, wanted * TURNS // 2)
            stats = get(url, "/_stats")
        found = records(folder / f"run-{kind}" / "conversations.jsonl")
        whole = [one for one in found if one["failure"] is None]
        thought = sum("reasoning" in turn for one in whole for turn in one["turns"])
        refused = sum(n for status, n in stats["status"].items() if status not in ("200", "lost"))
        yield Row(f"{kind}: dialogues lost, calls refused", wanted - len(whole) + refused, "", 0)
        yield Row(f"{kind}: turns without reasoning", wanted * TURNS - thought, "", 0)
        yield Row(f"{kind}: calls made twice", stats["repeats"], "", CONCURRENCY)


def _killed_and_resumed(folder: Path, kind: str, url: str, calls: int) -> None:
    killed_and_resumed(
        folder, kind, url, calls,
        "arc", "--set", "task.source.file=q.jsonl", "--tasks", str(QUESTIONS),
        "--samples", str(SAMPLES),
    )  # fmt: skip


def killed_and_resumed(
    folder: Path, kind: str, url: str, calls: int, *task: str, thinks: bool = True
) -> None:
    """Build with a model of this kind, killed after so many calls, and build again."""
    post(url, "/_config", {"thinks": kind if thinks else None, "latency_s": 0.05})
    where = _where(url)
    arguments = [
        "build", *task, "--mode", "standard", "--model", kind, "--specs", "specs",
        "--run", f"run-{kind}", "--concurrency", str(CONCURRENCY), "--quiet",
    ]  # fmt: skip
    killed = start(folder, *arguments, extra=where)
    until(lambda: get(url, "/_stats")["calls"] >= calls, killed, 600.0)
    killed.kill()
    killed.communicate()
    subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment() | where, check=True,
        capture_output=True,
    )  # fmt: skip


def _where(url: str) -> dict[str, str]:
    names = {"OPENAI": f"{url}/v1", "HOSTED_VLLM": f"{url}/v1", "ANTHROPIC": url}
    bases = {f"{name}_API_BASE": base for name, base in names.items()}
    return bases | {f"{name}_API_KEY": "none" for name in names}
