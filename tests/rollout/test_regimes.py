"""Regimes: what is asked, what the run keeps, what its tables say and beside what they stand."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from convbench import catalog, views
from convbench.errors import RunError
from convbench.experiments.experiment import load_specs
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import SpecOptions
from convbench.reports.published import paper_table, paper_tables, sample_size
from convbench.schema import Conversation, ProtocolSpec, fingerprint
from convbench.schema.run import in_regime
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.report_tables import cells, right_on, table_of
from tests.helpers.runs import make, questions
from tests.helpers.table import played, protocol_of
from tests.support.provider import Plan, Provider

SIZES = {
    1: 289, 2: 155, 3: 226, 4: 226, 5: 120, 6: 300,
    7: 207, 8: 133, 9: 201, 10: 201, 11: 120, 12: 300,
    13: 50, 14: 50, 15: 15, 16: 15, 17: 15, 18: 15, 19: 120, 20: 289, 21: 207,
}  # fmt: skip
"""Conversations that the accuracies of each printed table are over."""


@pytest.mark.parametrize("number", SIZES)
def test_the_papers_sample_sizes_follow_from_its_errors(number: int) -> None:
    """error = sqrt(p(1 - p)/n), and p = k/n for a whole k: one n a table fits its methods."""
    assert sample_size(number) == SIZES[number]
    (table,) = (table for table in paper_tables() if table.number == number)
    fit, unlike = [], []
    for name, metrics in table.methods.items():
        p, error = metrics["accuracy"].mean, metrics["accuracy"].error
        naive = math.sqrt(p * (1 - p) / SIZES[number])
        (fit if abs(naive - error) <= 1.01e-4 else unlike).append(name)
    expected = ["Base"] if number <= 12 else ["STaR-GATE", "Base"] if number == 19 else []
    assert unlike == expected, "Base has another rule; table 19 copies two lines of table 1"
    assert len(fit) >= 2


def test_sciq_and_scienceqa_both_stand_beside_sciqa() -> None:
    for mode, protocol, number in (("thinking", "reasoning", 4), ("standard", "reasoning", 10),
                                   ("thinking", "clarifying", 14)):  # fmt: skip
        for task in ("sciqa", "sciq"):
            found = paper_table(task, mode, protocol, 3)
            assert found is not None
            assert found.number == number


@pytest.mark.parametrize("name", ["reasoning", "clarifying"])
def test_framed_messages_extend_each_other(name: str) -> None:
    protocol = in_regime(protocol_of(name), "as-printed")
    table, talk = played(protocol)
    sent = [call.messages for call in table.of("assistant")]
    assert all(two[: len(one)] == one for one, two in pairwise(sent)), "the rows stay whole"
    first, *later = [m["content"] for m in sent[-1] if m["role"] == "user"]
    assert str(first).startswith("[INST] <<SYS>>\n")
    assert "\n<</SYS>>\n\nQuestion: " in str(first)
    assert later
    assert all(str(one).startswith("[INST] ") and "SYS" not in str(one) for one in later)
    assert all(str(one).endswith(" [/INST]") for one in (first, *later))
    assert not any(message["role"] == "system" for message in sent[-1])
    index = views.policy_turns(protocol, talk)[-1]
    assert views.messages_before(protocol, talk, "assistant", index) == sent[-1], (
        "training sees the same"
    )


def test_the_system_prompt_is_framed_after_a_reply_that_comes_first() -> None:
    sent = views.frame_llama_2(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Hi"},
            {"role": "user", "content": "Why?"},
        ]
    )
    assert [message["content"] for message in sent] == [
        "Hello",
        "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST]",
        "[INST] Why? [/INST]",
    ]


def test_a_protocol_without_marks_keeps_its_fingerprint() -> None:
    plain = protocol_of("reasoning")
    assert "framing" not in plain.model_dump(mode="json")
    assert fingerprint(in_regime(plain, "clean")) == fingerprint(plain)
    assert fingerprint(in_regime(plain, "as-printed")) != fingerprint(plain)
    again = in_regime(plain, "as-printed").model_dump(mode="json")
    assert ProtocolSpec.model_validate(again).framing == "llama-2"


def test_a_run_keeps_its_regime_and_so_does_what_follows_it(tmp_path: Path) -> None:
    with Provider(Plan(keep_requests=100)) as provider:
        made = {
            "task": "demo",
            "tasks": 4,
            "model": "openai/stand-in",
            "run": tmp_path / "run",
            "api_base": provider.api_base,
            "samples": 1,
            "temperatures": (0.7,),
            "regime": "as-printed",
        }
        stages.build(**made)
        asked = list(provider.requests)
        assert {body.get("max_tokens") or body.get("max_completion_tokens") for body in asked} == {
            128
        }
        assert all(body["messages"][0]["content"].startswith("[INST] <<SYS>>") for body in asked)
        run = Run.open(tmp_path / "run")
        assert run.manifest.regime == "as-printed"
        stages.build(run=run.path, api_base=provider.api_base)
        stages.build(**made)
        with pytest.raises(RunError, match="regime"):
            stages.build(run=run.path, regime="clean", api_base=provider.api_base)
        stages.evaluate("openai/other", run.path, api_base=provider.api_base)
    (child,) = run.child_runs()
    assert child.manifest.regime == "as-printed"
    assert child.manifest.protocol.framing == "llama-2"
    result = stages.report(run.path)
    table = table_of(result, "Results (as-printed regime)")
    assert any("naive standard error" in note for note in table.notes)
    assert any("at most 128 tokens, messages framed as llama-2" in note for note in table.notes)


def test_tables_name_their_regime_and_its_errors(tmp_path: Path) -> None:
    """Over 300 of our conversations the printed regime shows the error of the paper's 289."""
    both = [
        make(tmp_path / name, questions(100, "arc"), right_on(0, 1), task="arc", regime=name,
             overall=lambda q, k: 5.0)
        for name in ("clean", "as-printed")
    ]  # fmt: skip
    result = stages.report(*(run.path for run in both))
    assert len(result.document.parts) == 2, "regimes never share a table"
    for part, name in zip(result.document.parts, ("clean", "as-printed"), strict=True):
        assert all(table.caption.endswith(f"({name} regime)") for table in part.tables)
    clean, printed = (
        cells(next(t for t in part.tables if t.caption.startswith("Results")), "Base", "Accuracy")
        for part in result.document.parts
    )
    p = float(clean.text)
    assert printed.text == clean.text
    assert printed.error == f"{math.sqrt(p * (1 - p) / 289):.4f}"
    assert clean.error != printed.error
    other = stages.report(both[1].path, se="clustered")
    table = table_of(other, "Results")
    assert cells(table, "Base", "Accuracy").error == clean.error, "--se goes before the regime"


def test_an_answer_in_other_words_is_unread_in_both_regimes(tmp_path: Path) -> None:
    """The paper's example of a better SWiFt (E.5) counts as wrong, in the share unread."""
    words = "I have now fully explained why choice A is the best explanation for it."
    for name in ("clean", "as-printed"):
        run = make(
            tmp_path / name,
            questions(4, "arc"),
            right_on(0),
            task="arc",
            regime=name,
            text=lambda *_: words,
            overall=lambda q, k: 5.0,
        )
        table = table_of(stages.report(run.path), "Results")
        assert cells(table, "Base", "Unread (%)").text == "100.0"
        assert cells(table, "Base", "Accuracy").text == "0.0000"


def test_fewer_conversations_than_the_papers_keep_their_own_error(tmp_path: Path) -> None:
    run = make(tmp_path / "run", questions(4, "arc"), right_on(0, 1), task="arc",
               regime="as-printed", overall=lambda q, k: 5.0)  # fmt: skip
    found = cells(table_of(stages.report(run.path), "Results"), "Base", "Accuracy")
    p = float(found.text)
    assert found.error == f"{math.sqrt(p * (1 - p) / (4 * 3)):.4f}", "4 questions, not 289"


def test_an_experiment_gives_its_regime_to_what_it_adds() -> None:
    specs = load_specs(ExperimentOptions("paper-as-printed"))
    added = ("paper-clarifying", "length", "judges", "size")
    assert [spec.name for spec in specs] == [f"{name}-as-printed" for name in ("paper", *added)]
    assert {spec.regime for spec in specs} == {"as-printed"}
    assert {"sciq", "sciqa"} < set(specs[0].tasks)
    clean = load_specs(ExperimentOptions("paper"))
    assert {spec.regime for spec in clean} == {None}
    framed = load_specs(ExperimentOptions("paper", specs=SpecOptions(sets=("regime=as-printed",))))
    assert [spec.name for spec in framed] == ["paper", *added]
    assert {spec.regime for spec in framed} == {"as-printed"}


def test_runs_of_old_are_clean(tmp_path: Path) -> None:
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0)
    file = run.path / "run.json"
    kept = json.loads(file.read_text())
    del kept["regime"]
    file.write_text(json.dumps(kept))
    assert Run.open(run.path).manifest.regime == "clean"
    assert catalog.spec_files("experiments")
    assert all(isinstance(talk, Conversation) for talk in Run.open(run.path).conversations())
