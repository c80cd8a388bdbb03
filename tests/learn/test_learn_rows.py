"""Training rows: the golden file, cutting, dropping, and the preview."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from convbench.errors import TrainError
from convbench.learn import weights
from convbench.learn.pairs import logged_turns
from convbench.learn.rows import pair_rows, preview_rows, training_rows
from convbench.learn.select import select
from convbench.learn.tokens import ChatTokens
from convbench.learn.weights import Weighted
from convbench.schema import Reasoning
from convbench.schema.recipe import Data, Weighting
from tests.helpers import tiny

GOLDEN = Path(__file__).parent / "golden" / "rows.jsonl"


def weighted(folder: Path) -> Weighted:
    """SWiFt's weights of the tiny run."""
    return weights.weigh_swift(select(tiny.judged_run(folder), Data()), Weighting())


def test_golden_rows(tmp_path: Path) -> None:
    rows = training_rows(weighted(tmp_path / "run"), ChatTokens(tiny.tokenizer()))
    text = "".join(
        json.dumps(
            {
                "conversation_id": row.conversation_id,
                "weight": round(row.weight, 6),
                "input_ids": row.tokens.ids,
                "mask": row.tokens.mask,
            }
        )
        + "\n"
        for row in rows.rows
    )
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "rows changed; if that is right, run with UPDATE_GOLDEN=1"


def test_counts_and_labels(tmp_path: Path) -> None:
    rows = training_rows(weighted(tmp_path / "run"), ChatTokens(tiny.tokenizer()))
    assert rows.counts["conversations"] == rows.counts["rows"] == 9
    assert rows.counts["conversations of several rows"] == 0
    fields = rows.rows[0].trainer_fields()
    assert fields["share"] == 1.0
    pairs = zip(fields["labels"], rows.rows[0].tokens.mask, strict=True)
    assert all((label != -100) == bool(on) for label, on in pairs)
    assert not any("TEST" in "".join(preview_rows([row], ChatTokens(tiny.tokenizer())))
                   for row in rows.rows)  # fmt: skip


def test_long_rows_are_cut_and_those_without_loss_dropped(tmp_path: Path) -> None:
    chat = ChatTokens(tiny.tokenizer())
    whole = training_rows(weighted(tmp_path / "run"), chat)
    first_loss = whole.rows[0].tokens.mask.index(1)
    cut = training_rows(weighted(tmp_path / "again"), chat, first_loss + 2)
    assert cut.counts["rows truncated"] == 9
    assert all(len(row.tokens.ids) == first_loss + 2 for row in cut.rows)
    with pytest.raises(TrainError, match="max_length"):
        training_rows(weighted(tmp_path / "third"), chat, first_loss)


def test_an_all_zero_mask_is_refused(tmp_path: Path) -> None:
    both = [tiny.conversation("q0", i, [""], cut=0) for i in range(2)]
    judged = [(c, [tiny.verdict(c, r)]) for c, r in zip(both, (0.1, 0.9), strict=True)]
    run = tiny.make_run(tmp_path / "run", judged, [tiny.example("q0")])
    found = weights.weigh_swift(select(run, Data()), Weighting())
    with pytest.raises(TrainError, match=r"conversation run-q0-0: found no token of the policy"):
        training_rows(found, ChatTokens(tiny.tokenizer()))


def test_weights_of_turns_stay_with_their_replies(tmp_path: Path) -> None:
    """A reply cut within its reasoning leaves nothing to learn; the others keep their weights."""
    both = []
    for i in range(2):
        talk = tiny.conversation("q0", i, ["ONE", "", "THREE"], cut=1)
        turns = list(talk.turns)
        turns[3] = turns[3].model_copy(update={"reasoning": Reasoning(text="endless")})
        both.append(talk.model_copy(update={"turns": tuple(turns)}))
    judged = [(c, [tiny.verdict(c, r)]) for c, r in zip(both, (0.1, 0.9), strict=True)]
    run = tiny.make_run(tmp_path / "run", judged, [tiny.example("q0")])
    found = weights.weigh_swift(select(run, Data()), Weighting())
    by_turn = {c.conversation_id: (0.1, 0.2, 0.3) for c in both}
    rows = training_rows(
        replace(found, by_turn=by_turn), ChatTokens(tiny.tokenizer(), reasoning="drop"), unit="turn"
    )
    assert [row.weight for row in rows.rows] == [0.1, 0.3] * 2
    assert rows.counts["rows of reasoning alone, left out"] == 2
    short = {name: each[:2] for name, each in by_turn.items()}
    with pytest.raises(TrainError, match="rewards of 2 turns for 3 of the policy"):
        training_rows(replace(found, by_turn=short), ChatTokens(tiny.tokenizer()), unit="turn")


def test_preview_shows_mask_and_weight(tmp_path: Path) -> None:
    chat = ChatTokens(tiny.tokenizer())
    rows = training_rows(weighted(tmp_path / "run"), chat)
    lines = list(preview_rows([rows.rows[2]], chat))
    assert lines[0].startswith("run-q0-2: weight +1.1547")
    loss = [line for line in lines[1:] if line.startswith("  LOSS")]
    assert len(loss) == 2
    assert "'reply the cat the cat<|eot_id|>'" in loss[0]
    assert "'end q0 2<|eot_id|>'" in loss[1]


def test_pair_rows_end_replies_themselves(tmp_path: Path) -> None:
    chat = ChatTokens(tiny.tokenizer())
    both = [tiny.conversation("q0", i, [f"R{i}"], cut=0 if i else None) for i in range(2)]
    judged = [(c, [tiny.verdict(c, r)]) for c, r in zip(both, (0.9, 0.1), strict=True)]
    run = tiny.make_run(tmp_path / "run", judged, [tiny.example("q0")])
    found = logged_turns(select(run, Data()))
    row = pair_rows(found, chat).rows[0]
    assert chat.tokenizer.decode(row.prompt_ids).endswith("assistant<|end_header_id|>\n\n")
    assert chat.tokenizer.decode(row.chosen_ids) == "R0<|eot_id|>"
    assert chat.tokenizer.decode(row.rejected_ids) == "R1"
    asked, reply = len(row.prompt_ids), len(row.chosen_ids)
    for limit, truncated in ((asked + reply, 0), (asked + reply - 1, 1), (asked + 1, 1)):
        counts = pair_rows(found, chat, limit).counts
        assert counts == {"pairs": 1, "pairs truncated": truncated, "pairs dropped": 0}
    with pytest.raises(TrainError, match="leaves no pair"):
        pair_rows(found, chat, asked)
