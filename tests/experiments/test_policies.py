"""Models that an experiment evaluates without training them: refused, planned, priced, run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import PreflightError, SpecError
from convbench.experiments.cells import plan_steps
from convbench.experiments.experiment import ExperimentResult
from convbench.experiments.scheduler import tasks_of
from convbench.models.devices import placement_of
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, devices_as_pairs, parse_devices
from convbench.reports.document import mean_of
from convbench.schema.experiment import ExperimentSpec
from convbench.store import Run
from tests.experiments.ran import ran
from tests.helpers import stages
from tests.helpers.cards import simulate
from tests.helpers.sandbox import needs_wall, renders
from tests.support.chat.plan import Plan
from tests.support.provider import Call, Provider

SPEC: dict[str, Any] = {
    "title": "beside", "tasks": ["demo"], "modes": ["standard"], "model": "scripted:policy",
    "judges": ["rules"], "learners": ["base"], "policies": ["local:pocket"], "count": 6,
    "samples": 2, "temperatures": [0.7], "max_tokens": 24,
}  # fmt: skip
CELL = "demo-standard-seed0"


@pytest.fixture(autouse=True)
def keyless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("policies", "line"),
    [
        ("[nosuch]", r"policy nosuch: no model 'nosuch'; expected .*"),
        ("['scripted:policy']", r".*found scripted:policy, which is the policy itself; .*"),
        ("[pocket,'local:pocket']", r".*found local:pocket, which is the same model as pocket"),
        ("[gpt-4o]", r"policy gpt-4o: .*environment variable OPENAI_API_KEY"),
        ("[openai/x]", r"policy openai/x: .*OPENAI_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_one_is_one_line(tmp_path: Path, policies: str, line: str) -> None:
    (missing,) = ran(tmp_path, SPEC, f"policies={policies}", dry_run=True).plan.missing
    assert re.fullmatch(line, missing), missing
    assert "\n" not in missing
    with pytest.raises(PreflightError):
        ran(tmp_path, SPEC, f"policies={policies}")
    assert not (tmp_path / "r").exists()


def test_a_name_twice_and_a_server_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SpecError, match=r"policies: .*found gpt-4o twice"):
        ran(tmp_path, SPEC, "policies=[gpt-4o,gpt-4o]", dry_run=True)
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")
    lost = "per_task.demo.sets.task.source.rows=nowhere:rows"
    for more in ((), (lost,)):  # also where there are no questions
        told = ran(tmp_path, SPEC, "policies=[hosted_vllm/x]", *more, dry_run=True).plan.missing
        assert any(
            line.startswith("policy hosted_vllm/x: hosted_vllm/x: found no server") for line in told
        )


def test_the_recipes_own_way_is_refused_in_an_experiment(tmp_path: Path) -> None:
    sets = ("learners=[base,seal]", "recipe_sets={seal: {args.others: [gpt-4.1]}}")
    told = ran(tmp_path, SPEC, *sets, dry_run=True).plan.missing
    (line,) = (line for line in told if "args.others" in line)
    assert line.endswith("""named in policies: --set 'policies=["gpt-4.1"]'""")


def test_the_plan_prices_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    plans = [
        ran(tmp_path, SPEC, f"policies={policies}", dry_run=True).plan
        for policies in ("[]", "[gpt-4o]", "[gpt-4o,'local:pocket']")
    ]
    assert [part.step.address for part in plans[2].steps] == [
        f"{CELL}/{step}" for step in ("build", "judge", "eval/gpt-4o", "eval/local-pocket")
    ]
    none, one, two = (plan.total_estimate for plan in plans)
    assert none.usd == 0 < one.usd == two.usd
    assert two.conversations - one.conversations == one.conversations - none.conversations > 0
    assert two.verdicts - one.verdicts == one.conversations - none.conversations


def test_they_stand_beside_the_learners(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    part = ran(tmp_path, SPEC, only=("*/eval/*",))
    assert part.outcomes[0].said == (f"waits for {CELL}/build",)
    result = ran(tmp_path, SPEC, "learners=[base]")
    assert [outcome.state for outcome in result.outcomes] == ["done"] * 3
    parent = Run.open(tmp_path / "r" / CELL)
    (child,) = parent.child_runs()
    assert child.path.name == "local-pocket"
    assert child.manifest.cast["assistant"].model == "local:pocket"
    assert child.manifest.cast["teacher"] == parent.manifest.cast["teacher"]
    assert {v.fingerprint for v in child.verdicts()} == {v.fingerprint for v in parent.verdicts()}
    assert names(result, "results") == ["Base", "local-pocket"]
    assert names(result, "differences") == ["local-pocket"]
    assert not ran(tmp_path, SPEC, dry_run=True).plan.steps


def names(result: ExperimentResult, label: str) -> list[str]:
    """Return the first column of the document's table with this label."""
    assert result.report is not None
    tables = [table for part in result.report.document.parts for table in part.tables]
    (table,) = (table for table in tables if table.name == label)
    return [str(row.cells[0]) for row in table.rows]


def test_the_teachers_model_is_answered_by_the_teachers_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulate(monkeypatch, 6)
    claims, shared = {}, {}
    for name in ("sweet-backend", "sweet-frontend"):
        spec = catalog.load_spec(ExperimentSpec, "experiments", name)
        calls = CallOptions(devices=devices_as_pairs(spec.devices))
        plan = [part for part in plan_steps(spec) if part.step.policy]
        assert [part.step.policy for part in plan] == ["gpt-4o", "llama-3.1-70b"]
        tasks, ways = tasks_of(plan, ExperimentOptions(name, calls=calls))
        claims[name] = [
            sorted(claim for claim in task.placements[0] if claim.startswith("device"))
            for task in tasks
        ]
        ((options,),) = ways[1:]
        devices = parse_devices(options.calls.devices)
        placements = [placement_of(devices, role) for role in ("policy", "teacher")]
        shared[name] = str(placements[0]) == str(placements[1])
    human = [f"device {number}" for number in (1, 2, 3, 4)]
    assert claims == {
        "sweet-backend": [human, human],
        "sweet-frontend": [human, ["device 0", *human, "device 5"]],
    }
    assert shared == {"sweet-backend": True, "sweet-frontend": False}


HUMAN = "You play a person"


def programmer(call: Call) -> str:
    """Solve a task at once: task 1 rightly; GPT-4o solves both."""
    if HUMAN in call.system:
        return "Every number times three, please."
    factor = 3 if call.model == "gpt-4o" or "number 1" in call.text else 2
    code = f"def scale(a): return [{factor} * x for x in a]"
    return f"I WANT TO ANSWER:\n```python\n{code}\n```"


def designer(call: Call) -> str:
    """Write a page: GPT-4o the wanted one, others one without its button."""
    if HUMAN in call.system:
        return "The button is missing."
    button = "<button>Go</button>" if call.model == "gpt-4o" else ""
    return f"I WANT TO ANSWER: <html><body><h1>Hello</h1>{button}</body></html>"


def collaboration(folder: Path, task: str, reference: str, **row: str) -> dict[str, Any]:
    """Write two tasks; return an experiment on them, all speakers but GPT-4o at one server."""
    lines = [
        {"problem_description": f"Make the thing number {n}.", "ground_truth": reference, **row}
        for n in range(4)
    ]
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        **SPEC, "tasks": [task], "model": "hosted_vllm/small", "teacher": "hosted_vllm/human",
        "policies": ["gpt-4o"], "count": "all", "samples": 1, "temperatures": [1.0],
        "sets": {"task.source.hub": None, "task.source.config": None,
                 "task.source.file": str(file), "task.sample.train": 0.5},
    }  # fmt: skip


def run_collaboration(
    spec: dict[str, Any], folder: Path, reply: Any, monkeypatch: pytest.MonkeyPatch
) -> ExperimentResult:
    with Provider(Plan(keep_requests=100), reply=reply) as provider:
        for name in ("OPENAI", "HOSTED_VLLM"):
            monkeypatch.setenv(f"{name}_API_KEY", "none")
            monkeypatch.setenv(f"{name}_API_BASE", provider.api_base)
        result = ran(folder, spec)
    assert [outcome.said for outcome in result.outcomes] == [()] * 3, result.failure_lines
    return result


def printed_names(result: ExperimentResult) -> list[str]:
    """Return the first column of the results with the printed rows."""
    table = stages.report(result.runs[0], paper=True).document.parts[0].tables[0]
    return [str(row.cells[0]) for row in table.rows]


@needs_wall
def test_gpt_4o_stands_in_sweets_backend_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = json.dumps({f"test{i}": f"scale([{i}, 1])" for i in range(10)})
    wanted = "def scale(a):\n    return [3 * x for x in a]"
    spec = {
        **collaboration(tmp_path, "colbench-backend", wanted, test_cases=calls),
        "judges": ["unit-tests"],
    }
    result = run_collaboration(spec, tmp_path, programmer, monkeypatch)
    rows = printed_names(result)
    assert rows[rows.index("gpt-4o") + 1] == "  printed"
    assert rows[rows.index("Base") + 1] == "  printed"
    assert names(result, "differences") == ["gpt-4o"]


@pytest.mark.exhaustive
@renders
def test_win_rates_are_over_gpt_4os_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "<html><body><h1>Hello</h1><button>Go</button></body></html>"
    spec = {**collaboration(tmp_path, "colbench-frontend", page), "judges": ["render"]}
    result = run_collaboration(spec, tmp_path, designer, monkeypatch)
    assert result.report is not None
    tables = {t.name: t for part in result.report.document.parts for t in part.tables}
    place = [column.key for column in tables["results"].columns].index("won")
    won = {str(row.cells[0]): row.cells[place] for row in tables["results"].rows}
    assert mean_of(won["Base"]) == 0  # GPT-4o draws the better page
    assert won["gpt-4o"] is None
    assert "  printed" not in printed_names(result)  # another measure than CLIP's
