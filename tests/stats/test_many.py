"""Names by their hashes, and what is computed of very many numbers."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np
import pytest

from convbench.stats import agreement
from convbench.stats.agreement import krippendorff_alpha, spearman
from convbench.stats.means import count_duplicate_groups, estimate_mean, jackknife
from convbench.store.keys import Hashes, NameOrdinals, NameSet
from tests.support.later import later
from tests.support.memory import BLOCK, held_below

scipy_stats = later("scipy.stats")

MANY = 33_000
"""More than are worked on without numpy."""


def test_names_are_found_as_in_a_mapping() -> None:
    draw = random.Random(0)
    names = [f"c{n}" for n in range(MANY)]
    hashes = Hashes(names)
    assert hashes.find_repeated() == set()
    twice = draw.sample(names, 3)
    for name in twice:
        hashes.add(name)
    assert hashes.find_repeated() == set(map(hash, twice))
    wanted = [draw.choice(names) for _ in range(1000)] + ["nobody"]
    for few in (names[:1000], names):
        known, asked = {name: at for at, name in enumerate(few)}, Hashes(few)
        expected = [known.get(name, -1) for name in wanted]
        found = NameOrdinals(asked)
        assert [-1 if (at := found.ordinal_of(name)) is None else at for name in wanted] == expected
        there = NameSet(asked)
        assert [name in there for name in wanted] == [at >= 0 for at in expected]
        assert len(NameSet([*few, *few[:700], *few[::-1]])) == len(few)
        again = NameOrdinals(Hashes([*few, *few[:700]]))
        assert sorted(again.possible_ordinals(few[699])) == [699, len(few) + 699]
        assert list(again.possible_ordinals("nobody")) == []


@pytest.mark.parametrize("made", [NameSet, lambda names: NameOrdinals(Hashes(names))])
def test_names_that_are_looked_up_take_few_bytes(made: Callable[[Iterable[str]], object]) -> None:
    """A hash each and a place, twice while they are put in order."""
    names = [f"c{n}" for n in range(7 * BLOCK)]
    held_below(42, lambda count: made(islice(names, count)), 2 * BLOCK, 7 * BLOCK)
    assert len(NameSet(["a", "b"] * MANY)) == 2


def test_an_estimate_of_many_is_the_same_to_the_last_bit() -> None:
    draw = random.Random(2)
    pairs = [(f"g{draw.randrange(MANY // 3)}", draw.random() - 0.3) for _ in range(MANY)]
    values = np.array([value for _, value in pairs])
    mean = math.fsum(values) / MANY
    _, place = np.unique([group for group, _ in pairs], return_inverse=True)
    sums = np.bincount(place, values - mean)
    squares = math.fsum(one**2 for one in sums.tolist())
    found = estimate_mean(pairs)
    assert found is not None
    assert (found.mean, found.n, found.groups) == (mean, MANY, len(sums))
    assert found.error == math.sqrt(len(sums) / (len(sums) - 1) * squares) / MANY


def test_a_jackknife_of_many_is_the_same_to_the_last_bit() -> None:
    draw = random.Random(4)
    rows = [(f"g{draw.randrange(MANY // 3)}", (1.0, draw.random())) for _ in range(MANY)]
    sums: dict[str, list[float]] = {}
    for group, moments in rows:
        into = sums.setdefault(group, [0.0, 0.0])
        into[0], into[1] = into[0] + moments[0], into[1] + moments[1]
    n, total = (math.fsum(part) for part in zip(*sums.values(), strict=True))
    left = [(total - value) / (n - count) for count, value in sums.values()]
    mean, groups = math.fsum(left) / len(left), len(left)
    found = jackknife(rows, lambda s: s[1] / s[0])
    assert found is not None
    assert (found.mean, found.n, found.groups) == (total / n, MANY, groups)
    squares = math.fsum((one - mean) ** 2 for one in left)
    assert found.error == math.sqrt((groups - 1) / groups * squares)


def test_groups_that_say_one_thing_alone_are_counted() -> None:
    """Several values, all equal."""
    draw = random.Random(6)
    for count in (1000, MANY):
        pairs = [(f"q{draw.randrange(count // 3)}", draw.randrange(2)) for _ in range(count)]
        said: dict[str, list[int]] = {}
        for group, value in pairs:
            said.setdefault(group, []).append(value)
        expected = sum(len(some) > 1 and len(set(some)) == 1 for some in said.values())
        assert count_duplicate_groups(pairs) == expected > count // 20
    assert count_duplicate_groups([]) == count_duplicate_groups([("a", 1), ("b", 1)]) == 0


@pytest.mark.exhaustive
def test_ranks_of_many_are_those_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    few = [draw.randrange(50) / 50 for _ in range(MANY)]
    more = [value + draw.randrange(9) for value in few]
    every = [value if draw.random() < 0.5 else draw.random() for value in few]
    for second in (more, every):  # of few values, of one range; of as many as there are, of several
        found = spearman(array("d", few), array("d", second))
        assert found == pytest.approx(scipy_stats.spearmanr(few, second).statistic, abs=1e-12)
        with monkeypatch.context() as patch:
            patch.setattr(agreement, "FEW", MANY + 1)
            assert found == spearman(few, second)


@pytest.mark.parametrize("raters", [2, 3])
def test_alpha_of_many_is_that_of_few(raters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ratings that are missing, of some hundred values or of as many as there are ratings."""
    draw = random.Random(5)
    for digits in (2, 9):
        truth = [draw.random() for _ in range(2 * BLOCK)]
        ratings = [
            [math.nan if draw.random() < 0.1 else round(t + draw.random() / 3, digits)
             for t in truth]
            for _ in range(raters)
        ]  # fmt: skip
        found = krippendorff_alpha([array("d", one) for one in ratings])
        with monkeypatch.context() as patch:
            patch.setattr(agreement, "FEW", len(truth) + 1)
            assert found == pytest.approx(krippendorff_alpha(ratings), abs=1e-14)
    nothing, same = [math.nan] * BLOCK, [0.5] * BLOCK
    assert (
        krippendorff_alpha([nothing, nothing])
        is krippendorff_alpha([same, same])
        is krippendorff_alpha([same, nothing])
        is None
    )
