"""Every objective's gradient, through the real trainer, against sums written by hand; and what each
becomes where it should be another one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import SpecError, TrainError
from convbench.learn import launch
from convbench.learn.job import Job
from convbench.learn.losses import anchors, load_objective, objective_names
from convbench.learn.rows import TrainingRow, pair_rows, training_rows
from convbench.learn.weights import Weighted
from convbench.schema.recipe import Loss
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.exact import apart
from tests.support.later import later

torch = later("torch")
transformers = later("transformers")
trl_utils = later("trl.trainer.utils")
preference = later("convbench.learn.preference")
unpaired = later("convbench.learn.kto")
head = later("convbench.learn.kernels")
reference = later("convbench.learn.losses.reference")
weighted_sft = later("convbench.learn.weighted_sft")
recording = later("tests.helpers.workers.gradients")

Gradients = dict[str, Any]
Make = Callable[..., tuple[Job, Weighted]]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one: the policy after some steps, or before."""
    return tiny.save_model(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture
def make(tmp_path: Path, run: Run, model: Path) -> Make:
    """Resolve a recipe in float64, all nine rows in one step, and prepare its data."""

    def prepare(recipe: str, **sets: Any) -> tuple[Job, Weighted]:
        quick = {"fit.max_steps": 1, "fit.batch_size": 9, "fit.precision": "fp64"}
        return tiny.prepared(tmp_path, recipe, run, model, **{**quick, **sets})

    return prepare


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory, run: Run, model: Path) -> Any:
    """The real trainer in float64, whose loss is taken of many recipes."""
    sets = {"fit.precision": "fp64", "fit.probe": False}
    folder = tmp_path_factory.mktemp("trainer")
    job = Job.from_file(tiny.resolved(folder, "swift", run, model, **sets))
    weighted = launch.load_trainer(launch.locate_trainer("swift")).data(job)
    return weighted_sft.weighted_trainer(job, training_rows(weighted, job.chat).rows)


Gradient = Callable[..., Gradients]


@pytest.fixture
def gradient(trainer: Any) -> Gradient:
    """Take the gradient of the real trainer's loss, all rows one batch."""

    def take(job: Job, weighted: Weighted, known: Any = None, base: Any = None) -> Gradients:
        trainer.job, trainer.objective = job, load_objective(job.recipe.loss)
        needed = anchors.needs_model(job.recipe.loss)
        trainer.base = weighted_sft.load_frozen_model(job) if base is None and needed else base
        rows = training_rows(weighted, job.chat).rows
        known = weighted_sft.initial_log_probs(job, rows, trainer.model) if known is None else known
        batch = trainer.data_collator(weighted_sft.row_columns(rows, known))
        trainer.model.zero_grad()
        trainer.compute_loss(trainer.model, batch).backward()
        return {name: p.grad.clone() for name, p in trainer.model.named_parameters()}

    return take


Tokens = Callable[[Any, Any, float], Any]
"""(log pi, log pi_0 of a row's own tokens, weight) to what is minimised, one number."""


def trained(job: Job, weighted: Weighted) -> Gradients:
    """The gradient of the first step of a whole training."""
    return recording.record(job, weighted)["steps"][0]


def by_hand(
    policy: Path,
    rows: Sequence[TrainingRow],
    before: Sequence[Sequence[float]],
    minimised: Tokens,
    *,
    mean: bool = False,
) -> Gradients:
    """grad (1/N) sum of what is minimised, one row at a time, no padding, full logits; N is tokens,
    or rows where `mean`."""
    net = transformers.AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float64)
    total, n = torch.zeros((), dtype=torch.float64), 0
    for row, old in zip(rows, before, strict=True):
        now = own_tokens(net, row)
        places = [i for i, on in enumerate(row.tokens.mask) if on and i > 0]
        then = torch.tensor([old[i] for i in places], dtype=torch.float64)
        part = minimised(now, then, row.weight)
        total = total + (part / len(now) if mean else part)
        n += 1 if mean else len(now)
    (total / n).backward()
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def told(policy: Path, rows: Sequence[TrainingRow]) -> list[list[float]]:
    """log pi_0 of every token, 0 where masked: the policy's own, moved to both sides."""
    stream = random.Random(3)
    return [
        [value and value + stream.gauss(0, 0.3) for value in values]
        for values in probs(policy, rows)
    ]


def own_tokens(net: Any, row: TrainingRow) -> torch.Tensor:
    """log pi of the tokens that the policy wrote."""
    ids = torch.tensor(row.tokens.ids)
    each = torch.log_softmax(net(input_ids=ids[None]).logits[0], -1)
    places = [i for i, on in enumerate(row.tokens.mask) if on and i > 0]
    return torch.stack([each[i - 1, ids[i]] for i in places])


def whole(now: torch.Tensor, then: torch.Tensor) -> float:
    """pi / pi_0 of the row, a constant of the gradient."""
    return float((now.detach().sum() - then.sum()).exp())


def ppo(now: torch.Tensor, then: torch.Tensor, weight: float) -> torch.Tensor:
    """Equation (6), token by token, as a loop."""
    total = torch.zeros((), dtype=now.dtype)
    for one, other_one in zip(now, then, strict=True):
        ratio = torch.exp(one - other_one)
        inside = torch.clamp(ratio, 0.8, 1.2)
        total = total - torch.minimum(ratio * weight, inside * weight)
    return total


def k3(now: torch.Tensor, then: torch.Tensor) -> torch.Tensor:
    """u - 1 - log u, u = base / pi."""
    u = torch.exp(then) / torch.exp(now)
    return (u - 1 - torch.log(u)).sum()


HAND: dict[str, tuple[dict[str, Any], Tokens]] = {
    "tis": ({}, lambda now, then, w: -(
        w * torch.minimum(now.exp() / then.exp(), torch.ones_like(now)).detach() * now).sum()),
    "tis sequence": ({"loss.ratio": "sequence", "loss.most": 2.0}, lambda now, then, w: -(
        w * min(2.0, whole(now, then)) * now.sum())),
    "a-lol": ({"loss.low": 0.5, "loss.high": 0.5}, lambda now, then, w: -(
        w * min(1.5, max(0.5, whole(now, then))) * now.sum())),
    "ppo": ({}, ppo),
    "topr": ({}, lambda now, then, w: -(
        w * (min(1.0, whole(now, then)) if w < 0 else 1.0) * now.sum())),
    "swift floor": ({"loss.negative": "floor", "loss.floor": 0.5}, lambda now, then, w: -(
        w * (torch.maximum(now, then - 0.5) if w < 0 else now).sum())),
    "unlikelihood": ({}, lambda now, then, w: -(
        w * now.sum() if w >= 0 else -w * torch.log(1 - torch.exp(now)).sum())),
}  # fmt: skip


@pytest.mark.parametrize("case", HAND)
def test_gradients_are_those_of_the_equations(
    make: Make, gradient: Gradient, model: Path, case: str
) -> None:
    recipe = case.split()[0]
    sets, minimised = HAND[case]
    job, weighted = make(recipe, **sets)
    rows = training_rows(weighted, job.chat).rows
    before = told(model, rows)
    found = gradient(job, weighted, known={"pi_0": before})
    assert apart(found, by_hand(model, rows, before, minimised)) < 1e-6
    plain = by_hand(model, rows, before, lambda now, then, w: -(w * now.sum()))
    assert apart(found, plain) > 1e-3, "the objective does nothing"


def probs(folder: Path, rows: Sequence[TrainingRow]) -> list[list[float]]:
    """log pi of another model, as the trainer would have computed it."""
    net = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    found = []
    for row in rows:
        each = iter(own_tokens(net, row).tolist())
        own = [on and i > 0 for i, on in enumerate(row.tokens.mask)]
        found.append([next(each) if on else 0.0 for on in own])
    return found


def test_grpo_is_the_mean_over_tokens_with_a_k3_anchor(
    make: Make, gradient: Gradient, model: Path
) -> None:
    job, weighted = make("grpo")
    rows = training_rows(weighted, job.chat).rows
    before = told(model, rows)
    wanted = by_hand(
        model, rows, before,
        lambda now, then, w: ppo(now, then, w) + 0.04 * k3(now, then), mean=True,
    )  # fmt: skip
    found = gradient(job, weighted, known={"pi_0": before, "base": before})
    assert apart(found, wanted) < 1e-6


@pytest.mark.parametrize("kind", ["kl", "forward-kl"])
def test_exact_anchors_are_sums_over_the_vocabulary(
    make: Make, gradient: Gradient, model: Path, other: Path, kind: str
) -> None:
    job, weighted = make("swift", **{"loss.anchor": kind, "loss.anchor_weight": 0.3})
    base = transformers.AutoModelForCausalLM.from_pretrained(other, dtype=torch.float64)
    rows = training_rows(weighted, job.chat).rows
    found = gradient(job, weighted, base=base)
    net = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    total, n = torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        ids = torch.tensor([row.tokens.ids])
        p, q = (torch.softmax(one(input_ids=ids).logits[0], -1) for one in (net, base))
        for i in (i for i, on in enumerate(row.tokens.mask) if on and i > 0):
            first, second = (p[i - 1], q[i - 1].detach())[:: 1 if kind == "kl" else -1]
            apart_by = (first * (first.log() - second.log())).sum()
            total = total - row.weight * p[i - 1, ids[0, i]].log() + 0.3 * apart_by
            n += 1
    (total / n).backward()
    wanted = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    assert apart(found, wanted) < 1e-6


EQUALS: dict[str, tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]] = {
    "ratio 1: tis is swift": (("tis", {}), ("swift", {})),
    "ratio 1: tis by sequence is swift": (("tis", {"loss.ratio": "sequence"}), ("swift", {})),
    "ratio 1: ppo is swift": (("ppo", {}), ("swift", {})),
    "ratio 1: topr is swift without the deviation": (
        ("topr", {}), ("swift", {"weighting.scale": False})),
    "ratio 1: a k3 anchor pulls nowhere": (("swift-anchored", {}), ("swift", {})),
    "ratio 1: grpo is swift by row": (("grpo", {}), ("swift", {"fit.normalize": "lengths"})),
    "ratio 1: a-lol is swift's positive part": (
        ("a-lol", {}), ("weighted", {"weighting.scale": False, "weighting.keep": "positive"})),
    "no clip: a-lol is swift's positive part": (
        ("a-lol", {"loss.low": 0.0, "loss.high": 0.0}),
        ("weighted", {"weighting.scale": False, "weighting.keep": "positive"})),
    "no weight below 0: unlikelihood is refit": (
        ("refit", {"loss.negative": "unlikelihood"}), ("refit", {})),
    "an endless floor is swift": (
        ("swift", {"loss.negative": "floor", "loss.floor": 1e6}), ("swift", {})),
    "awr, temperature to infinity: sft": (
        ("awr", {"weighting.temperature": 1e12}), ("star-gate", {"weighting.threshold": -1.0})),
    "an sft anchor raises every weight": (
        ("refit", {"loss.anchor": "sft", "loss.anchor_weight": 1.0}), ("refit plus 1", {})),
}  # fmt: skip


@pytest.mark.parametrize("case", EQUALS)
def test_a_special_case_is_the_objective_it_generalises(
    make: Make, gradient: Gradient, case: str
) -> None:
    one, two = EQUALS[case]
    found = []
    for recipe, sets in (one, two):
        name = {"weighted": "swift", "refit plus 1": "refit"}.get(recipe, recipe)
        trainer = {"trainer": "weighted"} if recipe == "weighted" else {}
        job, weighted = make(name, **sets, **trainer)
        if recipe == "refit plus 1":
            more = tuple((item, weight + 1) for item, weight in weighted.items)
            weighted = Weighted(weighted.selection, more)
        found.append(gradient(job, weighted))
    assert apart(*found) < 1e-6


def test_exact_divergence_pulls_nowhere_at_the_base(make: Make, gradient: Gradient) -> None:
    plain = gradient(*make("swift"))
    for kind in ("kl", "forward-kl"):
        sets = {"loss.anchor": kind, "loss.anchor_weight": 5.0}
        assert apart(gradient(*make("swift", **sets)), plain) < 1e-6


@pytest.mark.parametrize(("kind", "packing"), [("kl", False), ("forward-kl", True)])
def test_an_exact_anchor_at_the_labels_alone_is_that_of_all_logits(
    make: Make, kind: str, packing: bool
) -> None:
    """float64 takes all logits; the second step's policy is no longer the base, and float32 has
    rounded once more."""
    sets = {"loss.anchor": kind, "loss.anchor_weight": 5.0, "fit.max_steps": 2}
    wanted, found = (
        recording.record(*make("swift", **sets, **more))["steps"][1]
        for more in ({}, {"fit.precision": "fp32", "fit.packing": packing})
    )
    plain = recording.record(*make("swift", **{"fit.max_steps": 2}))["steps"][1]
    assert apart(found, wanted) < 3e-5
    assert apart(plain, wanted) > 1e-3


def test_a_batch_s_weights_are_those_of_its_rows(make: Make, gradient: Gradient) -> None:
    """All nine rows are one step, in three batches: standardised over the batch is standardised
    over all."""
    every = make("swift", trainer="weighted", **{"weighting.over": "all"})
    split = trained(*make("swift", trainer="weighted",
                           **{"weighting.over": "batch", "fit.batch_size": 3,
                              "fit.accumulation": 3}))  # fmt: skip
    assert apart(split, gradient(*every)) < 1e-6, "accumulated batches are one step"


def test_the_base_s_log_probabilities_are_those_of_one_row_at_a_time(
    make: Make, model: Path
) -> None:
    job, weighted = make("swift")
    rows = training_rows(weighted, job.chat).rows
    net = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    found = reference.log_probs(net, rows)
    for one, other_one in zip(found, probs(model, rows), strict=True):
        assert one == pytest.approx(other_one, abs=1e-9)
    assert len({len(one) for one in found}) > 3, "rows of unequal lengths are padded"


def log_pi(net: Any, prompt: Sequence[int], reply: Sequence[int]) -> torch.Tensor:
    """Sum of log pi of a reply's tokens."""
    ids = torch.tensor([[*prompt, *reply]])
    each = net(input_ids=ids).logits[0, :-1].log_softmax(-1)
    return each.gather(-1, ids[0, 1:, None])[len(prompt) - 1 :].sum()


def moved(trainer: Any, policy: Path) -> Any:
    """Have a trainer of preferences begin at another policy than the one it compares with."""
    net = transformers.AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float64)
    trainer.model.load_state_dict(net.state_dict())
    return trainer


def desirable(make: Make, **sets: Any) -> tuple[Job, list[dict[str, Any]]]:
    """KTO's recipe, four rows a step, and its rows."""
    job, weighted = make("kto", **{"data.unit": "turn", "fit.batch_size": 4, **sets})
    rows = training_rows(weighted, job.chat, unit="turn").rows
    found = unpaired.label_rows(rows, 4, 0)
    assert len(found) == 12, "weight 0 is left out"
    assert len({one["label"] for one in found[:4]}) == 2
    return job, found


def test_kto_is_the_equation(make: Make, model: Path, other: Path) -> None:
    """Away from the base, z the mean log ratio of the batch's completions gone round by one."""
    job, found = desirable(make)
    watch = recording.watched(moved(unpaired.kto_trainer(job, found), other))
    net, base = (transformers.AutoModelForCausalLM.from_pretrained(p, dtype=torch.float64)
                 for p in (other, model))  # fmt: skip

    def ratio(prompt: Sequence[int], reply: Sequence[int]) -> torch.Tensor:
        return log_pi(net, prompt, reply) - log_pi(base, prompt, reply).detach()

    some = found[:4]
    around = [ratio(one["prompt_ids"], one["KL_completion_ids"]).item() for one in some]
    z = max(0.0, sum(around) / 4)
    total = torch.zeros((), dtype=torch.float64)
    for one in some:
        sign = 1 if one["label"] else -1
        value = ratio(one["prompt_ids"], one["completion_ids"])
        total = total + 1 - torch.sigmoid(sign * 0.1 * (value - z))
    (total / 4).backward()
    wanted = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    assert watch["loss"] == pytest.approx([total.item() / 4], abs=1e-6)
    assert apart(watch["steps"][0], wanted) < 1e-6


@pytest.mark.parametrize(("beta", "away"), [(0.3, False), (1e-7, True)])
def test_kto_at_the_base_or_without_a_pull_is_swift_of_signs(
    make: Make, model: Path, other: Path, beta: float, away: bool
) -> None:
    """Where pi is pi_0 the sigmoid's slope is 1/4 whatever beta is, and everywhere as beta goes to
    0: then the gradient is beta / 4 times that of weights 1 and -1, a mean over replies."""
    job, found = desirable(make, **{"pairing.beta": beta})
    trainer = unpaired.kto_trainer(job, found)
    watch = recording.watched(moved(trainer, other) if away else trainer)
    net = transformers.AutoModelForCausalLM.from_pretrained(
        other if away else model, dtype=torch.float64
    )
    signed = [
        (-1 if one["label"] else 1) * log_pi(net, one["prompt_ids"], one["completion_ids"])
        for one in found[:4]
    ]
    (torch.stack(signed).mean() * beta / 4).backward()
    wanted = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    assert apart(watch["steps"][0], wanted) < 1e-6
    assert watch["loss"] == pytest.approx([0.5], abs=1e-5)


def test_completions_of_a_kto_batch_go_round_by_one(make: Make) -> None:
    job, weighted = make("kto", **{"data.unit": "turn"})
    rows = training_rows(weighted, job.chat, unit="turn").rows
    found = unpaired.label_rows(rows, 5, None)
    own = [one["completion_ids"] for one in found]
    assert [one["KL_completion_ids"] for one in found[:5]] == [own[4], *own[:4]]
    assert len(unpaired.label_rows(rows, 11, None)) == 11, "none stays alone"
    good, bad = ([row for row in rows if row.weight * sign > 0] for sign in (1, -1))
    with pytest.raises(TrainError, match="replies of one sign only"):
        unpaired.label_rows([*good[:4], bad[0]], 4, None)
    with pytest.raises(TrainError, match="replies of one sign only"):
        unpaired.label_rows([row for row in rows if row.weight > 0], 4, None)
    with pytest.raises(TrainError, match="expected turn"):
        make("kto")


def margin(net: Any, base: Any, row: Any) -> torch.Tensor:
    """IPO's: the better reply's log(pi / pi_0) a token less the worse one's."""
    each = [
        (log_pi(net, row.prompt_ids, reply) - log_pi(base, row.prompt_ids, reply).detach())
        / len(reply)
        for reply in (row.chosen_ids, row.rejected_ids)
    ]
    return each[0] - each[1]


def test_ipo_is_the_equation(make: Make, model: Path, other: Path) -> None:
    job, pairs = make("ipo", **{"fit.batch_size": 50})
    rows = pair_rows(pairs, job.chat).rows
    watch = recording.watched(moved(preference.dpo_trainer(job, rows), other))
    net, base = (transformers.AutoModelForCausalLM.from_pretrained(p, dtype=torch.float64)
                 for p in (other, model))  # fmt: skip
    total = sum((margin(net, base, row) - 1 / (2 * 0.1)) ** 2 for row in rows) / len(rows)
    total.backward()
    wanted = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    assert watch["loss"] == pytest.approx([total.item()], rel=1e-6)
    assert apart(watch["steps"][0], wanted) < 1e-6


def test_ipo_rests_at_its_margin(make: Make, model: Path, other: Path) -> None:
    """The squared distance from 1 / (2 beta) has its least there: a pair of that margin has no
    gradient, one of another has."""
    job, pairs = make("ipo")
    net, base = (transformers.AutoModelForCausalLM.from_pretrained(p, dtype=torch.float64)
                 for p in (other, model))  # fmt: skip
    row, gap = next(
        (row, gap)
        for row in pair_rows(pairs, job.chat).rows
        if (gap := margin(net, base, row).item()) > 0.01
    )
    steepest = []
    for beta in (1 / (2 * gap), 1 / gap):
        job, _ = make("ipo", **{"pairing.beta": beta, "fit.batch_size": 1})
        watch = recording.watched(moved(preference.dpo_trainer(job, [row]), other))
        steepest.append(max(float(each.abs().max()) for each in watch["steps"][0].values()))
    assert steepest[0] < 1e-9 * steepest[1]


def test_the_head_of_labels_alone_is_trl_s(model: Path) -> None:
    """What its trainers log, too; masked labels are 0."""
    ids = torch.arange(24).reshape(2, 12) % 17
    labels = ids.masked_fill(torch.arange(12) < torch.tensor([[4], [7]]), -100)
    found = []
    for ours in (False, True):
        net = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        trl_utils.add_fused_lm_head(net, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
        if ours:
            head.score_labels_alone(net, looks=True)
        found.append(net(input_ids=ids, labels=labels, fused_lm_head=True))
    for name in ("log_probs", "entropy", "mean_logits"):
        assert torch.allclose(*(getattr(one, name) for one in found), atol=1e-5), name
    assert torch.equal(found[0].is_top1, found[1].is_top1)
    assert not found[1].log_probs[0, :3].any()


def test_every_shipped_objective_is_here() -> None:
    assert objective_names() == ["a-lol", "nll", "ppo", "tis"]
    for name in objective_names():
        assert callable(load_objective(Loss(name=name)).loss)


def test_what_is_no_objective_is_refused(tmp_path: Path, make: Make) -> None:
    with pytest.raises(SpecError, match="expected one of a-lol, nll, ppo, tis"):
        load_objective(Loss(name="magic"))
    with pytest.raises(SpecError, match="found no such file"):
        load_objective(Loss(name=str(tmp_path / "none.py")))
    (tmp_path / "mine.py").write_text("x = 1\n")
    with pytest.raises(SpecError, match="found no function"):
        load_objective(Loss(name=str(tmp_path / "mine.py")))
    with pytest.raises(SpecError, match=r"loss.negative: found floor, which objective ppo"):
        load_objective(Loss(name="ppo", negative="floor"))
    with pytest.raises(TrainError, match=r"weighting.over: found batch, which trainer swift"):
        make("swift", **{"weighting.over": "batch"})


def test_a_row_without_a_reward_is_learnt_by_likelihood_alone(
    make: Make, gradient: Gradient, other: Path
) -> None:
    """Beside PPO's rows, whose terms are as they were: its own gradient times its weight."""
    job, weighted = make("ppo")
    name = weighted.items[0][0].conversation.conversation_id
    items = [(item, 0.7 if n == 0 else weight) for n, (item, weight) in enumerate(weighted.items)]
    rows = training_rows(weighted, job.chat).rows
    before = transformers.AutoModelForCausalLM.from_pretrained(other, dtype=torch.float64)
    known = {"pi_0": reference.log_probs(before, rows)}

    def of(recipe: str, weights: list[float], plain: bool = False) -> Gradients:
        made, data = make(recipe)
        named = frozenset([name]) if plain else frozenset()
        kept = tuple((item, w) for (item, _), w in zip(items, weights, strict=True))
        return gradient(made, replace(data, items=kept, unrewarded_ids=named), known=known)

    every = [weight for _, weight in items]
    first = [0.7] + [0.0] * (len(items) - 1)
    rest = [0.0, *every[1:]]
    alone, others = of("swift", first), of("ppo", rest)
    found = of("ppo", every, plain=True)
    assert apart(found, {key: alone[key] + others[key] for key in alone}) < 1e-9
    assert apart(of("ppo", every), found) > 1e-3, "the objective was not another"
