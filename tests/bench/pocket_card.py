"""Measure the shipped pocket policy, or a rerun: every figure of its model card.

    python tests/bench/pocket_card.py [--weights DIR] [--count 200]

Prints one line of JSON for each part and the figures outside the card's ranges, and fails where
there are any. Needs torch; about five minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from convbench.pocket import notes, rows, texts
from convbench.pocket.speakers import human, teacher
from convbench.pocket.world import LETTERS, PROPERTIES, make_world
from convbench.prompts import render_template
from tests.lab.pocket import edits

Messages = list[dict[str, str]]
Row = dict[str, Any]
TEMPERATURES = (0.3, 0.7, 1.0)
_EACH = [f"{part}.{how}" for part in ("thinking", "standard") for how in ("greedy", "sampled")]
RANGES = {
    **{f"{name}_accuracy": (0.35, 0.65) for name in _EACH},
    **{f"{name}_thinking": (0.50, 0.90) for name in _EACH[:2]},
    **{f"{name}_unparsed": (0.0, 0.10) for name in _EACH},
    **{f"{name}_careful": (0.20, 0.50) for name in _EACH[:2]},
    "thinking.tasks_with_reward_std": (0.60, 1.0),
    **{f"thinking_6_turns.{how}_accuracy": (0.30, 0.70) for how in ("greedy", "sampled")},
    **{f"thinking_10_turns.{how}_accuracy": (0.25, 0.75) for how in ("greedy", "sampled")},
    "closed_book.known": (0.95, 1.0),
    "closed_book.strangers": (0.0, 0.20),
    "closed_book.newcomers": (0.0, 0.20),
    **{f"clarifying.{how}_gain": (0.15, 1.0) for how in ("greedy", "sampled")},
    **{f"collaboration.{how}/success": (0.25, 0.65) for how in ("greedy", "at_1.0")},
    **{f"self_edits.{kind}_at_1.0": (0.02, 0.50) for kind in texts.SELF_EDIT_KINDS},
    "form_of_the_edit.passage": (0.05, 0.30),
    **{f"form_of_the_edit.{kind}": (0.30, 0.90) for kind in texts.SELF_EDIT_KINDS},
}
"""The ranges of the model card, for the shipped weights and for a rerun, at 200 questions."""


class Policy:
    """The weights with batched sampling; temperature 0 is greedy."""

    def __init__(self, folder: Path) -> None:
        self.tok = AutoTokenizer.from_pretrained(folder)
        self.tok.padding_side = "left"
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def reply(
        self, chats: Sequence[Messages], temperatures: Sequence[float], limit: int
    ) -> list[str]:
        """One reply for each conversation; conversations of one temperature share a batch."""
        out = [""] * len(chats)
        for temperature in sorted(set(temperatures)):
            where = [i for i, t in enumerate(temperatures) if t == temperature]
            where.sort(key=lambda i: sum(len(m["content"]) for m in chats[i]))
            for start in range(0, len(where), 128):
                batch = where[start : start + 128]
                said = self._batch([chats[i] for i in batch], temperature, limit)
                for i, text in zip(batch, said, strict=True):
                    out[i] = text
        return out

    @torch.inference_mode()
    def _batch(self, chats: list[Messages], temperature: float, limit: int) -> list[str]:
        prompts = [
            self.tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            for chat in chats
        ]
        batch = self.tok(
            prompts,
            return_tensors="pt",
            padding=True,
            add_special_tokens=False,
            return_token_type_ids=False,
        )
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0}
        ids = self.model.generate(
            **batch, max_new_tokens=limit, **(sampling if temperature else {"do_sample": False})
        )
        end = self.tok.eos_token
        replies = self.tok.batch_decode(ids[:, batch["input_ids"].shape[1] :])
        return [reply.split(end)[0].removesuffix(self.tok.pad_token) for reply in replies]


def test_rows(kind: str, count: int) -> list[Row]:
    """The first test rows of a kind, seed 0."""
    return list(islice((r for r in rows.load(seed=0, kind=kind) if r["split"] == "test"), count))


def pose(row: Row) -> str:
    """The question with its options."""
    choices = [{"label": x, "text": t} for x, t in zip(LETTERS, row["choices"], strict=True)]
    return render_template(texts.POSE, {"question": row["question"], "choices": choices})


def answer(text: str) -> str | None:
    """The last "The answer is X" outside thinking."""
    text = re.sub(r"<thinking>.*?(</thinking>|$)", "", text, flags=re.DOTALL)
    found = re.findall(r"answer is ([A-D])\b", text)
    return found[-1] if found else None


def share(flags: Sequence[bool]) -> float:
    """Share of true values, to three digits."""
    return round(sum(flags) / max(1, len(flags)), 3)


def mixed(count: int) -> list[float]:
    """The three temperatures in turn."""
    return [TEMPERATURES[i % 3] for i in range(count)]


def reward(row: Row, turns: list[str]) -> float:
    """0.6 correct + 0.2 tags in every turn + 0.2 options covered."""
    tagged = all(t.startswith("<thinking>") and "</thinking>" in t for t in turns)
    covered = sum(f"{letter}:" in " ".join(turns) for letter in LETTERS) / 4
    return 0.6 * (answer(turns[-1]) == row["answer"]) + 0.2 * tagged + 0.2 * covered


def reason(
    policy: Policy, asked: list[Row], temperatures: list[float], mode: str, turns: int = 3
) -> list[list[str]]:
    """Hold the `reasoning` protocol; the policy's turns of each conversation."""
    chats: list[Messages] = [[] for _ in asked]
    said: list[list[str]] = [[] for _ in asked]
    for turn in range(turns):
        for row, chat in zip(asked, chats, strict=True):
            wording = texts.ANSWER if turn == turns - 1 else texts.CHECK
            text = wording[mode] if turn else f"{pose(row)}\n\n{texts.SOLVE[mode]}"
            chat.append({"role": "user", "content": text})
        replies = policy.reply(chats, temperatures, 80 if turn == 0 else 30)
        for chat, turns_said, reply in zip(chats, said, replies, strict=True):
            chat.append({"role": "assistant", "content": reply})
            turns_said.append(reply)
    return said


def reasoning_figures(policy: Policy, count: int, mode: str, turns: int = 3) -> dict[str, float]:
    """Greedy and sampled accuracy, thinking, unparsed, and the share of mixed tasks."""
    asked = test_rows("facts", count)
    greedy = reason(policy, asked, [0.0] * count, mode, turns)
    thrice = [row for row in asked for _ in TEMPERATURES]
    sampled = reason(policy, thrice, mixed(len(thrice)), mode, turns)
    rewards = [reward(row, said) for row, said in zip(thrice, sampled, strict=True)]
    figures = {}
    for name, those, said in (("greedy", asked, greedy), ("sampled", thrice, sampled)):
        finals = [turns_said[-1] for turns_said in said]
        figures |= {
            f"{name}_accuracy": share(
                [answer(f) == row["answer"] for f, row in zip(finals, those, strict=True)]
            ),
            f"{name}_thinking": share([f.startswith("<thinking>") for f in finals]),
            f"{name}_unparsed": share([answer(f) is None for f in finals]),
            f"{name}_careful": share(["D: " in turns_said[0] for turns_said in said]),
        }
    tasks = [rewards[i : i + 3] for i in range(0, len(rewards), 3)]
    return figures | {"tasks_with_reward_std": share([max(t) - min(t) > 1e-9 for t in tasks])}


def direct_figures(policy: Policy, count: int, mode: str) -> dict[str, float]:
    """Greedy accuracy of `direct`."""
    asked = test_rows("facts", count)
    chats = [[{"role": "user", "content": f"{pose(r)}\n\n{texts.DIRECT[mode]}"}] for r in asked]
    replies = policy.reply(chats, [0.0] * count, 80)
    right = [answer(t) == row["answer"] for t, row in zip(replies, asked, strict=True)]
    return {"greedy_accuracy": share(right)}


def clarify(
    policy: Policy, asked: list[Row], temperatures: list[float], forced: list[str] | None
) -> tuple[list[bool], list[str]]:
    """Hold `clarifying`, the question forced to one about these labels or left to the policy."""
    chats: list[Messages] = [
        [{"role": "user", "content": f"{pose(row)}\n\n{texts.ASK}"}] for row in asked
    ]
    if forced is None:
        questions = policy.reply(chats, temperatures, 12)
    else:
        options = [row["choices"][LETTERS.index(x)] for row, x in zip(asked, forced, strict=True)]
        questions = [f"What about {option}?" for option in options]
    kinds = []
    for row, chat, question in zip(asked, chats, questions, strict=True):
        reply = teacher([{"role": "user", "content": question}], row)
        unknown = [row["choices"][LETTERS.index(x)] for x in row["unknown"]]
        useful = any(f" {name} " in reply for name in unknown)
        kinds.append("none" if reply == texts.TEACHER_LOST else "good" if useful else "useless")
        said = {"role": "assistant", "content": question}
        chat += [said, {"role": "user", "content": f"{reply}\n\n{texts.SOLVE['thinking']}"}]
    for chat, thought in zip(chats, policy.reply(chats, temperatures, 80), strict=True):
        chat.append({"role": "assistant", "content": thought})
        chat.append({"role": "user", "content": texts.ANSWER["thinking"]})
    finals = policy.reply(chats, temperatures, 30)
    return [answer(f) == row["answer"] for f, row in zip(finals, asked, strict=True)], kinds


def by_kind(right: list[bool], kinds: list[str]) -> dict[str, Any]:
    """Share of conversations of each kind, and accuracy within it."""
    return {
        kind: {
            "share": share([k == kind for k in kinds]),
            "accuracy": share([r for r, k in zip(right, kinds, strict=True) if k == kind]),
        }
        for kind in sorted(set(kinds))
    }


def clarifying_figures(policy: Policy, count: int) -> dict[str, Any]:
    """Forced informative against forced other question, and the policy's own questions."""
    asked, rng = test_rows("clarify", count), random.Random(0)
    informative = [rng.choice(row["unknown"]) for row in asked]
    other = [rng.choice([x for x in LETTERS if x not in row["unknown"]]) for row in asked]
    figures: dict[str, Any] = {}
    for name, temperatures in (("greedy", [0.0] * count), ("sampled", mixed(count))):
        for forced_name, forced in (("informative", informative), ("other", other)):
            right, _ = clarify(policy, asked, temperatures, forced)
            figures[f"{name}_forced_{forced_name}"] = share(right)
        gain = figures[f"{name}_forced_informative"] - figures[f"{name}_forced_other"]
        figures[f"{name}_gain"] = round(gain, 3)
        figures[f"{name}_own"] = by_kind(*clarify(policy, asked, temperatures, None))
    return figures


def collaborate(
    policy: Policy, asked: list[Row], temperatures: list[float]
) -> tuple[list[bool], list[str]]:
    """Hold `collaboration` to ten turns; success and the kind of the first question."""
    chats: list[Messages] = [
        [{"role": "user", "content": f"{pose(row)}\n\n{texts.COLLABORATE}"}] for row in asked
    ]
    right, kinds = [False] * len(asked), ["none"] * len(asked)
    open_ones = list(range(len(asked)))
    for turn in range(10):
        some = [chats[i] for i in open_ones]
        replies = policy.reply(some, [temperatures[i] for i in open_ones], 80)
        for i, text in zip(list(open_ones), replies, strict=True):
            chats[i].append({"role": "assistant", "content": text})
            if texts.MARKER in text:
                right[i] = text.split(texts.MARKER)[1].strip() == asked[i]["answer"]
                open_ones.remove(i)
                continue
            told = human([{"role": "user", "content": text}], asked[i])
            chats[i].append({"role": "user", "content": told})
            if turn == 0:
                kinds[i] = "good" if told.startswith("I need") else "useless"
    return right, kinds


def collaboration_figures(policy: Policy, count: int) -> dict[str, Any]:
    """Success, and success by the kind of the first question."""
    asked = test_rows("collaboration", count)
    figures: dict[str, Any] = {}
    for name, temperatures in (
        ("greedy", [0.0] * count),
        ("sampled", mixed(count)),
        ("at_1.0", [1.0] * count),
    ):
        right, kinds = collaborate(policy, asked, temperatures)
        figures[name] = {"success": share(right), **by_kind(right, kinds)}
    return figures


def test_notes() -> list[notes.Note]:
    """The passages of the test split."""
    every = notes.make_notes(make_world(), 0)
    return every[-rows.NOTE_SPLITS["test"] :]


def edit_figures(policy: Policy) -> dict[str, Any]:
    """Per prompt kind: share of self-edits that are fully faithful, greedy and at 1.0."""
    figures = {}
    for kind in texts.SELF_EDIT_KINDS:
        prompt = texts.SELF_EDIT_PASSAGE + texts.SELF_EDIT[kind]
        chats = [
            [
                {
                    "role": "user",
                    "content": render_template(prompt, {"title": n.title, "passage": n.passage}),
                }
            ]
            for n in test_notes()
        ]
        good = [edits.good_edit(note, kind) for note in test_notes()]
        for name, temperature in (("greedy", 0.0), ("at_1.0", 1.0)):
            edits = policy.reply(chats, [temperature] * len(chats), 160)
            figures[f"{kind}_{name}"] = share([a == b for a, b in zip(edits, good, strict=True)])
    return figures


def recall(policy: Policy, asked: list[tuple[str, notes.Fact]]) -> float:
    """Closed-book accuracy, greedy."""
    chats = [list(edits.closed_book(fact, title))[:1] for title, fact in asked]
    replies = policy.reply(chats, [0.0] * len(chats), 20)
    return share(
        [f"The answer is {f.value}." in t for (_, f), t in zip(asked, replies, strict=True)]
    )


def adapted(policy: Policy, lines: list[str], seed: int, measure: Callable[[], float]) -> float:
    """Train a fresh LoRA on these texts (rank 32, 1e-3, 10 epochs, batch 1) and measure."""
    base, rng = policy.model, random.Random(seed)
    torch.manual_seed(seed)
    projections = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.0, target_modules=projections)
    model = get_peft_model(base, lora).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for _ in range(10):
        for line in rng.sample(lines, len(lines)):
            ids = torch.tensor([[*policy.tok.encode(line), policy.tok.eos_token_id]])
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    policy.model = model.eval()
    figure = measure()
    policy.model = model.unload()
    policy.model.requires_grad_(True)
    return figure


def form_figures(policy: Policy, passages: int = 20) -> dict[str, float]:
    """Closed-book accuracy after training on the bare passage, or also on a good self-edit."""
    some = test_notes()[:passages]
    figures = {"base": recall(policy, [(n.title, f) for n in some for f in n.facts])}
    for kind in ("passage", *texts.SELF_EDIT_KINDS):
        total = 0.0
        for seed, note in enumerate(some):
            lines = [note.passage]
            if kind != "passage":
                lines += edits.good_edit(note, kind).split("\n")
            asked = [(note.title, fact) for fact in note.facts]
            texts_ = [f"{note.title}\n{line}" for line in lines]
            total += adapted(policy, texts_, seed, lambda asked=asked: recall(policy, asked))
        figures[kind] = round(total / len(some), 3)
    return figures


def known_figures(policy: Policy) -> dict[str, float]:
    """Closed-book accuracy on known facts, strangers and newcomers."""
    world, rng = make_world(), random.Random(0)
    figures = {}
    for group in ("known", "strangers", "newcomers"):
        names = getattr(world, group)
        pairs = [(rng.choice(names), rng.choice(PROPERTIES)) for _ in range(300)]
        facts = [notes.Fact(name, prop, world.value(name, prop)) for name, prop in pairs]
        figures[group] = recall(policy, [(rng.choice(world.titles), fact) for fact in facts])
    return figures


def outside(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line for every figure found that is outside its range."""
    lines = []
    for name, (low, high) in RANGES.items():
        part, _, path = name.partition(".")
        if part not in found:
            continue
        value: Any = found[part]
        for key in path.split("/"):
            value = value[key]
        if not low <= value <= high:
            lines.append(f"{name} is {value}; expected {low} to {high}")
    return lines


def main() -> None:
    """Measure and print; exit 1 where a figure is outside its range."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--weights", type=Path, default=Path(rows.__file__).parent / "weights")
    parser.add_argument("--count", type=int, default=200, help="test questions")
    parser.add_argument("--only", help="one part")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy, count = Policy(args.weights), args.count
    parts: dict[str, Callable[[], Any]] = {
        "closed_book": lambda: known_figures(policy),
        "thinking": lambda: reasoning_figures(policy, count, "thinking"),
        "standard": lambda: reasoning_figures(policy, count, "standard"),
        "thinking_6_turns": lambda: reasoning_figures(policy, count // 4, "thinking", 6),
        "thinking_10_turns": lambda: reasoning_figures(policy, count // 8, "thinking", 10),
        "direct": lambda: {m: direct_figures(policy, count, m) for m in texts.MODES},
        "clarifying": lambda: clarifying_figures(policy, count),
        "collaboration": lambda: collaboration_figures(policy, count),
        "self_edits": lambda: edit_figures(policy),
        "form_of_the_edit": lambda: form_figures(policy),
    }
    if args.only not in (None, *parts):
        parser.error(f"--only {args.only}: no such part; expected one of {', '.join(parts)}")
    found = {}
    for name, part in parts.items():
        if args.only in (None, name):
            found[name] = part()
            print(json.dumps({name: found[name]}), flush=True)
    lines = outside(found)
    sys.exit("\n".join(lines) if lines else 0)


if __name__ == "__main__":
    main()
