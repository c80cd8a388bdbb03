"""What each recipe learns from: token ids, masks, weights, pairs of replies.

Ids and masks of all conversations are kept once a chat template, since they do not depend on the
recipe; a recipe's own file has the weights of its rows, or its pairs.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import convbench
from convbench import catalog
from convbench.learn import launch
from convbench.learn.export import with_filter
from convbench.learn.job import Job
from convbench.learn.pairs import Pairs, PolicyReply
from convbench.learn.rows import PairRow, pair_rows, training_rows
from convbench.learn.sweet.candidates import iter_histories
from convbench.learn.sweet.pairs import Candidate, SweetArgs, critic_rows, policy_pairs
from convbench.learn.tokens import ChatTokens, load_tokenizer
from convbench.learn.train import split_sets, trainer_data
from convbench.models.weights_path import check_weights
from convbench.options.shared import SpecOptions
from convbench.schema.recipe import Recipe, Unit
from tests.golden.run import Record, make_run, records, rewrite, write
from tests.helpers import smollm2, tiny

TEMPLATES = ("pocket", "smollm2", "llama-3.1")
WEIGHTED = ("refit", "swift", "star-gate", "star-gate-d", "rft", "awr", "a-lol", "swift-anchored")
PAIRED = ("dpo", "step-dpo", "ipo")
TRAJECTORIES = ("mt-dpo", "sweet")
FILTERS = ("best-of-k", "improves", "right")
UNITS: tuple[Unit, ...] = ("conversation", "turn")
SETS: dict[str, dict[str, Any]] = {
    "star-gate-d": {"distil.teacher": "teacher"},
    "mt-dpo": {"args.select": "gap", "args.gap": 0.3},
    "sweet": {"args.select": "gap", "args.gap": 0.3, "args.share": 1.0},
}
"""What a recipe needs here: a teacher, and pairs of conversations that are not all or nothing."""
Line = dict[str, Any]


def load_chats(folder: Path) -> dict[str, ChatTokens]:
    """Return a tokenizer with its chat template for each of TEMPLATES; ours goes through the
    folder."""
    tiny.tokenizer("llama-3.1").save_pretrained(folder)
    places = (check_weights("pocket"), smollm2.HERE, folder)
    return {
        name: ChatTokens(load_tokenizer(str(place)))
        for name, place in zip(TEMPLATES, places, strict=True)
    }


@dataclass(frozen=True)
class Log:
    """A judged run, and the tokenizers that make rows of it, by chat template."""

    run: Path
    chats: dict[str, ChatTokens]

    def job(self, recipe: str, **sets: Any) -> Job:
        """Return a recipe on the run, with further settings."""
        fixed = {"model": "local:pocket", "run": str(self.run), **SETS.get(recipe, {})}
        found = catalog.load_spec(Recipe, "recipes", recipe, sets={**fixed, **sets})
        return Job(found, self.run / "checkpoints" / recipe)

    def data(self, job: Job) -> Any:
        """Return what the recipe's trainer learns from."""
        return trainer_data(
            launch.load_trainer(launch.locate_trainer(str(job.recipe.trainer))), job
        )

    def template_rows(self, template: str) -> Iterator[Line]:
        """Yield the rows of all conversations that train, whole and turn by turn."""
        data = self.data(self.job("refit"))
        for unit in UNITS:
            for row in training_rows(data, self.chats[template], unit=unit).rows:
                name, ids = row.conversation_id, row.tokens.ids
                whole = unit == "conversation" and row.part == 0
                yield {
                    "conversation": name, "unit": unit, "part": row.part,
                    **({"ids": ids} if whole else self._ids(template, name, ids)),
                    "mask": _lengths(row.tokens.mask),
                }  # fmt: skip

    def weights(self, recipe: str) -> Iterator[Line]:
        """Yield the weight of every token of each row of a recipe."""
        job = self.job(recipe)
        unit = job.recipe.data.unit
        rows = training_rows(self.data(job), self.chats["pocket"], unit=unit).rows
        for row in rows:
            yield {
                "conversation": row.conversation_id, "unit": unit, "part": row.part,
                "weight": float(row.weight),
            }  # fmt: skip

    def pairs(self, recipe: str) -> Iterator[Line]:
        """Yield the pairs of a recipe under each template."""
        data = self.data(self.job(recipe))
        for template, chat in self.chats.items():
            yield from _pair_lines(template, pair_rows(data, chat).rows)

    def trajectories(self, recipe: str) -> Iterator[Line]:
        """Yield pairs of conversations, and the rows of each as a critic reads them, with the runs
        of tokens of one turn: turn and length, -1 for what the policy did not say."""
        job = self.job(recipe, trainer="sweet_critic")
        found, settings = self.data(job), SweetArgs.from_args(job.recipe.args, recipe)
        talks = {}
        for held, items in ((False, found.items), (True, found.held)):
            for pair in items:
                talks |= {item.conversation_id: item for item in pair}
                better, worse = (item.conversation_id for item in pair)
                yield {"better": better, "worse": worse, "held": held}
        for template, chat in self.chats.items():
            for name, item in talks.items():
                rows = critic_rows(job.run.manifest.protocol, item, chat, settings)
                for part, row in enumerate(rows):
                    turns = [[turn, len(list(run))] for turn, run in groupby(row.turns)]
                    yield {
                        "conversation": name, "template": template, "part": part,
                        **self._ids(template, name, row.ids), "turns": turns,
                    }  # fmt: skip

    def candidates(self) -> Pairs:
        """Return SWEET's pairs of candidates; every reply has five, with advantages."""
        job = self.job("sweet")
        settings = SweetArgs.from_args(job.recipe.args, "sweet")
        logged = job.log()
        turns = {
            (item.conversation_id, turn, rounds): [
                Candidate(PolicyReply(f"Candidate {n} of {turn}.", n == 3), (7 * n + turn) % 5 / 4)
                for n in range(5)
            ]
            for item, turn, rounds in iter_histories(logged, settings)
        }
        return policy_pairs(logged, turns, settings, job.recipe.fit.seed)

    def candidate_pairs(self) -> Iterator[Line]:
        """Yield SWEET's pairs of candidates under one template."""
        yield from _pair_lines("pocket", pair_rows(self.candidates(), self.chats["pocket"]).rows)

    def edits(self) -> Iterator[Line]:
        """Yield the self-edits that each of SEAL's filters keeps."""
        for name in FILTERS:
            asked = self.job("seal", filter=name).recipe
            sets = split_sets(with_filter(SpecOptions(), asked).sets)[0]
            for item, weight in self.data(self.job("seal", **sets)).items:
                yield {"filter": name, "conversation": item.conversation_id, "weight": weight}

    @cached_property
    def _whole(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Ids of each conversation's first row, by template."""
        data = self.data(self.job("refit"))
        return {
            template: {
                row.conversation_id: row.tokens.ids
                for row in training_rows(data, chat, unit="conversation").rows
                if row.part == 0
            }
            for template, chat in self.chats.items()
        }

    def _ids(self, template: str, name: str, ids: Sequence[int]) -> Line:
        """Return a row's ids: how many first ones are those of the conversation's whole row, and
        the rest."""
        same = (a == b for a, b in zip(self._whole[template].get(name, ()), ids, strict=False))
        shared = sum(takewhile(bool, same))
        return {"shared": shared, "ids": list(ids[shared:])}


def in_order(lines: Iterable[Line]) -> list[Line]:
    """Return lines sorted by what stands in them: the order of rows is no promise."""
    return sorted(lines, key=lambda line: json.dumps(line, sort_keys=True))


def _lengths(mask: Iterable[int]) -> list[int]:
    """Return a mask as lengths of runs, the first one (maybe 0) of tokens that are not learnt."""
    lengths = [[value, len(list(run))] for value, run in groupby(mask)]
    return [*([0] if lengths[0][0] else []), *(length for _, length in lengths)]


def _pair_lines(template: str, rows: Iterable[PairRow]) -> Iterator[Line]:
    for row in rows:
        yield {"template": template, "question": row.task, **row.trainer_fields()}


def run_with_references(folder: Path) -> Path:
    """Return the golden run with a hidden reference for every question."""
    run = make_run(folder)

    def with_reference(row: Record) -> Record:
        own = row.get("hidden") or {}
        return row | {"hidden": {"reference": f"It is {row['answer']}."} | own}

    rewrite(run / "examples.jsonl", with_reference)
    return run


def built_run(folder: Path) -> Path:
    """Return a run that was built and not imported, so that its protocol and task have prompts;
    what the policy says, and its rewards, are ours."""
    with warnings.catch_warnings(action="ignore"):
        convbench.build(
            "demo", run=folder, model="scripted:policy", mode="thinking", tasks=4, quiet=True
        )
    talks = records(folder / "conversations.jsonl")
    for talk in talks:
        name = talk["conversation_id"] = talk["key"].replace("#", "-")
        for number, turn in enumerate(talk["turns"]):
            if turn["speaker"] == "assistant":
                turn["content"] = f"<thinking>{name}</thinking> {number}: the answer is A."
    write(folder / "conversations.jsonl", talks)
    rewards = [0.5, 0.125, 0.875]
    judged = {"judge": "ours", "fingerprint": "0"}
    write(folder / "verdicts.jsonl", [
        {**judged, "conversation_id": talk["conversation_id"], "scores": {},
         "reward": rewards[talk["sample"]]}
        for talk in talks
    ])  # fmt: skip
    return folder


def run_of_edits(folder: Path) -> Path:
    """Return the golden run, its conversations scored as self-edits: some help by more or less than
    the margin, some harm, some could not be trained on, some solve their task."""
    run = make_run(folder)
    verdicts = records(run / "verdicts.jsonl")
    before, after = 0.5, (0.75, 0.51, 0.25, 1.0, None)
    for number, verdict in enumerate(verdicts):
        accuracy = after[number % len(after)]
        gain = (before if accuracy is None else accuracy) - before
        verdict["scores"] = {
            "accuracy": before + gain, "gain": gain, "net": gain, "improves": float(gain > 0.03),
            "overall": before + gain, "trained": float(accuracy is not None),
        }  # fmt: skip
        verdict["reward"] = before + gain
    write(run / "verdicts.jsonl", verdicts)
    return run
