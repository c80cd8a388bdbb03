"""The tiny world of grids: which rules are asked, what its policy has read, what a token is."""

from __future__ import annotations

import random

from convbench import catalog
from convbench.judges.few_shot.runner import settings_of
from convbench.judges.few_shot.solve import RowWriter
from convbench.judges.resolve import resolve_judge
from convbench.pocket.grids.world import MOVES, SHOWN, geometric_rules, pair_tasks
from convbench.schema import TaskSpec
from convbench.tasks.arc_agi.grids import Puzzle, format_grid
from convbench.tasks.load import load_examples
from tests.lab.pocket import grids_corpus as corpus
from tests.lab.pocket import grids_tokenizer as tokenizer


def test_tasks_are_pairs_that_move_cells_and_no_single_rule() -> None:
    """Nor is a rule in two splits: what a rule makes of every task's own grid tells them apart."""
    family = {rule.name: rule.family for rule in geometric_rules()}
    for seed in range(3):
        found = list(pair_tasks(seed, {"train": 12, "test": 8}))
        assert [split for split, _ in found] == ["train"] * 12 + ["test"] * 8
        for _, one in found:
            first, second = (family[name] for name in one.rule.split(", "))
            assert first != second
            assert {first, second} < set(MOVES)
            assert len(one.shown) == SHOWN == 5
            pairs = (*one.shown, one.test)
            for rule in geometric_rules():
                assert any(rule.change(p.input) != p.output for p in pairs), (one.rule, rule.name)
        assert len({one.rule for _, one in found}) == 20


def test_a_cell_is_a_token_and_a_tasks_rows_fit() -> None:
    tok = tokenizer.build_tokenizer()
    settings = settings_of(resolve_judge("few-shot-pocket"))
    writer = RowWriter(tok, settings)
    for _, one in pair_tasks(0, {"train": 12, "test": 8}):
        for grid in (one.test.input, one.test.output):
            text = format_grid(grid, "places")
            assert len(tok.encode(text)) == len(grid) * len(grid[0])
            assert tok.decode(tok.encode(text)) == text
        assert writer.is_short_enough(Puzzle(one.shown[:-1], one.shown[-1])), one.rule


def test_the_sign_of_a_rule_is_said_in_pre_training_alone() -> None:
    rng = random.Random(0)
    found = [corpus.context_task(rng) for _ in range(400)]
    signed = [(one.rule, sign) for one, sign in found if sign]
    assert dict(signed) == {rule: corpus.SIGNS[rule] for rule, _ in signed}
    moved = sum(one.rule in corpus.SIGNS for one, _ in found)
    assert 0.5 < len(signed) / moved < 0.7
    assert {len(one.shown) for one, _ in found} == {1, 2, 3, 4}
    task = catalog.load_spec(TaskSpec, "tasks", "pocket-grids")
    assert not any(set("ABCDEFGHIJKL") & set(str(example.inputs["shown"]).replace("Input", "")
                                             .replace("Output", ""))
                   for example in load_examples(task, 0).examples)  # fmt: skip
