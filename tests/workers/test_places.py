"""Where workers are started: each place starts `convbench work` and nothing else."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from convbench.cli import app
from convbench.errors import MissingDependency, RunError, SpecError, UsageError
from convbench.options.declare import as_words
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.spread import WorkOptions, addresses
from convbench.store.claims import listed
from convbench.workers.on import Crew, place_of
from tests.rollout.cli import finish, start

from .crew import said


def crew(run: Path, **more: object) -> Crew:
    words = ("/runs/big set", "--quiet", "--api-base=http://a/v1?k='x'")
    return Crew(run=run, words=words, count=3, **more)  # type: ignore[arg-type]


def test_places_are_read() -> None:
    assert (place_of("local:4").count, place_of("ray").address) == (4, None)
    assert place_of("ray:10.0.0.1:6379").address == "10.0.0.1:6379"
    for wrong in ("nowhere", "local:", "local:x", "slurm:0", "k8s:gpu", "../ray"):
        with pytest.raises(UsageError, match="--on"):
            place_of(wrong)


def test_a_workers_words_are_what_a_user_would_type() -> None:
    options = WorkOptions(
        run=Path("runs/a b"), rate=2.5,
        calls=CallOptions(api_base="http://h/v1", concurrency=7, quiet=True, devices=("a=1",)),
        specs=SpecOptions(folders=(Path("x"), Path("y"))),
    )  # fmt: skip
    assert as_words(options) == [
        "runs/a b", "--rate=2.5", "--api-base=http://h/v1", "--concurrency=7", "--devices=a=1",
        "--quiet", "--specs=x", "--specs=y",
    ]  # fmt: skip


def test_the_manifest_of_an_indexed_job(tmp_path: Path) -> None:
    place = place_of("k8s:3")
    text = place.launcher.written(Crew(tmp_path / "My_Run", (str(tmp_path / "My_Run"), "-q"), 3))
    found = yaml.safe_load(text)
    assert (found["kind"], found["metadata"]["name"]) == ("Job", "convbench-my-run")
    spec = found["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    container = spec["template"]["spec"]["containers"][0]
    assert container["command"] + container["args"] == ["convbench", "work", "/work/My_Run", "-q"]
    with pytest.raises(RunError, match="starts nothing; expected --dry-run"):
        place.launcher.start(Crew(tmp_path, (), 3))


def test_the_script_is_a_shells_and_quotes_what_it_is_told(tmp_path: Path) -> None:
    text = place_of("slurm:3").launcher.written(crew(tmp_path / "r"))
    script = tmp_path / "script"
    script.write_text(text)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "#SBATCH --array=0-2\n" in text
    line = next(line for line in text.splitlines() if line.startswith("srun"))
    told = subprocess.run(
        ["bash", "-c", line.replace("srun --ntasks=1", "printf '%s\\n'").removesuffix(" &")],
        capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    assert told[:-1] == [sys.executable, "-m", "convbench", "work", *crew(tmp_path).words]


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.sh"
    own.write_text("#SBATCH -A grant\nx=(1 2); echo ${#x[@]} {# {% not ours %}\n{{ command }}\n")
    text = place_of("slurm").launcher.written(crew(tmp_path, template=own))
    assert "${#x[@]} {# {% not ours %}" in text
    assert "-m convbench work" in text
    for wrong, words in (("{{ evil }}", "expected one of"), ("echo hi", "names no"),
                         ("{{ command", "expected one of")):  # fmt: skip
        own.write_text(wrong)
        with pytest.raises(SpecError, match=words):
            place_of("slurm").launcher.written(crew(tmp_path, template=own))


SBATCH = """#!{python}
# A stand-in: starts the tasks of an array as processes, and forgets them.
import os, re, subprocess, sys
script = sys.argv[-1]
last = int(re.search(r"--array=0-(\\d+)", open(script).read())[1])
pids = []
for task in range(last + 1):
    one = subprocess.Popen(["bash", script], env={{**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           start_new_session=True)
    pids.append(one.pid)
open({state!r}, "w").write(" ".join(map(str, pids)))
print("4711;cluster")
"""
SQUEUE = """#!{python}
import os
for pid in open({state!r}).read().split():
    try:
        if open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] != "Z":
            print(f"4711_0 {{pid}} R")
    except OSError:
        pass
"""


def test_a_build_on_a_stand_in_of_slurm(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    state = str(tmp_path / "state")
    srun = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("srun", srun)):
        file = programs / name
        file.write_text(text.format(python=sys.executable, state=state) if name != "srun" else text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    extra = {"PATH": f"{programs}:{os.environ['PATH']}", "CONVBENCH_SLURM_LOOK_S": "0.2"}
    command = ("build", "demo", "--tasks", "6", "--samples", "1", "--model", "scripted:policy",
               "--run", "run", "--on", "slurm:2", "--shards", "4")  # fmt: skip
    done = finish(start(tmp_path, *command, extra=extra), 240)
    assert done.code == 0, done.err
    assert len(said(tmp_path / "run")) == 6
    assert listed(tmp_path / "run").finished
    assert "#SBATCH" in (tmp_path / "run" / "shards" / "workers.sbatch").read_text()


def test_without_the_scheduler_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match=r"sbatch.*--dry-run"):
        place_of("slurm").launcher.start(crew(tmp_path))


def test_a_dry_run_tells_what_it_will_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["build", "demo", "--tasks", "40", "--samples", "50000", "--temperatures", "0.7",
             "--model", "openai/gpt-4o-mini", "--shards", "1000", "--on", "k8s:100", "--dry-run",
             "--json", "--run", "big"]  # fmt: skip
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["result"]
    assert found["estimate"]["conversations"] == 2_000_000
    foreseen = found["foreseen"]
    assert (foreseen["workers"], foreseen["shards"]) == (100, 1000)
    calls = found["estimate"]["calls"]
    assert foreseen["calls_a_minute"] * 60 * foreseen["hours"] == pytest.approx(calls, rel=0.05)
    assert foreseen["rates_of"].startswith("assumed")
    assert yaml.safe_load(foreseen["written"])["kind"] == "Job"
    assert not (tmp_path / "big").exists()


def test_several_addresses_are_told_apart() -> None:
    assert addresses("http://a/v1,http://b/v1") == ("http://a/v1", "http://b/v1")
    assert addresses(None) == ()
