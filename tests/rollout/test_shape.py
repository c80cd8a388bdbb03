"""How many samples a question gets, and at which temperatures."""

from __future__ import annotations

import pytest

from convbench.errors import UsageError
from convbench.rollout.manifest import spread_temperatures


@pytest.mark.parametrize(
    ("samples", "temperatures", "wanted"),
    [
        (None, None, (3, (0.3, 0.7, 1.0))),
        (3, None, (3, (0.3, 0.7, 1.0))),
        (1, None, (1, (0.7,))),
        (2, None, (2, (0.3, 1.0))),
        (None, (0.7,), (3, (0.7,))),
        (None, (0.2, 0.9), (2, (0.2, 0.9))),
        (4, (0.7,), (4, (0.7,))),
        (2, (0.2, 0.9), (2, (0.2, 0.9))),
    ],
)
def test_one_temperature_holds_for_all_samples_and_several_for_one_each(
    samples: int | None,
    temperatures: tuple[float, ...] | None,
    wanted: tuple[int, tuple[float, ...]],
) -> None:
    assert spread_temperatures(samples, temperatures) == wanted


def test_another_number_of_temperatures_than_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="found 2 values for 3 samples; expected one value"):
        spread_temperatures(3, (0.2, 0.9))
