"""Weighted training against TRL's own SFT on the same rows, and against n rows a conversation.

One-pass weighted training over TRL's SFTTrainer, unweighted: interleaved pairs, CPU seconds (the
wall clock of a shared machine says little), the median of the ratios. Peak memory in processes of
their own. Then n single-turn rows a conversation, printed beside the ratio of tokens.

    python -m tests.trainers.bench
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.bench import ROOT, Row, high_water

CONVERSATIONS, TURNS, TOKENS, WORDS = 80, 3, 16, 4096
PAIRS = 7
"""Interleaved pairs of runs."""


def save_model(folder: Path) -> Path:
    """Save a Llama of some 2 million parameters, wide enough that arithmetic outweighs Python."""
    from tests.helpers import tiny

    return tiny.save_model(
        folder, layers=4, vocab_size=WORDS, hidden_size=128, intermediate_size=384,
        num_attention_heads=4, num_key_value_heads=4, initializer_range=0.02,
    )  # fmt: skip


def rows(turns: int, single: bool) -> list[Any]:
    """Conversations of `turns` questions and replies, as one row each or one row a turn."""
    from convbench.learn.rows import TrainingRow as TrainingRow
    from convbench.learn.tokens import TokenRow

    draw = random.Random(0)
    found = []
    for number in range(CONVERSATIONS):
        ids = tuple(draw.randrange(300, WORDS) for _ in range(2 * turns * TOKENS))
        mask = ((0,) * TOKENS + (1,) * TOKENS) * turns
        weight = draw.gauss(0, 1)
        if not single:
            found.append(TrainingRow(str(number), 0, 1, TokenRow(ids, mask), weight))
            continue
        for turn in range(turns):
            end = 2 * (turn + 1) * TOKENS
            alone = (0,) * (end - TOKENS) + (1,) * TOKENS
            found.append(TrainingRow(str(number), turn, turns, TokenRow(ids[:end], alone), weight))
    return found


def train(kind: str, turns: int, model: Path, folder: Path) -> float:
    """Train one epoch; return its CPU seconds. `kind`: weighted, rows (n a conversation), trl."""
    settings = {"batch_size": 4, "accumulation": 4, "gradient_checkpointing": False}
    return fit("trl" if kind == "trl" else "weighted", rows(turns, kind == "rows"), model, folder,
               settings)  # fmt: skip


def fit(kind: str, data: list[Any], model: Path, folder: Path, settings: dict[str, Any]) -> float:
    """Train one epoch of rows, weighted or with TRL's own trainer; return its CPU seconds.
    `settings` are those of `fit`."""
    import contextlib
    import io

    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    from convbench.learn import fitting
    from convbench.learn.job import Job
    from convbench.learn.weighted_sft import weighted_trainer
    from convbench.schema.recipe import Recipe
    from tests.helpers import tiny

    fitting.silence_libraries()
    if not (folder / "run").exists():
        tiny.judged_run(folder / "run")
    recipe = Recipe.model_validate(
        {"name": "bench", "title": "bench", "trainer": "swift", "model": str(model),
         "run": str(folder / "run"), "fit": {"epochs": 1, "save": "end", **settings}}
    )  # fmt: skip
    job = Job(recipe, folder)
    if kind == "trl":
        trainer = SFTTrainer(
            model=fitting.load_model(job),
            args=SFTConfig(
                **{**fitting.training_arguments(job), "remove_unused_columns": True},
                dataset_kwargs={"skip_prepare_dataset": True},
            ),
            train_dataset=Dataset.from_list(
                [{name: row.fields()[name] for name in ("input_ids", "labels")} for row in data]
            ),
            data_collator=DataCollatorForLanguageModeling(pad_token_id=0),
            processing_class=job.chat.tokenizer,
        )
    else:
        trainer = weighted_trainer(job, data)
    with contextlib.redirect_stdout(io.StringIO()):
        begun = time.process_time()
        trainer.train()
        return time.process_time() - begun


def peak(kind: str, model: Path, folder: Path) -> float:
    """Peak memory in MB of one training in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainers.bench", kind, str(model), str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout.splitlines()[-1]))


def speed(folder: Path) -> Iterator[Row]:
    """Yield the figures of training."""
    model = save_model(folder / "model")
    ratios = []
    for number in range(PAIRS):
        order = ("trl", "weighted") if number % 2 else ("weighted", "trl")
        took = {kind: train(kind, TURNS, model, folder) for kind in order}
        ratios.append(took["trl"] / took["weighted"])
    yield Row("weighted training over TRL's SFT, speed", median(ratios), "x", 0.97, at_least=True)
    memory = peak("weighted", model, folder) / peak("trl", model, folder)
    yield Row("weighted training over TRL's SFT, peak memory", memory, "x", 1.02)
    for turns in (3, 10):
        tokens = {single: sum(len(row.tokens.ids) for row in rows(turns, single))
                  for single in (True, False)}  # fmt: skip
        wanted = tokens[True] / tokens[False]
        gains = [
            train("rows", turns, model, folder) / train("weighted", turns, model, folder)
            for _ in range(3)
        ]
        yield Row(
            f"one pass over {turns} rows a conversation ({wanted:.2f}x fewer tokens)",
            median(gains), "x", 0.85 * wanted, goal=wanted, at_least=True,
        )  # fmt: skip


def main() -> None:
    """Print all figures; with arguments, the peak memory of one training."""
    if len(sys.argv) == 4:
        kind, model, folder = sys.argv[1:]
        train(kind, TURNS, Path(model), Path(folder))
        print(high_water())
        return
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for row in speed(Path(name)):
            print(f"{row.what}: {row.value:.3g} {row.unit}, bound {row.bound:.3g}, {row.holds}")


if __name__ == "__main__":
    main()
