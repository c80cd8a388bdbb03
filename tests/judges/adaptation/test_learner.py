"""One adaptation after the other: independent, limited, and the base untouched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from convbench.errors import DataError, TrainError
from convbench.judges.adaptation import cache
from convbench.judges.adaptation.closed_book import question_pairs
from convbench.judges.adaptation.learner import AdaptationOutcome, Learner, Question
from convbench.judges.adaptation.passages import Lesson, learn_in_sequence
from convbench.judges.adaptation.settings import edit_parts, training_texts
from convbench.models.weights_path import check_weights
from tests.helpers.self_edits import INNER, KOSAN, TENOS, A, B, asked, weights
from tests.support.later import later

torch = later("torch")


@pytest.fixture(scope="module")
def learner() -> Learner:
    """As a large model is loaded, whose layers are packed where it only samples."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("convbench.models.weights.SMALL", 0)
        return Learner.load(check_weights("pocket"), "cpu")


def same(one: AdaptationOutcome, two: AdaptationOutcome) -> bool:
    """Whether two outcomes agree in everything but time."""
    plain = {"seconds": 0.0, "passes": 0.0}
    return replace(one, **plain) == replace(two, **plain)


def test_order_does_not_matter_and_the_base_stays_as_it_was(learner: Learner) -> None:
    before = weights(learner)
    first = learner.adapt_to(A, KOSAN, INNER)
    second = learner.adapt_to(B, TENOS, INNER)
    assert same(learner.adapt_to(B, TENOS, INNER), second)
    assert same(learner.adapt_to(A, KOSAN, INNER), first)
    alone = Learner.load(check_weights("pocket"), "cpu").adapt_to(A, KOSAN, INNER)
    assert same(alone, first)
    assert weights(learner) == before
    assert not any(m._forward_hooks for m in learner.model.modules())


def test_what_an_edit_says_is_learnt(learner: Learner) -> None:
    found = learner.adapt_to(A, KOSAN, INNER.model_copy(update={"epochs": 20}))
    assert found.accuracy > found.before
    assert found.gain == found.accuracy - found.before
    assert (found.steps, found.texts, len(found.by_seed)) == (20, 2, 2)
    assert 0 < found.passes < found.seconds


def test_bfloat16_computes_nearly_what_float32_does(learner: Learner) -> None:
    from convbench.judges.adaptation.clock import PassClock

    inner = INNER.model_copy(update={"seeds": 1, "epochs": 10, "learning_rate": 3e-4})
    exact, _ = learner.train_adapters(A, inner, PassClock())
    rough, _ = learner.train_adapters(
        A, inner.model_copy(update={"precision": "bf16"}), PassClock()
    )
    assert rough.flat.dtype == exact.flat.dtype == torch.float32
    apart = float((rough.flat - exact.flat).norm() / exact.flat.norm())
    assert 0 < apart < 0.1, "other arithmetic, nearly the same updates"


def test_seeds_side_by_side_are_seeds_alone(learner: Learner) -> None:
    """Seed 1 trained beside seed 0 gives the replies it gives alone."""
    both = learner.adapt_to(A, KOSAN, INNER)
    alone = learner.adapt_to(A, KOSAN, INNER.model_copy(update={"seed": 1, "seeds": 1}))
    assert both.replies[1] == alone.replies[0]
    assert both.by_seed[1] == alone.accuracy


def test_the_gradient_is_that_of_plain_lora(learner: Learner) -> None:
    """One Adam step moves B by the learning rate against the sign
    of a gradient that autograd gives for merged weights."""
    from convbench.judges.adaptation.clock import PassClock
    from convbench.judges.adaptation.lora import MultiSeedLora

    inner = INNER.model_copy(update={"seeds": 1, "epochs": 1, "batch_size": 2, "max_grad_norm": 0})
    stack, steps = learner.train_adapters(A, inner, PassClock())
    assert steps == 1
    fresh = MultiSeedLora(learner.model, inner, [0])
    weight = fresh.layers[0][1].weight
    weight.requires_grad_(True)
    try:
        rows = [learner._token_row(text, inner) for text in A]
        total = sum(len(row) - 1 for row in rows)
        loss = sum(
            learner.model(torch.tensor([row]), labels=torch.tensor([row])).loss * (len(row) - 1)
            for row in rows
        )
        (gradient,) = torch.autograd.grad(loss / total, [weight])
    finally:
        weight.requires_grad_(False)
    wanted = (fresh.pairs[0][0][0].T @ gradient.T) * fresh.scale
    moved = stack.pairs[0][1][0]
    large = wanted.abs() > wanted.abs().median()
    assert torch.equal(moved[large].sign(), -wanted[large].sign())
    step = float(moved[large].abs().mean().detach())
    assert step == pytest.approx(inner.learning_rate, rel=0.02)


def test_merging_is_wearing(learner: Learner) -> None:
    import copy

    from convbench.judges.adaptation.clock import PassClock

    stack, _ = learner.train_adapters(A, INNER, PassClock())
    ids = torch.tensor([learner._prompt_ids(KOSAN[0])])
    with torch.no_grad(), stack.apply_to_model():
        worn = learner.model(ids.repeat(2, 1)).logits
    for row in range(2):
        merged = copy.deepcopy(learner.model)
        stack.merge_into(merged, row)
        with torch.no_grad():
            assert torch.allclose(merged(ids).logits[0], worn[row], atol=1e-3)


def test_answers_in_a_batch_are_answers_alone(learner: Learner) -> None:
    """Prompts of unequal length are padded; nobody may notice."""
    from convbench.judges.adaptation.clock import PassClock

    known = (*TENOS, asked("kosan", "home", "x"), *KOSAN)
    longer = Question(({"role": "system", "content": "You are a helpful assistant."},
                       *known[0].messages), ("x",))  # fmt: skip
    together = learner.ask_questions([*known, longer], INNER, PassClock())[0]
    for question, reply in zip([*known, longer], together, strict=True):
        assert learner.ask_questions([question], INNER, PassClock())[0] == [reply]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"learning_rate": 1e30}, "diverged"),
        ({"max_steps": 3}, "needs 6 steps; the limit is 3"),
        ({"max_seconds": 1e-9}, "took longer than 1e-09 s"),
    ],
)
def test_an_edit_that_fails_is_no_improvement(
    learner: Learner, change: dict[str, float], why: str
) -> None:
    found = learner.adapt_to(A, KOSAN, INNER.model_copy(update=change))
    assert (found.gain, found.accuracy, found.replies) == (0, found.before, ())
    assert found.reason is not None
    assert why in found.reason
    assert not any(m._forward_hooks for m in learner.model.modules())


def test_edits_are_written_by_the_policy_as_merged_so_far(learner: Learner) -> None:
    """Each lesson's edit is asked of the merged weights; the learner itself stays as it was."""
    before, seen = weights(learner), []

    def write(pupil: Learner) -> tuple[str, ...]:
        seen.append(weights(pupil))
        asked = [{"role": "user", "content": "Topic: kosan\nkosan: field\n\nWrite implications."}]
        drawn = [pupil.draw_reply(asked, 12, 1.0, seed) for seed in (3, 3)]  # type: ignore[arg-type]
        assert drawn[0] == drawn[1], "the same for the same seed"
        return tuple(A)

    def nothing(pupil: Learner) -> tuple[str, ...]:
        raise DataError("the self-edit '' has no line to train on")

    lessons = [Lesson("a", (), KOSAN, write), Lesson("n", (), TENOS, nothing),
               Lesson("b", (), TENOS, write)]  # fmt: skip
    found = learn_in_sequence(learner, lessons, INNER.model_copy(update={"epochs": 2}))
    assert seen[0] == before
    assert seen[1] != before
    assert weights(learner) == before
    assert [name for name, _ in found.skipped] == ["n"]
    assert len(found.base) == 3
    assert found.base[0] == found.before[0]
    assert [len(row) for row in found.after] == [1, 2, 3]


def test_texts_of_an_edit() -> None:
    edit = "- one.\n\n  - two.  \n"
    titled = ["T\n- one.", "T\n- two.", "T\nP."]
    assert training_texts(edit, "T", "P.", INNER) == titled
    plain = INNER.model_copy(update={"titled": False})
    assert training_texts(edit, "T", "P.", plain) == [*titled[:2], "P."]
    bare = INNER.model_copy(update={"passage": False})
    assert training_texts(edit, "T", "P.", bare) == ["T\n- one.", "T\n- two."]
    assert training_texts(None, "T", "P.", bare) == ["T\nP."]
    with pytest.raises(DataError, match="no line to train on"):
        training_texts("\n --- \n", "T", "P.", INNER)


@pytest.mark.parametrize(
    ("edit", "paper", "lines"),
    [
        ("one.\n--- \ntwo a.\ntwo b.\n", ["one.", "two a.\ntwo b."], 3),
        ("Question 1: Who?\nAnswer: Al.\n\nQuestion 2: When?\nAnswer: Now.",
         ["Question 1: Who?\nAnswer: Al.", "Question 2: When?\nAnswer: Now."], 4),
        ("Here you are:\nQuestion: Who?\nAl.", ["Here you are:", "Question: Who?\nAl."], 3),
        ("Implications:\n1. one.\n2. two.", ["1. one.", "2. two."], 3),
        ("Facts\n- one.\n- two.", ["Facts", "- one.", "- two."], 3),
    ],
)  # fmt: skip
def test_parts_of_an_edit(edit: str, paper: list[str], lines: int) -> None:
    assert edit_parts(edit, INNER) == paper
    by_line = INNER.model_copy(update={"texts": "lines"})
    assert len(edit_parts(edit, by_line)) == lines
    assert len(edit_parts(edit, INNER.model_copy(update={"texts": "whole"}))) == 1


def test_a_model_without_such_layers_is_refused(learner: Learner) -> None:
    with pytest.raises(TrainError, match="found no linear layer named c_attn"):
        learner.adapt_to(A, KOSAN, INNER.model_copy(update={"target_modules": ("c_attn",)}))


def test_the_cache_key_holds_all_that_matters(tmp_path: Path) -> None:
    first = cache.adaptation_key("p1", A, KOSAN, INNER)
    others = [
        cache.adaptation_key("p2", A, KOSAN, INNER),
        cache.adaptation_key("p1", A[::-1], KOSAN, INNER),
        cache.adaptation_key("p1", A, TENOS, INNER),
        cache.adaptation_key("p1", A, KOSAN, INNER.model_copy(update={"epochs": 7})),
        cache.adaptation_key("p1", A, KOSAN, INNER, "gpt-4o"),
    ]
    assert len({first, *others}) == 6
    assert (
        cache.adaptation_key("p1", A, KOSAN, INNER.model_copy(update={"max_seconds": 5})) == first
    )
    found = AdaptationOutcome(0.5, 0.25, (0.5,), (("yes",),), 2, 6, 1.5, 1.0)
    with cache.WorkCache(tmp_path / "a.jsonl", AdaptationOutcome) as kept:
        kept.put(first, found)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"key": "torn')
    with cache.WorkCache(tmp_path / "a.jsonl", AdaptationOutcome) as kept:
        assert kept.get(first) == found
        assert kept.get(others[0]) is None
        kept.put(others[0], found)
    with cache.WorkCache(tmp_path / "a.jsonl", AdaptationOutcome) as kept:
        assert kept.get(others[0]) == found


def test_a_text_never_passes_the_models_positions(learner: Learner) -> None:
    long = "kosan has home field. " * 400
    assert len(learner._token_row(long, INNER)) == learner.model.config.max_position_embeddings
    assert len(learner._token_row(long, INNER.model_copy(update={"max_length": 7}))) == 7
    assert learner._token_row("kosan", INNER)[-1] == learner.tokenizer.eos_token_id


def test_questions_in_a_reply() -> None:
    text = (
        "Here they are.\nQuestion: Who won? Answer: Denver.\n- What is the home of kosan? field.\n"
        "2. Q: When? A: in 2016\nQuestion: Who won? Answer: again\nWhy?\n"
    )
    assert list(question_pairs(text)) == [
        {"question": "Who won?", "answer": "Denver"},
        {"question": "What is the home of kosan?", "answer": "field"},
        {"question": "When?", "answer": "in 2016"},
    ]
