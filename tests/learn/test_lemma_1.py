"""Lemma 1 of Mukherjee et al. (2025) on a small tabular problem, by full enumeration."""

from __future__ import annotations

from itertools import product

import pytest

from convbench.learn.weights import group_weights
from convbench.schema.recipe import Weighting
from tests.support.later import later

torch = later("torch")

REFIT = Weighting(center=False, scale=False)
CONTEXTS, ACTIONS, OBSERVATIONS, STEPS = 2, 2, 2, 2
PAIRS = ACTIONS * OBSERVATIONS
TRAJECTORIES = list(product(range(ACTIONS), range(OBSERVATIONS), repeat=STEPS))


class World:
    """Random rewards and observations; a policy is a table of logits by context and history."""

    def __init__(self, seed: int) -> None:
        stream = torch.Generator().manual_seed(seed)
        draw = {"generator": stream, "dtype": torch.float64}
        self.q = torch.rand(CONTEXTS, **draw).softmax(0)
        self.observe = torch.rand(CONTEXTS, 1 + PAIRS, ACTIONS, OBSERVATIONS, **draw).softmax(-1)
        raw = torch.rand(CONTEXTS, len(TRAJECTORIES), **draw)
        self.rewards = torch.stack(
            [torch.tensor(group_weights(row.tolist(), REFIT), dtype=torch.float64) for row in raw]
        )
        self.logging = torch.randn(CONTEXTS, 1 + PAIRS, ACTIONS, **draw)
        self.stream = stream

    def log_probs(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """log of the actions' part and of the observations' part of equation (1), both of shape
        (contexts, trajectories)."""
        policy, other = logits.log_softmax(-1), self.observe.log()
        acts, seen = [], []
        for a1, y1, a2, y2 in TRAJECTORIES:
            history = 1 + a1 * OBSERVATIONS + y1
            acts.append(policy[:, 0, a1] + policy[:, history, a2])
            seen.append(other[:, 0, a1, y1] + other[:, history, a2, y2])
        return torch.stack(acts, 1), torch.stack(seen, 1)

    def value(self, logits: torch.Tensor) -> torch.Tensor:
        """V, equation (2)."""
        acts, seen = self.log_probs(logits)
        return (self.q[:, None] * (acts + seen).exp() * self.rewards).sum()

    def bound(self, logits: torch.Tensor) -> torch.Tensor:
        """J + C1: equation (4) with the constant of Lemma 1."""
        logged = sum(self.log_probs(self.logging))
        assert isinstance(logged, torch.Tensor)
        acts, seen = self.log_probs(logits)
        share = self.q[:, None] * logged.exp()
        objective = (share * self.rewards * (acts + seen)).sum()
        return objective + (share * self.rewards * (1 - logged)).sum()


@pytest.mark.parametrize("seed", range(3))
def test_it_is_a_lower_bound(seed: int) -> None:
    world = World(seed)
    for spread in (0.1, 1.0, 3.0):
        for _ in range(20):
            noise = torch.randn(world.logging.shape, generator=world.stream, dtype=torch.float64)
            other = world.logging + spread * noise
            assert world.bound(other) <= world.value(other) + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_it_touches_at_the_logging_policy_in_value_and_gradient(seed: int) -> None:
    world = World(seed)
    logits = world.logging.clone().requires_grad_()
    value, bound = world.value(logits), world.bound(logits)
    assert bound.item() == pytest.approx(value.item(), rel=1e-12)
    (of_value,) = torch.autograd.grad(value, logits, retain_graph=True)
    (of_bound,) = torch.autograd.grad(bound, logits)
    assert torch.allclose(of_value, of_bound, atol=1e-12)
    assert of_value.abs().max() > 1e-4, "a test of zeros would show nothing"


def test_it_fails_for_negative_rewards() -> None:
    """Why refit refuses them: the bound then lies above the value somewhere."""
    world = World(0)
    world.rewards = -world.rewards
    noise = torch.randn(world.logging.shape, generator=world.stream, dtype=torch.float64)
    other = world.logging + 2 * noise
    assert world.bound(other) > world.value(other)
