"""Who starts shards: each launcher starts `convbench build --shard I/N` and nothing else."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from convbench.errors import MissingDependency, RunError, SpecError, UsageError
from convbench.options.build import BuildOptions
from convbench.options.declare import as_words
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.spread import ShardOptions, parse_addresses, shard_index
from convbench.shards.job import ShardJob
from convbench.shards.launchers import LAUNCHERS, parse_target
from convbench.shards.scripts import array_ranges
from convbench.store.shard_attempts import shard_states
from tests.helpers.cli import COMMAND, convbench, environment, finish, get, start, until
from tests.support.app import app
from tests.support.serve import spawn

from . import slurm
from .fire import booked, doubled, quiet, said

WORDS = ("build", "--run=/runs/big set", "--quiet", "--api-base=http://a/v1?k='x'")


def job(run: Path, **more: object) -> ShardJob:
    facts = {"words": WORDS, "count": 8, "indices": (0, 1, 2, 5), "at_once": 3} | more
    return ShardJob(run=run, **facts)  # type: ignore[arg-type]


def test_where_shards_are_worked_on_is_read() -> None:
    assert (parse_target("local:4").count, parse_target("ray").address) == (4, None)
    assert parse_target("ray:10.0.0.1:6379").address == "10.0.0.1:6379"
    for wrong in ("nowhere", "local:", "local:x", "slurm:0", "k8s:gpu", "../ray"):
        with pytest.raises(UsageError, match="--on"):
            parse_target(wrong)


def test_a_shard_is_named_by_its_index_and_their_number() -> None:
    assert shard_index("7/200") == (7, 200)
    for wrong in ("7", "200/200", "-1/3", "1/0", "٣/٥", "a/b", "1/2/3", "0x1/2"):
        with pytest.raises(UsageError, match=r"--shard .*: expected I/N"):
            shard_index(wrong)


def test_processes_here_have_each_their_part_of_the_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", "4x80")
    envs: list[str | None] = []

    class Begun:
        """A process that ended well."""

        def __init__(self, *_: object, env: dict[str, str], **__: object) -> None:
            envs.append(env.get("CUDA_VISIBLE_DEVICES"))

        def poll(self) -> int | None:
            return 0 if len(envs) > 2 else None

    monkeypatch.setattr("convbench.shards.launchers.subprocess.Popen", Begun)

    def visible(**more: object) -> list[str | None]:
        envs.clear()
        started = LAUNCHERS["local"].start_shards(job(tmp_path, **more))
        while started.poll_shards():
            pass
        return list(envs)

    assert visible() == ["0,3", "1", "2", "0,3"], "the fourth has those of one that ended"
    assert visible(at_once=4) == ["0", "1", "2", "3"]
    assert visible(indices=tuple(range(6)), at_once=6) == ["0", "1", "2", "3", "0", "1"]
    assert visible(words=(*WORDS, "--devices=policy=0")) == [None] * 4, "as the user says"
    monkeypatch.delenv("CONVBENCH_SIMULATED_DEVICES")
    assert visible() == [None] * 4


def test_the_words_of_a_shard_are_what_a_user_would_type() -> None:
    options = BuildOptions(
        run=Path("runs/a b"), spread=ShardOptions(rate=2.5),
        calls=CallOptions(api_base="http://h/v1", concurrency=7, quiet=True, devices=("a=1",)),
        specs=SpecOptions(folders=(Path("x"), Path("y"))),
    )  # fmt: skip
    assert set(as_words(options)) == {
        "--run=runs/a b", "--rate=2.5", "--api-base=http://h/v1", "--concurrency=7",
        "--devices=a=1", "--quiet", "--specs=x", "--specs=y",
    }  # fmt: skip
    assert job(Path()).shard_command(5) == [*WORDS, "--shard=5/8"]


def test_the_manifest_of_an_indexed_job(tmp_path: Path) -> None:
    run = tmp_path / "My_Run"
    words = ("build", f"--run={run}", "--api-base=http://a/$X", "-q")
    text = LAUNCHERS["k8s"].render_script(job(run, words=words))
    manifest = yaml.safe_load(text)
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Job", "convbench-my-run")
    spec = manifest["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 8, 3)
    container = spec["template"]["spec"]["containers"][0]
    assert container["command"] + container["args"] == [
        "convbench", "build", "--run=/work/My_Run", "--api-base=http://a/$$X", "-q",
        "--shard=$(JOB_COMPLETION_INDEX)/8",
    ]  # fmt: skip


def test_the_manifest_keeps_to_the_published_schema_of_batch_v1(tmp_path: Path) -> None:
    manifest = yaml.safe_load(LAUNCHERS["k8s"].render_script(job(tmp_path / "run")))
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    manifest["spec"]["completionModes"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.slow
def test_the_command_of_the_manifest_works_on_its_shard(tmp_path: Path) -> None:
    """As a pod of index 0, then of index 1 has it, with the volume where the manifest says."""
    command = ("build", "demo", "--tasks", "6", "--samples", "1", "--model", "scripted:policy",
               "--run", "run", "--shards", "2", "--on", "k8s:2")  # fmt: skip
    assert "starts nothing" in convbench(tmp_path, *command).error
    manifest = yaml.safe_load((tmp_path / "run" / "shards" / "job.yaml").read_text())
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    for index in range(2):
        words = [
            word.replace("$(JOB_COMPLETION_INDEX)", str(index)).replace("/work", str(tmp_path))
            for word in container["args"]
        ]
        assert container["command"] == ["convbench"]
        done = subprocess.run([*COMMAND, *words], cwd=tmp_path, env=environment(), check=True)
        assert done.returncode == 0
        assert shard_states(tmp_path / "run").done_count == index + 1
    assert len(said(tmp_path / "run")) == 6


def test_the_script_is_a_shells_and_quotes_its_words(tmp_path: Path) -> None:
    text = LAUNCHERS["slurm"].render_script(job(tmp_path / "r"))
    script = tmp_path / "script"
    script.write_text(text)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "#SBATCH --array=0-2,5%3\n" in text
    line = next(line for line in text.splitlines() if line.startswith("srun"))
    typed = subprocess.run(
        ["bash", "-c", line.replace("srun --ntasks=1", "printf '%s\\n'").removesuffix(" &")],
        capture_output=True, text=True, check=True, env={"SLURM_ARRAY_TASK_ID": "5"},
    ).stdout.split("\n")  # fmt: skip
    assert typed[:-1] == [sys.executable, "-m", "convbench", *WORDS, "--shard=5/8"]


def test_indices_are_written_as_ranges() -> None:
    assert array_ranges([3]) == "3"
    assert array_ranges([9, 0, 1, 2, 7, 8]) == "0-2,7-9"
    assert array_ranges([0, 2, 4]) == "0,2,4"


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.sh"
    own.write_text("#SBATCH -A grant\nx=(1 2); echo ${#x[@]} {# {% not ours %}\n{{ command }}\n")
    text = LAUNCHERS["slurm"].render_script(job(tmp_path, template=own))
    assert "${#x[@]} {# {% not ours %}" in text
    assert "-m convbench build" in text
    for wrong, words in (("{{ evil }}", "expected one of"), ("echo hi", "names no"),
                         ("{{ command", "expected one of")):  # fmt: skip
        own.write_text(wrong)
        with pytest.raises(SpecError, match=words):
            LAUNCHERS["slurm"].render_script(job(tmp_path, template=own))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_build_on_a_stand_in_of_slurm_that_loses_nodes(tmp_path: Path) -> None:
    """Tasks are killed with all that they started at every stage: before they begin, while they
    make calls, when they end. Each is queued again."""
    extra, kills, draw = slurm.install(tmp_path), 0, random.Random(7)
    cap = 10_000_000
    with spawn("provider") as url:
        command = ["build", "demo", "--tasks", "12", "--samples", "2", "--model", "openai/scripted",
                   "--api-base", f"{url}/v1", "--concurrency", "4", "--run"]  # fmt: skip
        quiet(url)
        alone = convbench(tmp_path, *command, "alone")
        assert alone.code == 0, alone.err
        quiet(url, latency_s=0.25)
        process = start(tmp_path, *command, "run", "--on", "slurm:2", "--shards", "4",
                        "--budget-tokens", str(cap), extra=extra)  # fmt: skip
        stages = [0.05, 0.3, 0.6, 1.0, 1.4, 1.8, 2.4, 3.0, 3.6, 4.2]
        while process.poll() is None and stages:
            if slurm.tasks(tmp_path):
                time.sleep(stages.pop(0))
                if there := slurm.tasks(tmp_path):
                    kills += slurm.lose_node(draw.choice(there))
            time.sleep(0.05)
        done = finish(process, 240)
        assert done.code == 0, done.err
        assert 4 <= kills >= slurm.requeued(tmp_path) >= 3, "one may have ended just before"
        run = tmp_path / "run"
        assert said(run) == said(tmp_path / "alone")
        assert doubled(run) == {}
        stats = get(url, "/_stats")
        assert stats["billed_prompt"] + stats["billed_reply"] <= booked(run) <= cap
        assert stats["repeats"] <= 4 * kills, "only what was in flight is paid again"
    assert shard_states(run).done_count == 4
    assert "#SBATCH --requeue" in (run / "shards" / "shards.sbatch").read_text()
    assert "job 4711" not in done.err


def test_without_the_scheduler_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match=r"sbatch.*--dry-run"):
        LAUNCHERS["slurm"].start_shards(job(tmp_path))
    (tmp_path / "shards").mkdir()
    with pytest.raises(RunError, match="kubectl apply -f"):
        LAUNCHERS["k8s"].start_shards(job(tmp_path))


def test_a_dry_run_tells_what_it_will_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["build", "demo", "--tasks", "40", "--samples", "50000", "--temperatures", "0.7",
             "--model", "openai/gpt-4o-mini", "--shards", "1000", "--on", "k8s:100", "--dry-run",
             "--json", "--run", "big"]  # fmt: skip
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)["result"]
    assert answer["estimate"]["conversations"] == 2_000_000
    foreseen = answer["foreseen"]
    assert (foreseen["workers"], foreseen["shards"]) == (100, 1000)
    calls = answer["estimate"]["calls"]
    assert foreseen["calls_a_minute"] * 60 * foreseen["hours"] == pytest.approx(calls, rel=0.05)
    assert foreseen["rates_of"].startswith("assumed")
    assert yaml.safe_load(foreseen["written"])["kind"] == "Job"
    assert not (tmp_path / "big").exists()


def test_a_rate_is_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["build", "demo", "--tasks", "4", "--model", "scripted:policy", "--shards", "8",
             "--on", "slurm:4", "--rate", "10", "--dry-run", "--json"]  # fmt: skip
    script = json.loads(CliRunner().invoke(app, words).stdout)["result"]["foreseen"]["written"]
    assert "--rate=2.5 " in script
    assert "#SBATCH --array=0-7%4" in script


@pytest.mark.slow
def test_ctrl_c_leaves_the_job_to_slurm_and_says_how_to_end_it(tmp_path: Path) -> None:
    extra = slurm.install(tmp_path)
    with spawn("provider") as url:
        quiet(url, latency_s=0.2)
        process = start(tmp_path, "build", "demo", "--tasks", "6", "--samples", "1", "--model",
                        "openai/scripted", "--api-base", f"{url}/v1", "--run", "run", "--on",
                        "slurm:2", "--shards", "2", extra=extra)  # fmt: skip
        until(lambda: get(url, "/_stats")["calls"] >= 3, process)
        process.send_signal(signal.SIGINT)
        done = finish(process)
        assert done.code == 130
        assert "job 4711 goes on; scancel 4711 ends it" in done.err
        until(lambda: shard_states(tmp_path / "run").done_count == 2, longest=120)
        assert len(said(tmp_path / "run")) == 6


def test_several_addresses_are_told_apart() -> None:
    assert parse_addresses("http://a/v1,http://b/v1") == ("http://a/v1", "http://b/v1")
    assert parse_addresses(None) == ()
