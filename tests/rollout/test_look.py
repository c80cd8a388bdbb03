"""What a new user types first: list, doctor, show, a dry run, a build without a model."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.cli import convbench, get, post

QUESTION = "Which sense organ tells how high or low a sound is?"


def empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def test_list_names_every_kind(tmp_path: Path) -> None:
    done = convbench(tmp_path, "list")
    assert done.code == 0, done.err
    for name in ("arc-easy", "mathdial", "clarifying-adaptive", "rubric-section4", "star-gate-d"):
        assert name in done.out
    assert "reasoning" not in convbench(tmp_path, "list", "tasks").out


def test_doctor_names_what_is_missing_and_the_fix(tmp_path: Path) -> None:
    here = {"HF_ENDPOINT": "http://127.0.0.1:9", "OPENAI_API_KEY": "sk-secret-value"}
    done = convbench(tmp_path, "doctor", extra=here)
    assert done.code == 0, done.out + done.err
    assert "http://127.0.0.1:9 cannot be reached" in done.out
    assert "export ANTHROPIC_API_KEY=" in done.out
    assert "sk-secret-value" not in done.out + done.err


def test_show_and_a_dry_run_render_the_first_example_and_send_nothing(
    provider: str, tmp_path: Path
) -> None:
    shown = convbench(tmp_path, "show", "demo", "--mode", "thinking")
    dry = convbench(
        tmp_path, "build", "demo", "--tasks", "4", "--dry-run", "--model", "openai/gpt-4o-mini",
        "--api-base", f"{provider}/v1",
    )  # fmt: skip
    for done in (shown, dry):
        assert done.code == 0, done.err
        assert f"Question: {QUESTION}\nChoices:\nA. eye\nB. tongue\nC. skin\nD. ear\n" in done.out
        assert done.out.count("You are a helpful, accurate assistant") == 3
        assert "What is your final answer (A, B, C, or D)?" in done.out
    assert "depends on the model" in shown.out
    assert "at most about $0.0" in dry.out
    assert get(provider, "/_stats")["calls"] == 0
    assert empty(tmp_path)


def test_show_without_the_hub_gives_the_spec_and_says_why_no_sample(tmp_path: Path) -> None:
    away = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hf")}
    done = convbench(tmp_path, "show", "arc", "--mode", "thinking", extra=away)
    assert "config: ARC-Challenge" in done.out
    assert "cannot reach http://127.0.0.1:9" in done.err
    assert "--set task.source.hub=null --set task.source.file=PATH" in done.err


def test_no_model_and_no_vllm_names_the_ways_on(tmp_path: Path) -> None:
    error = convbench(tmp_path, "build", "demo").error
    for way in ("--model PROVIDER/NAME", "--api-base URL", "local:PATH", "convbench demo"):
        assert way in error
    assert empty(tmp_path)


def test_a_retired_name_says_which_to_use(tmp_path: Path) -> None:
    error = convbench(tmp_path, "build", "demo", "--model", "claude-4-opus").error
    assert "no longer served; use claude-opus" in error


def test_where_all_failed_the_exit_code_says_so(provider: str, tmp_path: Path) -> None:
    base = ("--api-base", f"{provider}/v1", "--run", "r")
    post(provider, "/_config", {"context_tokens": 20})
    try:
        done = convbench(tmp_path, "build", "demo", "--tasks", "2", "--model", "openai/m", *base)
    finally:
        post(provider, "/_config", {"context_tokens": None})
    assert (done.code, "0 complete, 6 failed" in done.out) == (1, True)
    assert "longer than the model's context" in done.err
    again = convbench(tmp_path, "build", *base)
    assert (again.code, "6 complete, 0 failed" in again.out) == (0, True)
    post(provider, "/_config", {"context_tokens": 20})
    try:
        judged = convbench(tmp_path, "judge", "--judge", "openai/j", *base)
    finally:
        post(provider, "/_config", {"context_tokens": None})
    assert judged.code == 1
    assert "without a score" in judged.err
