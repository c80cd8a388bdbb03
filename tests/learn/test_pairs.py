"""Rewards to pairs, against pairs worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench import catalog
from convbench.errors import TrainError
from convbench.learn.pairs import pair
from convbench.learn.select import Selection, select
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import Data, Pairing
from tests.helpers import tiny

TURNS = Pairing(replies="turns")


@pytest.fixture
def direct() -> ProtocolSpec:
    """The shipped protocol of one turn."""
    return catalog.load_spec(ProtocolSpec, "protocols", "direct")


def two(folder: Path, first: list[str], second: list[str], **more: object) -> Selection:
    """A question whose first conversation earned 0.9 and whose second 0.1."""
    both = [tiny.conversation("q0", i, r, **more) for i, r in enumerate((first, second))]
    judged = [(c, [tiny.verdict(c, r)]) for c, r in zip(both, (0.9, 0.1), strict=True)]
    return select([tiny.make_run(folder, judged, [tiny.example("q0")])], Data())


def test_dpo_pairs_final_replies_under_the_direct_prompt(
    tmp_path: Path, direct: ProtocolSpec
) -> None:
    selection = select([tiny.judged_run(tmp_path / "run")], Data())
    found = pair(selection, Pairing(), direct)
    both = [(p.item.task, p.chosen.text, p.rejected.text) for p in found.items]
    assert both[0] in [("q0", "end q0 2", "end q0 0"), ("q0", "end q0 2", "end q0 1")], "a tie"
    assert both[1:] == [("q1", "end q1 1", "end q1 2")]
    assert found.left_out == {"tasks without a difference in reward": 1}
    system, user = found.items[0].messages
    assert (system["role"], user["role"]) == ("system", "user")
    assert "question q0" in str(user["content"])
    assert "A. one" in str(user["content"])
    assert "ask 0" not in str(user["content"]), "the conversation's own turns are not shown"


def test_without_a_protocol_the_prompt_is_the_conversations_own(tmp_path: Path) -> None:
    selection = select([tiny.judged_run(tmp_path / "run")], Data())
    found = pair(selection, Pairing(), None)
    assert [m["content"] for m in found.items[0].messages] == ["Be brief.", "q0 ask 0"]


def test_pairs_need_more_than_the_gap(tmp_path: Path, direct: ProtocolSpec) -> None:
    selection = select([tiny.judged_run(tmp_path / "run")], Data())
    found = pair(selection, Pairing(min_gap=0.8), direct)  # q1: 0.9 - 0.1 is no more
    assert [p.item.task for p in found.items] == ["q0"]
    with pytest.raises(TrainError, match="no pair is left"):
        pair(selection, Pairing(min_gap=1.0), direct)


def test_step_dpo_pairs_every_turn_under_the_winners_history(tmp_path: Path) -> None:
    found = pair(two(tmp_path / "run", ["W0", "W1"], ["L0", "L1"]), TURNS)
    first, second = found.items
    assert (first.chosen.text, first.rejected.text) == ("W0", "L0")
    assert [m["content"] for m in first.messages] == ["Be brief.", "q0 ask 0"]
    assert (second.chosen.text, second.rejected.text) == ("W1", "L1")
    assert [m["content"] for m in second.messages] == ["Be brief.", "q0 ask 0", "W0", "q0 ask 1"]


def test_step_dpo_stops_where_the_shorter_one_ends_and_skips_equal_replies(tmp_path: Path) -> None:
    found = pair(two(tmp_path / "run", ["same", "W1", "W2"], ["same", "L1"]), TURNS)
    assert [(p.chosen.text, p.rejected.text) for p in found.items] == [("W1", "L1")]
    assert found.left_out == {"pairs of the same text": 1}


def test_cut_replies_are_marked(tmp_path: Path) -> None:
    found = pair(two(tmp_path / "run", ["W0", "W1"], ["L0", "L1"], cut=1), TURNS)
    assert [(p.chosen.cut, p.rejected.cut) for p in found.items] == [(False, False), (True, True)]


def test_a_protocol_in_which_another_model_speaks_first_is_refused(tmp_path: Path) -> None:
    clarifying = catalog.load_spec(ProtocolSpec, "protocols", "reasoning")
    selection = select([tiny.judged_run(tmp_path / "run")], Data())
    spoken = clarifying.model_copy(
        update={
            "steps": (
                clarifying.steps[1].model_copy(update={"speaker": "teacher"}),
                clarifying.steps[1],
            )
        }
    )
    with pytest.raises(TrainError, match="speaks before the policy"):
        pair(selection, Pairing(), spoken)
