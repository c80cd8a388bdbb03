"""Where a training is placed: at the papers' shapes, on simulated cards, by arithmetic alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from convbench import catalog
from convbench.errors import TrainError
from convbench.learn.launch import trainer_folder
from convbench.learn.memory import shard_plan
from convbench.learn.place_recipe import measure_rows, student_lines
from convbench.learn.placement import (
    Machine,
    Pinned,
    RowLengths,
    TrainingPlacement,
    pinned_settings,
    place_training,
    this_machine,
)
from convbench.learn.shapes import ModelShape, shape_of
from convbench.learn.steps import batch_notes, with_accumulation
from convbench.learn.train import adopt_placement, split_sets, train_recipe
from convbench.models.devices import host_memory
from convbench.models.weights_path import shipped_folder
from convbench.options.train import TrainOptions
from convbench.schema.recipe import LaunchSpec, Recipe
from tests.helpers import stages
from tests.helpers.runs import conversation, write_run
from tests.helpers.shapes import QWEN_7B, write_config, write_model

GB = 10**9
FREE = Pinned()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    """Llama-3.1-8B's shape."""
    shape = shape_of(str(write_config(tmp_path_factory.mktemp("models") / "llama")))
    assert shape is not None
    return shape


def placed(
    shape: ModelShape,
    recipe: str,
    cards: int,
    host: float,
    *,
    launch: str = "none",
    tokens: int = 2048,
    pinned: Pinned = FREE,
    card: float = 80,
    **sets: object,
) -> TrainingPlacement:
    """Where a shipped recipe is placed."""
    return place_training(
        catalog.load_spec(Recipe, "recipes", recipe, sets=sets),
        catalog.load_spec(LaunchSpec, "launch", launch),
        shape,
        RowLengths(tokens, tokens, tokens, 1000, "a test"),
        Machine(cards, card * GB, host * GB),
        pinned=pinned,
    )


def rows_of_a_step(placement: TrainingPlacement) -> int:
    fit = placement.best.recipe.fit
    return fit.batch_size * fit.accumulation * placement.best.launch.process_count


def test_all_weights_of_8b_on_one_card_are_trained_with_the_optimiser_in_host_memory(
    llama: ModelShape,
) -> None:
    placement = placed(llama, "swift", 1, 256)
    assert (placement.first.launch.name, placement.first.does_fit) == ("none", False)
    assert placement.first.card_bytes > 16 * llama.weight_count, "128 GB before activations"
    assert placement.does_fit
    assert (placement.best.launch.name, placement.best.process_count) == ("zero2", 1)
    assert "optimizer" in shard_plan(placement.best.launch).host
    assert placement.best.card_bytes < 80 * GB
    assert 16 * llama.weight_count < placement.best.host_bytes < 256 * GB
    (reason,) = placement.reason_lines()
    assert reason.startswith("does not fit: none on 1 card")
    assert "optimiser in host memory" in placement.summary_line()


def test_with_64_gb_of_host_memory_it_is_refused_with_what_is_missing(llama: ModelShape) -> None:
    placement = placed(llama, "swift", 1, 64)
    assert not placement.does_fit
    missing = placement.best.host_bytes / GB - 64
    assert placement.refusal_line() == placement.summary_line()
    assert placement.summary_line().endswith(f"missing: {missing:.0f} GB of host memory")
    with pytest.raises(TrainError, match=r"recipe 'swift': nothing fits; .*lora\.r=16"):
        adopt_placement(placement, TrainOptions("swift"), [])
    recipe, launch, notes = adopt_placement(placement, TrainOptions("swift", dry_run=True), ["a"])
    assert (recipe, launch.name, notes) == (placement.first.recipe, "none", ["a"])


@pytest.mark.parametrize("host", [256, 64])
def test_a_launch_that_the_user_names_is_kept_to(llama: ModelShape, host: int) -> None:
    pinned = Pinned(launch=True)
    placement = placed(llama, "swift", 1, host, launch="zero2", pinned=pinned)
    assert placement.does_fit == (host == 256)
    assert placement.best.launch.name == "zero2"
    none = placed(llama, "swift", 1, host, pinned=pinned)
    assert not none.does_fit
    assert {attempt.launch.name for attempt in none.tried} == {"none"}


def test_sweet_fits_eight_cards_and_every_stage_of_it(llama: ModelShape) -> None:
    placement = placed(llama, "sweet", 8, 1000, tokens=16_384)
    assert placement.does_fit
    assert placement.best.process_count == 8
    assert list(placement.best.parts) == ["critic", "sweet", "ranking"]
    needs = [part.total + 1e9 for part in placement.best.parts.values()]
    assert max(needs) == placement.best.card_bytes <= 80 * GB
    assert placement.first.launch.name == "none", "the recipe's own"
    assert placement.first.card_bytes > 151 * GB
    assert rows_of_a_step(placement) == 8


def test_what_a_students_readings_take_is_said_where_one_is_chosen(llama: ModelShape) -> None:
    recipe = catalog.load_spec(Recipe, "recipes", "star-gate-d")
    (line,) = student_lines(recipe, llama)
    assert "the complete base (distil.student_layers)" in line
    assert "at least 128 GB" in line
    assert "its first 8 layers 45" in line
    assert "the teacher 16 " in line
    assert list(student_lines(catalog.load_spec(Recipe, "recipes", "swift"), llama)) == []
    few = placed(llama, "star-gate-d-first8", 1, 256)
    assert (few.best.launch.name, few.does_fit) == ("none", True)
    assert placed(llama, "star-gate-d", 1, 256).first.card_bytes > 144 * GB


@pytest.mark.parametrize("tokens", [512, 2048, 8192, 32_768])
@pytest.mark.parametrize("cards", [1, 2, 3, 4, 8])
def test_the_papers_batch_is_reached_on_any_number_of_cards(
    llama: ModelShape, cards: int, tokens: int
) -> None:
    placement = placed(llama, "swift", cards, 1000, tokens=tokens, **{"fit.batch": 64})
    assert rows_of_a_step(placement) == 64
    assert placement.does_fit
    assert placement.best.process_count <= cards


@pytest.mark.parametrize(
    ("processes", "rows", "size"),
    [
        (1, 64, 8),
        (2, 64, 8),
        (3, 63, 7),
        (5, 65, 1),
        (6, 66, 1),
        (7, 63, 3),
        (16, 64, 4),
        (128, 128, 1),
    ],
)
def test_named_processes_that_cannot_share_the_batch_take_the_nearest(
    llama: ModelShape, processes: int, rows: int, size: int
) -> None:
    recipe = catalog.load_spec(Recipe, "recipes", "swift")
    fit = with_accumulation(recipe, processes).fit
    assert (fit.batch, fit.batch_size) == (rows, size)
    assert fit.batch_size * fit.accumulation * processes == rows
    assert with_accumulation(with_accumulation(recipe, processes), processes).fit == fit
    notes = list(batch_notes(64, fit, processes))
    assert len(notes) == (rows != 64)
    if processes == 3:
        assert notes[0].endswith("the nearest number, 63 (7 x 3 x 3); exact with 2 or 4")
    launch = catalog.load_spec(
        LaunchSpec, "launch", "zero3", sets={"accelerate.num_processes": processes}
    )
    pinned, many = Pinned(launch=True, processes=True), RowLengths(512, 512, 512, 1000, "a test")
    machine = Machine(processes, 80 * GB, 4000 * GB)
    placement = place_training(recipe, launch, llama, many, machine, pinned=pinned)
    assert placement.best.launch.process_count == processes
    assert rows_of_a_step(placement) == rows


def test_kto_takes_a_multiple_of_the_rows_that_it_estimates_within(llama: ModelShape) -> None:
    recipe = catalog.load_spec(Recipe, "recipes", "kto")
    fit = with_accumulation(recipe, 3, keep_size=True).fit
    assert (fit.batch, fit.batch_size, fit.accumulation) == (72, 8, 3)
    launch = catalog.load_spec(LaunchSpec, "launch", "zero3", sets={"accelerate.num_processes": 3})
    short = RowLengths(128, 128, 128, 1000, "a test")
    pinned = Pinned(launch=True, processes=True)
    machine = Machine(3, 80 * GB, 4000 * GB)
    placement = place_training(recipe, launch, llama, short, machine, pinned=pinned)
    assert (placement.best.recipe.fit.batch_size, rows_of_a_step(placement)) == (8, 72)
    with pytest.raises(TrainError, match=r"fit\.batch: found 64; expected a multiple of 7"):
        with_accumulation(
            catalog.load_spec(Recipe, "recipes", "kto", sets={"fit.batch_size": 7}), 1
        )


def test_longer_rows_are_fewer_at_once(llama: ModelShape) -> None:
    sizes = [
        placed(llama, "swift", 2, 1000, launch="zero2", tokens=tokens).best.recipe.fit.batch_size
        for tokens in (1024, 4096, 16_384)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 8 > sizes[-1]
    stays = Pinned(rows=True)
    kept = placed(llama, "swift", 2, 1000, launch="zero2", tokens=65_536, pinned=stays)
    assert kept.best.recipe.fit.batch_size == 8


def test_kto_keeps_the_rows_that_it_estimates_within(llama: ModelShape) -> None:
    placement = placed(llama, "kto", 1, 256)
    assert placement.does_fit
    assert {attempt.recipe.fit.batch_size for attempt in placement.tried} == {8}


def test_what_the_recipe_says_comes_first(llama: ModelShape) -> None:
    placement = placed(llama, "swift", 8, 1000, launch="zero2")
    assert placement.best is placement.first
    assert (placement.best.launch.name, placement.best.process_count) == ("zero2", 2)
    assert placement.reason_lines() == []
    adapter = placed(llama, "swift", 1, 64, **{"lora.r": 16})
    assert (adapter.best is adapter.first, adapter.best.launch.name) == (True, "none")


def test_checkpointing_is_turned_on_where_fewer_rows_do_not_do(llama: ModelShape) -> None:
    off = {"fit.gradient_checkpointing": False, "lora.r": 16}
    placement = placed(llama, "swift", 1, 256, tokens=16_384, **off)
    assert placement.best.recipe.fit.gradient_checkpointing
    assert placement.best.launch.name == "none"
    assert not placed(
        llama, "swift", 1, 256, tokens=512, **off
    ).best.recipe.fit.gradient_checkpointing
    stays = placed(llama, "swift", 1, 256, tokens=16_384, pinned=Pinned(checkpointing=True), **off)
    assert not stays.best.recipe.fit.gradient_checkpointing


def test_only_adamw_is_offloaded_and_nothing_where_the_user_said_so(llama: ModelShape) -> None:
    for placement in (
        placed(llama, "swift", 1, 256, **{"fit.optimizer": "adafactor"}),
        placed(llama, "swift", 1, 256, pinned=Pinned(offload=True)),
    ):
        assert not placement.does_fit
        assert not any(shard_plan(attempt.launch).host for attempt in placement.tried)


def test_more_of_anything_never_makes_a_training_unfit(llama: ModelShape) -> None:
    for recipe in ("swift", "dpo", "sweet", "star-gate-d"):
        fits = [
            [placed(llama, recipe, cards, host, **{"fit.batch": 8}).does_fit for host in (64, 1000)]
            for cards in (1, 2, 4, 8)
        ]
        for poorer, richer in pairwise(fits):
            assert poorer[1] <= richer[1]
        assert all(few <= many for few, many in fits)
    smaller = placed(llama, "swift", 1, 1000, card=24)
    assert smaller.best.card_bytes >= placed(llama, "swift", 1, 1000).best.card_bytes * 0.2


def test_without_cards_nothing_is_changed_and_only_what_is_certain_is_refused(
    llama: ModelShape,
) -> None:
    for host, refused in ((50, True), (100, False)):
        placement = placed(llama, "swift", 0, host)
        assert placement.best is placement.first
        assert not placement.does_fit
        assert (placement.refusal_line() is not None) == refused
    assert "at least 64 GB of memory, found 50" in (
        placed(llama, "swift", 0, 50).refusal_line() or ""
    )


def test_several_machines_are_left_as_they_are(llama: ModelShape) -> None:
    launch = catalog.load_spec(
        LaunchSpec,
        "launch",
        "zero3",
        sets={"accelerate.num_machines": 2, "accelerate.num_processes": 16},
    )
    recipe = catalog.load_spec(Recipe, "recipes", "swift")
    machine, lengths = Machine(8, 80e9, 1e12), RowLengths(2048, 2048, 2048, 10, "a test")
    placement = place_training(recipe, launch, llama, lengths, machine)
    assert placement.best.launch == launch
    assert (placement.best.process_count, placement.does_fit) == (8, True)


def test_what_the_user_pins() -> None:
    pairs = ("fit.batch_size=2", "launch.num_processes=4", "recipe.fit.gradient_checkpointing=true")
    assert pinned_settings(None, *split_sets(pairs)) == Pinned(
        launch=True, processes=True, rows=True, checkpointing=True
    )
    assert pinned_settings(None, *split_sets(("fit.batch=64", "lora.r=8"))) == Pinned()
    offload = ("launch.deepspeed_config.offload_optimizer_device=none",)
    assert pinned_settings("zero2", *split_sets(offload)) == Pinned(launch=True, offload=True)


def test_a_trainer_of_ones_own_says_what_its_step_computes(
    llama: ModelShape, tmp_path: Path
) -> None:
    file = tmp_path / "pairs_of_mine.py"
    shutil.copy(trainer_folder() / "refit.py", file)
    weighted = placed(llama, "swift", 1, 256, trainer=str(file)).first.card_bytes
    assert weighted == placed(llama, "swift", 1, 256).first.card_bytes
    file.write_text(file.read_text() + '\nSTEP, SEQUENCES = "preference", 2\n')
    (own,) = placed(llama, "swift", 1, 256, trainer=str(file)).first.trainings
    assert (own.step, own.sequences) == ("preference", 2)
    assert placed(llama, "swift", 1, 256, trainer=str(file)).first.card_bytes > weighted + 16 * GB


def test_qwen_is_placed_as_llama_is(tmp_path: Path) -> None:
    shape = shape_of(str(write_config(tmp_path / "qwen", QWEN_7B)))
    assert shape is not None
    assert shape.weight_count == pytest.approx(7.62e9, rel=0.01)
    assert placed(shape, "swift", 1, 256).does_fit
    assert placed(shape, "seal", 1, 256, tokens=8192).does_fit
    assert not placed(shape, "swift", 1, 64).does_fit


def test_cards_and_host_memory_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", "4x80")
    monkeypatch.setenv("CONVBENCH_SIMULATED_HOST", "256")
    assert this_machine() == Machine(4, 80e9, 256e9)
    assert this_machine(("1", "3")) == Machine(2, 80e9, 256e9)
    assert this_machine(()).cards == 0
    monkeypatch.delenv("CONVBENCH_SIMULATED_HOST")
    assert host_memory() > GB
    monkeypatch.setenv("CONVBENCH_SIMULATED_HOST", "much")
    with pytest.raises(Exception, match=r"CONVBENCH_SIMULATED_HOST: found 'much'; expected GB"):
        host_memory()


def test_rows_are_as_long_as_the_run_recorded(tmp_path: Path) -> None:
    turns = conversation(0, 0, "A").turns
    policy = turns[-1].speaker
    said = [
        turn.model_copy(update={"prompt_tokens": 100 * (n + 1), "completion_tokens": 10})
        if turn.speaker == policy
        else turn
        for n, turn in enumerate(turns)
    ]
    talks = [
        conversation(n, s, "A").model_copy(update={"turns": tuple(said)})
        for n in range(5)
        for s in range(2)
    ]
    run = write_run(tmp_path / "run", conversations=talks)
    train = sum(question.split == "train" for question in run.questions.values())
    own = [turn for turn in said if turn.speaker == policy]
    recipe = catalog.load_spec(Recipe, "recipes", "swift")
    by_turn = measure_rows([run], recipe)
    assert by_turn.rows == 2 * train * len(own) > 0
    assert by_turn.longest == 100 * len(turns) + 10
    assert by_turn.labelled == 10
    data = recipe.data.model_copy(update={"unit": "conversation"})
    whole = measure_rows([run], recipe.model_copy(update={"data": data}))
    assert (whole.rows, whole.longest, whole.labelled) == (
        2 * train,
        by_turn.longest,
        10 * len(own),
    )
    assert measure_rows([run], recipe, 50).longest == 50
    assert run.path.name in by_turn.source


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One simulated card of 80 GB in a machine of 256 GB."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", "1x80")
    monkeypatch.setenv("CONVBENCH_SIMULATED_HOST", "256")
    return monkeypatch


def test_a_dry_run_of_train_says_what_train_chooses(
    tmp_path: Path, card: pytest.MonkeyPatch
) -> None:
    run, model = write_run(tmp_path / "run", count=8), write_model(tmp_path / "llama")
    options = TrainOptions("refit", (run.path,), str(model), dry_run=True)
    done = train_recipe(options)
    assert done.launch.name == "zero2"
    assert done.launch.process_count == 1
    assert any(line.startswith("memory: fits, zero2 on 1 card, optimiser") for line in done.preview)
    assert any("does not fit: none on 1 card" in line for line in done.preview)
    assert any(note.startswith("placed to fit: zero2 on 1 card") for note in done.notes)
    assert not any("asks for 2 accelerators" in note for note in done.notes)

    before = sorted(tmp_path.rglob("*"))
    card.setenv("CONVBENCH_SIMULATED_HOST", "64")
    (line,) = [line for line in train_recipe(options).preview if line.startswith("memory: ")]
    assert "nothing fits" in line
    with pytest.raises(TrainError, match="recipe 'refit': nothing fits; the least is zero2"):
        train_recipe(replace(options, dry_run=False))
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


def test_train_starts_what_was_chosen_and_records_it(
    tmp_path: Path, card: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the command that is started."""
    started: list[list[str]] = []

    def note_command(parts: list[str], *_: object, **__: object) -> None:
        started.append(list(parts))
        raise TrainError("started")

    card.setattr("convbench.learn.launch.run_command", note_command)
    run, model = write_run(tmp_path / "run", count=8), write_model(tmp_path / "llama")
    with pytest.raises(TrainError, match="started"):
        stages.train("refit", run.path, model=str(model), in_process=True)
    (folder,) = run.checkpoints_folder.iterdir()
    (command,) = started
    assert "accelerate.commands.launch" in command
    config = (folder / "accelerate.yaml").read_text()
    assert "offload_optimizer_device: cpu" in config
    assert "num_processes: 1\n" in config
    assert "accumulation: 8" in (folder / "recipe.yaml").read_text(), "64 rows a step on one card"


def test_a_small_model_trains_as_it_did(tmp_path: Path, card: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", count=8)
    tiny = json.loads((Path(shipped_folder("pocket")) / "config.json").read_text())
    small = write_model(tmp_path / "small", tiny)
    done = stages.train("refit", run.path, model=str(small), dry_run=True)
    assert (done.launch.name, done.recipe.fit.batch_size) == ("none", 8)
    assert any("asks for 2 accelerators" in note for note in done.notes)


def test_settings_of_the_user_stay(tmp_path: Path, card: pytest.MonkeyPatch) -> None:
    run, model = write_run(tmp_path / "run", count=8), write_model(tmp_path / "llama")
    done = stages.train(
        "refit", run.path, model=str(model), set=("fit.batch_size=2", "lora.r=8"), dry_run=True
    )
    assert (done.launch.name, done.recipe.fit.batch_size, done.recipe.fit.accumulation) == (
        "none",
        2,
        32,
    )


def test_a_base_in_4_bits_fits_a_small_card(llama: ModelShape) -> None:
    quantized = {"lora.r": 16, "lora.quantize": "4bit"}
    small = placed(llama, "swift", 1, 64, card=16, tokens=512, **quantized)
    assert small.does_fit
    assert 4.5 * GB < small.best.parts["swift"].weights < 7 * GB
    whole = placed(llama, "swift", 1, 64, card=16, tokens=512, **{"lora.r": 16})
    assert whole.best.launch.name != "none"
    assert not whole.first.does_fit


def test_cards_of_unknown_size_and_other_machines_are_not_judged(
    tmp_path: Path, card: pytest.MonkeyPatch
) -> None:
    run, model = write_run(tmp_path / "run", count=8), write_model(tmp_path / "llama")
    options = TrainOptions("refit", (run.path,), str(model), dry_run=True)
    card.setenv("CUDA_VISIBLE_DEVICES", "GPU-3f9a")
    assert this_machine() == Machine(1, 0.0, 256e9)
    done = train_recipe(options)
    assert done.launch.name == "none"
    assert any(line.startswith("memory: unknown") for line in done.preview)
    card.delenv("CUDA_VISIBLE_DEVICES")
    card.setenv("CONVBENCH_SIMULATED_HOST", "8")
