"""What each recipe learns from: token ids, masks, weights, pairs of replies.

Ids and masks of all conversations are kept once a chat template, since they do not depend on the
recipe; a recipe's own file has the weights of its rows, or its pairs.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import convbench
from convbench import catalog
from convbench.learn.pairs import Pairs, Reply
from convbench.learn.rows import Material, Row, pair_rows, paired_material, weighted_material
from convbench.learn.select import select
from convbench.learn.sweet import (
    SweetArgs,
    candidate_pairs,
    candidate_places,
    critic_rows,
    trajectory_pairs,
)
from convbench.learn.tokens import ChatTokens, load_tokenizer
from convbench.learn.train import load_recipe
from convbench.models.weights_path import check_weights
from convbench.options.shared import SpecOptions
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import Recipe, Unit
from convbench.store.run import Run
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
class FixedChat:
    """One chat template for all runs, in place of a model's."""

    chat: ChatTokens

    def of(self, run: Run, talk: object = None) -> ChatTokens:
        return self.chat


@dataclass(frozen=True)
class Log:
    """A judged run, and the tokenizers that make rows of it, by chat template."""

    run: Path
    chats: dict[str, ChatTokens]

    def recipe(self, name: str, **sets: Any) -> Recipe:
        """Return a recipe on the run, with further settings."""
        fixed = {"model": "local:pocket", "run": str(self.run), **SETS.get(name, {})}
        return catalog.load_spec(Recipe, "recipes", name, sets={**fixed, **sets})

    def material(self, recipe: Recipe, template: str) -> Material:
        """Return what the recipe learns from."""
        runs, chats = [Run.open(self.run)], FixedChat(self.chats[template])
        if recipe.trainer != "preference":
            return weighted_material(recipe, runs, chats, None)  # type: ignore[arg-type]
        name = recipe.pairing.protocol
        direct = catalog.load_spec(ProtocolSpec, "protocols", name) if name else None
        return paired_material(recipe, runs, chats, None, direct)  # type: ignore[arg-type]

    def rows(self, recipe: Recipe, template: str) -> list[Row]:
        """Return the rows of a recipe under a template."""
        material = self.material(recipe, template)
        return list(material.tokenise(material.items, Counter()))

    def template_rows(self, template: str) -> Iterator[Line]:
        """Yield the rows of all conversations that train, whole and turn by turn."""
        for unit in UNITS:
            for row in self.rows(self.recipe("refit", **{"data.unit": unit}), template):
                name, ids = row["conversation_id"], row["input_ids"]
                whole = unit == "conversation" and row["row"] == 0
                yield {
                    "conversation": name, "unit": unit, "part": row["row"],
                    **({"ids": ids} if whole else self._ids(template, name, ids)),
                    "mask": _lengths(label != -100 for label in row["labels"]),
                }  # fmt: skip

    def weights(self, name: str) -> Iterator[Line]:
        """Yield the weight of every token of each row of a recipe."""
        recipe = self.recipe(name)
        for row in self.rows(recipe, "pocket"):
            learnt = zip(row["weights"], row["labels"], strict=True)
            (weight,) = {weight for weight, label in learnt if label != -100}
            yield {
                "conversation": row["conversation_id"], "unit": recipe.data.unit,
                "part": row["row"], "weight": float(weight),
            }  # fmt: skip

    def pairs(self, name: str) -> Iterator[Line]:
        """Yield the pairs of a recipe under each template."""
        for template in self.chats:
            yield from _pair_lines(template, self.rows(self.recipe(name), template))

    def trajectories(self, name: str) -> Iterator[Line]:
        """Yield pairs of conversations, and the rows of each as a critic reads them, with the runs
        of tokens of one turn: turn and length, -1 for what the policy did not say."""
        recipe = self.recipe(name)
        args, talks = SweetArgs.from_recipe(recipe), {}
        pairs, _ = trajectory_pairs(select([Run.open(self.run)], recipe.data), args, recipe)
        for better, worse, held in pairs:
            talks |= {better.id: better, worse.id: worse}
            yield {"better": better.id, "worse": worse.id, "held": held}
        for template, chat in self.chats.items():
            for item in talks.values():
                rows = critic_rows(item, FixedChat(chat), args)  # type: ignore[arg-type]
                assert rows is not None
                for part, ids in enumerate(rows["ids"]):
                    turns = [[turn, len(list(run))] for turn, run in groupby(rows["turns"][part])]
                    yield {
                        "conversation": item.id, "template": template, "part": part,
                        **self._ids(template, item.id, ids), "turns": turns,
                    }  # fmt: skip

    def candidates(self) -> Pairs:
        """Return SWEET's pairs of candidates; every reply has five, with advantages."""
        recipe = self.recipe("sweet")
        args, logged = SweetArgs.from_recipe(recipe), select([Run.open(self.run)], recipe.data)
        places = {
            (item.id, turn, rounds): [
                ((7 * n + turn) % 5 / 4, Reply(f"Candidate {n} of {turn}.", n == 3))
                for n in range(5)
            ]
            for item, turn, rounds in candidate_places(logged, args)
        }
        return candidate_pairs(logged, places, args, recipe.fit.seed)

    def candidate_pairs(self) -> Iterator[Line]:
        """Yield SWEET's pairs of candidates under one template."""
        chats = FixedChat(self.chats["pocket"])
        material = pair_rows(self.candidates(), self.recipe("sweet"), chats, None)  # type: ignore[arg-type]
        yield from _pair_lines("pocket", material.tokenise(material.items, Counter()))

    def edits(self) -> Iterator[Line]:
        """Yield the self-edits that each of SEAL's filters keeps."""
        for name in FILTERS:
            sets = {"filter": name, "model": "local:pocket"}
            recipe = load_recipe("seal", SpecOptions(), sets)
            material = self.material(recipe, "pocket")
            for item, (weight, *_) in material.items:
                yield {"filter": name, "conversation": item.id, "weight": weight}

    @cached_property
    def _whole(self) -> dict[str, dict[str, list[int]]]:
        """Ids of each conversation's first row, by template."""
        whole = self.recipe("refit", **{"data.unit": "conversation"})
        return {
            template: {
                row["conversation_id"]: row["input_ids"]
                for row in self.rows(whole, template)
                if row["row"] == 0
            }
            for template in self.chats
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


def _pair_lines(template: str, rows: Iterable[Row]) -> Iterator[Line]:
    for row in rows:
        ids = {name: row[name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")}
        yield {"template": template, "question": row["task"], **ids}


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
