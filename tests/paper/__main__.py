"""`make paper`: the paper in miniature, unattended, killed twice and gone on with.

    python -m tests.paper [--folder DIR] [--questions N] [--only NAME …] [--kills N] [--seed N]

All tables of the paper (1 to 21) by one command, `convbench experiment paper`, from a clean folder:
a policy of a few million random weights, every task's rows from a local Hub, a scripted judge over
HTTP and the judge `rules`. While it runs it is killed (SIGKILL) at random moments, and started
again by the same command, to the report. Then each of the experiments that make it up, by itself,
and some tables by the rules of the printed ones.

The numbers mean nothing: the policy is noise and the judge draws its scores. What is tried is that
the machinery starts, goes on and ends.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from convbench.store import Run
from tests.helpers.cli import COMMAND, ROOT
from tests.paper.policy import made as policy
from tests.paper.rows import place, serve
from tests.support.chat.plan import Plan
from tests.support.hub_server import HubServer
from tests.support.provider import Provider

NAMES = (
    "paper",
    "paper-clarifying",
    "length",
    "size",
    "size-trajectories",
    "judges",
    "paper-as-printed",
)
TABLES = 21
HEADER = """\
The paper in miniature. Its numbers mean nothing: a policy of {weights:,} random weights, a judge
that draws its scores, {questions} questions a task. What is tried is the machinery.
"""
ALIASES = """models:
  mini-judge: {ref: hosted_vllm/judge, input_per_million: 0.1, output_per_million: 0.4}
"""


SIZES = {
    True: {"per_task.arc.count": 232, "per_task.arc.sets.task.sample.train": 0.97},
    False: {"size.rows": "[18, 36, null]"},
}
"""Real rows of ARC are enough for the sizes of Tables 20 and 21; of excerpts smaller ones are
taken."""


PRINTED = "paper-as-printed"
FEWER = {"also": "[]", "tasks": "[arc, sciqa, sciq]", "modes": "[thinking]",
         "learners": "[base, swift, star-gate, dpo]"}  # fmt: skip
"""Of the paper by the rules of its printed tables: what differs from the paper by the others is
tried on a few of its tables, for each of its replies has 128 tokens."""


@dataclass
class Miniature:
    """One go: where it lies, what it asks for, and what was seen."""

    folder: Path
    questions: int
    dice: random.Random
    env: dict[str, str] = field(default_factory=dict)
    real: bool = True

    def words(self, name: str) -> list[str]:
        """Return the command that does an experiment."""
        count = self.questions if self.real else "all"
        sets = {
            "model": "local:policy", "judges": "[mini-judge, rules]", "count": count,
            "max_tokens": 24,
            "per_task.cosql.sets.task.source.file": self.env["COSQL"],
            "per_task.mmlu.sets.task.source.splits": "[dev, test]",
            **SIZES[self.real],
            "recipe_sets.all.launch": "none", "recipe_sets.all.fit.max_steps": 2,
            "recipe_sets.all.fit.batch_size": 2, "recipe_sets.all.fit.accumulation": 2,
            "recipe_sets.all.fit.precision": "fp32",
            "recipe_sets.all.fit.gradient_checkpointing": "false",
        }  # fmt: skip
        if name not in ("paper", "size"):
            sets.pop("size.rows", None)
        if name == "size-trajectories":
            sets = {key: value for key, value in sets.items() if key not in SIZES[self.real]}
            sets["rows"] = "[14, 18]"
        if name == PRINTED:
            not_here = ("max_tokens", *SIZES[self.real])  # it has a limit of its own
            sets = {key: value for key, value in sets.items() if key not in not_here} | FEWER
        typed = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        return [*COMMAND, "experiment", name, *typed, "--timeout", "60"]

    def start(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a command in the folder, its output at the end of a file."""
        with log.open("ab") as file:
            return subprocess.Popen(words, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                    stdout=file, stderr=subprocess.STDOUT)  # fmt: skip

    def done(self, name: str) -> list[dict[str, object]]:
        """Return the steps that an experiment recorded."""
        file = self.folder / "runs" / "experiments" / name / "steps.jsonl"
        if not file.exists():
            return []
        return [orjson.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]

    def plan(self, name: str) -> None:
        """Ask for the plan: all that is missing would be told here."""
        log = self.folder / f"{name}.plan.txt"
        code = self.start(*self.words(name), "--dry-run", log=log).wait()
        text = log.read_text()
        print(text[text.find("cell  ") :] if code == 0 else text, flush=True)
        if code:
            raise SystemExit(f"{name}: the plan ended with {code}")

    def go(self, name: str, kills: int) -> int:
        """Do an experiment, killed so many times at random moments; return its exit code."""
        log = self.folder / f"{name}.log.txt"
        total = 10
        for number in range(kills):
            process = self.start(*self.words(name), log=log)
            until = len(self.done(name)) + self.dice.randint(2, total)
            while process.poll() is None and len(self.done(name)) < until:
                time.sleep(0.2)
            time.sleep(self.dice.uniform(0, 4))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
                print(f"  {name}: kill {number + 1} after {len(self.done(name))} steps", flush=True)
        return self.start(*self.words(name), log=log).wait()

    def ended(self, name: str, code: int) -> list[str]:
        """Return what is not as it must be."""
        wrong = [] if code == 0 else [f"{name}: exit code {code}"]
        last = {(str(one["address"]), str(one["mark"])): one for one in self.done(name)}
        wrong += [f"{name}: {one['address']}: {one['state']}: {one['said']}"
                  for one in last.values() if one["state"] != "done" or one["said"]]  # fmt: skip
        wrong += self._twice(name)
        pages = self.folder / "runs" / "experiments" / name / "report"
        missing = [
            form for form in ("html", "tex", "md") if not (pages / f"report.{form}").exists()
        ]
        wrong += [f"{name}: no report.{form}" for form in missing]
        if not missing:
            wrong += self._read(name, (pages / "report.md").read_text())
        cells = len({address.partition("/")[0] for address, _ in last})
        print(f"  {name}: {cells} cells, {len(last)} steps, {len(wrong)} wrong", flush=True)
        return wrong

    def _read(self, name: str, text: str) -> list[str]:
        """Return what is wrong in the report: tables that are not there, other settings."""
        wrong = []
        here = {int(n) for n in re.findall(r"^### Table (\d+), with our results$", text, re.M)}
        print(f"  {name}: tables {sorted(here)}", flush=True)
        if name == "paper" and here != set(range(1, TABLES + 1)):
            wrong.append(f"{name}: {len(here)} of {TABLES} tables")
        if not here:
            wrong.append(f"{name}: found no table")
        for file in (self.folder / "runs" / "experiments" / name).glob("*/run.json"):
            made = Run.open(file.parent).manifest
            limit = made.cast[made.protocol.policy].sampling.max_tokens
            if name == PRINTED and (made.protocol.framing, limit) != ("llama-2", 128):
                wrong.append(f"{file}: framing {made.protocol.framing}, {limit} tokens a reply")
        return wrong

    def _twice(self, name: str) -> list[str]:
        """Return the conversations that were had twice."""
        found = []
        for file in (self.folder / "runs" / "experiments" / name).rglob("conversations.jsonl"):
            lines = [orjson.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]
            keys = Counter(line["key"] for line in lines if line["failure"] is None)
            found += [f"{file}: {key} twice" for key, count in keys.items() if count > 1]
        return found


def main() -> None:
    """Do it all; exit code 1 where something is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.paper", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--folder", type=Path, help="a clean one; kept (else made, and removed)")
    parser.add_argument("--questions", type=int, default=8, help="a task")
    parser.add_argument("--only", action="append", choices=NAMES, help="these experiments alone")
    parser.add_argument("--kills", type=int, default=2, help="of the first experiment")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="paper-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    wrong = _all(Miniature(folder.resolve(), asked.questions, random.Random(asked.seed)),
                 asked.only or NAMES, asked.kills)  # fmt: skip
    print(f"{(time.monotonic() - began) / 60:.1f} minutes, {len(wrong)} wrong")
    for line in wrong:
        print(f"wrong: {line}")
    if not asked.folder and not wrong:
        shutil.rmtree(folder)
    sys.exit(bool(wrong))


def _all(mini: Miniature, names: tuple[str, ...] | list[str], kills: int) -> list[str]:
    (mini.folder / "specs").mkdir(exist_ok=True)
    (mini.folder / "specs" / "models.yaml").write_text(ALIASES)
    weights = policy(mini.folder / "policy")
    rows, mini.real = place(mini.folder)
    print(HEADER.format(weights=weights, questions=mini.questions if mini.real else "few"))
    print(f"rows: {rows} ({'real' if mini.real else 'excerpts of our own'}); runs: {mini.folder}")
    wrong: list[str] = []
    with HubServer() as hub, Provider(Plan(context_tokens=None)) as judge:
        serve(hub, rows)
        mini.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("OPENAI")},
            **hub.client_env(mini.folder / "hub"), "PYTHONPATH": str(ROOT), "COLUMNS": "160",
            "OMP_NUM_THREADS": "1", "HOSTED_VLLM_API_BASE": judge.api_base,
            "CONVBENCH_CACHE": str(mini.folder / "cache"),
            "COSQL": str(rows / "cosql" / "cosql"),
        }  # fmt: skip
        for number, name in enumerate(names):
            mini.plan(name)
            wrong += mini.ended(name, mini.go(name, kills if number == 0 else 0))
    return wrong


if __name__ == "__main__":
    main()
