"""Messages framed as the paper's, and its printed settings: what is asked, kept and shown."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from convbench import views
from convbench.errors import RunError
from convbench.experiments.experiment import load_specs
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import SpecOptions
from convbench.reports.comparable import NotComparable
from convbench.reports.document import mean_of
from convbench.schema import ProtocolSpec, fingerprint
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.runs import make, questions
from tests.helpers.table import played, protocol_of
from tests.support.provider import Plan, Provider

PRINTED = {"framing": "llama-2"}
SETS = ("protocol.framing=llama-2",)


@pytest.mark.parametrize("name", ["reasoning", "clarifying"])
def test_framed_messages_extend_each_other(name: str) -> None:
    protocol = protocol_of(name).model_copy(update=PRINTED)
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


def test_framing_is_written_only_where_it_is_set() -> None:
    plain = protocol_of("reasoning")
    assert "framing" not in plain.model_dump(mode="json")
    printed = plain.model_copy(update=PRINTED)
    assert fingerprint(printed) != fingerprint(plain)
    again = printed.model_dump(mode="json")
    assert ProtocolSpec.model_validate(again).framing == "llama-2"


def test_a_run_keeps_its_framing_and_so_does_what_follows_it(tmp_path: Path) -> None:
    with Provider(Plan(keep_requests=100)) as provider:
        made = {
            "task": "demo",
            "tasks": 4,
            "model": "openai/stand-in",
            "run": tmp_path / "run",
            "api_base": provider.api_base,
            "samples": 1,
            "temperatures": (0.7,),
            "max_tokens": 128,
            "set": SETS,
        }
        stages.build(**made)
        asked = list(provider.requests)
        assert {body.get("max_tokens") or body.get("max_completion_tokens") for body in asked} == {
            128
        }
        assert all(body["messages"][0]["content"].startswith("[INST] <<SYS>>") for body in asked)
        run = Run.open(tmp_path / "run")
        assert run.manifest.protocol.framing == "llama-2"
        stages.build(run=run.path, api_base=provider.api_base)
        stages.build(**made)
        with pytest.raises(RunError, match="framing"):
            stages.build(run=run.path, set=("protocol.framing=none",), api_base=provider.api_base)
        stages.evaluate("openai/other", run.path, api_base=provider.api_base)
    (child,) = run.child_runs()
    assert child.manifest.protocol.framing == "llama-2"


def test_runs_of_other_framing_share_no_table(tmp_path: Path) -> None:
    runs = [
        make(
            tmp_path / name,
            questions(10, "arc"),
            lambda q, k: "A",
            task="arc",
            protocol_fields=fields,
        )
        for name, fields in (("plain", {}), ("framed", {"framing": "llama-2"}))
    ]
    with pytest.raises(NotComparable, match="framing"):
        stages.report(*(run.path for run in runs))


def test_an_answer_in_other_words_is_unread(tmp_path: Path) -> None:
    """The paper's example of a better SWiFt (E.5) counts as wrong, in the share unread."""
    words = "I have now fully explained why choice A is the best explanation for it."
    run = make(tmp_path / "run", questions(4, "arc"), lambda q, k: "A", task="arc",
               text=lambda *_: words, overall=lambda q, k: 5.0)  # fmt: skip
    table = stages.report(run.path).document.parts[0].tables[0]
    keys = [column.key for column in table.columns]
    row = dict(zip(keys, table.rows[0].cells, strict=True))
    assert (mean_of(row["unread"]), mean_of(row["correct"])) == (100, 0)


def test_an_experiment_gives_its_settings_to_what_it_adds() -> None:
    specs = load_specs(ExperimentOptions("paper-as-printed"))
    added = ("paper-clarifying", "length", "judges", "size")
    assert [spec.name for spec in specs] == [f"{name}-as-printed" for name in ("paper", *added)]
    assert {"sciq", "sciqa"} < set(specs[0].tasks)
    sets = ("max_tokens=128", "sets.protocol.framing=llama-2")
    framed = load_specs(ExperimentOptions("paper", specs=SpecOptions(sets=sets)))
    assert [spec.name for spec in framed] == ["paper", *added]
    assert {(s.max_tokens, s.sets["protocol.framing"]) for s in framed} == {(128, "llama-2")}
