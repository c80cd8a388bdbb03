"""Whose difference to whom: Base is what the trained policies began from, or it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.reports.starts import LOG, StartModel, short_model
from convbench.reports.writers import render_text
from convbench.schema import ModelConfig
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.runs import logged, make, questions, right


def shown(run: Run) -> str:
    return render_text(stages.report(run.path).document, "html")


def test_a_log_of_another_model_is_no_start(tmp_path: Path) -> None:
    run = logged(tmp_path, "openai/agent", "local:tiny")
    found = shown(run)
    said = found.index(
        "Base is openai/agent, which generated the log. SWiFt started from another model"
    )
    assert said < found.index("<th")
    assert "convbench eval local:tiny --run RUN" in found
    assert "Base: openai/agent; SWiFt: trained from local:tiny" in found


def test_the_starts_own_evaluation_is_base(tmp_path: Path) -> None:
    run = logged(tmp_path, "openai/agent", "local:tiny")
    make(run.evals_folder / "local-tiny", questions(20), right(2), overall=lambda q, k: 3 + k,
         parent=run.manifest.id, model="local:tiny", checkpoint="local:tiny")  # fmt: skip
    result = stages.report(run.path)
    (section,) = result.sections
    assert section.base is not None
    assert section.base.model == "local:tiny"
    assert [policy.name for policy in section.policies] == ["SWiFt", "Base", LOG]
    found = render_text(result.document, "html")
    assert "started from another model" not in found
    assert "Log: openai/agent" in found
    assert "+1.00" in found  # 4 + k less the start's 3 + k; the log has 5 + k


def test_a_start_that_had_the_log_is_base_without_a_word(tmp_path: Path) -> None:
    found = shown(logged(tmp_path, "local:tiny", "local:tiny"))
    assert "started from another" not in found
    assert "Base: local:tiny; SWiFt: trained from local:tiny" in found


A, B = "a" * 16, "b" * 16


@pytest.mark.parametrize(
    ("start", "member", "same"),
    [
        (
            StartModel("/models/tiny", A),
            ModelConfig(model="local:/other/tiny", fingerprint=A),
            True,
        ),
        (
            StartModel("/models/tiny", A),
            ModelConfig(model="local:/models/tiny", fingerprint=B),
            False,
        ),
        (
            StartModel("/models/tiny", A),
            ModelConfig(model="hosted_vllm/agent", weights="me/tiny"),
            True,
        ),
        (StartModel("meta/Llama-8B", "c" * 40), ModelConfig(model="vllm:meta/Llama-8B"), True),
        (StartModel("meta/Llama-8B", None), ModelConfig(model="hosted_vllm/Llama-8B"), True),
        (StartModel("meta/Llama-8B", None), ModelConfig(model="openai/gpt-4o"), False),
    ],
)
def test_a_model_is_known_by_its_weights_or_its_name(
    start: StartModel, member: ModelConfig, same: bool
) -> None:
    assert start.is_model_of(member) == same


def test_paths_are_shown_by_their_folder() -> None:
    assert short_model("local:/home/me/models/tiny") == "local:tiny"
    assert short_model("/home/me/models/tiny") == "tiny"
    assert short_model("openai/gpt-4o") == "openai/gpt-4o"
    assert short_model("local:tiny") == "local:tiny"
