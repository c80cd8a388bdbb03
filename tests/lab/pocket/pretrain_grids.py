"""Pre-train the small policy of the grids' world from scratch on a CPU and save it.

    python -m tests.lab.pocket.pretrain_grids --out convbench/pocket/grids/weights

Every step takes tasks of a single rule with their demonstrations, where the loss is on every
output grid, and self-edits with uniformly drawn parts, where it is on the edit.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from convbench.pocket.grids.world import SIDES
from convbench.tasks.arc_agi.edit import STRATEGIES
from convbench.tasks.arc_agi.grids import END_MARK, Puzzle, format_answer, puzzle_prompt
from tests.lab.pocket import grids_corpus as corpus
from tests.lab.pocket import grids_tokenizer as tokenizer
from tests.lab.pocket.pretrain import Row, make_model, make_optimizers, save_policy, update_weights

CHOICES = ("true", "false", *STRATEGIES, *map(json.dumps, corpus.RATES))
"""Alternatives in an edit, except epochs, which are digits as colours are."""


def parse_args() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to save the weights in")
    parser.add_argument("--start", type=Path, help="weights to go on from; else from scratch")
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--stop", type=int, help="end after this many of the steps")
    parser.add_argument("--save-every", type=int, default=1000, help="steps between checkpoints")
    parser.add_argument("--sides", type=int, nargs="+", default=list(SIDES), help="of grids")
    parser.add_argument("--shown", type=int, default=4, help="most demonstrations")
    parser.add_argument("--rows", type=int, default=32, help="tasks of a single rule a step")
    parser.add_argument("--edits", type=int, default=1, help="self-edits a step")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


class RowMaker:
    """Makes rows of token ids."""

    def __init__(self, tok: PreTrainedTokenizerFast) -> None:
        self.tok, self.end = tok, tok.eos_token_id
        self.arrow = tok.encode(" -> ")[0]
        self.closing = {tok.encode(END_MARK)[0], tok.encode(END_MARK + "\n")[0], self.end}

    def context_row(self, rng: random.Random, sides: list[int], most: int) -> Row:
        """Return the row of a task of a single rule; the loss counts the tokens after each arrow,
        to the end mark included."""
        task, sign = corpus.context_task(rng, sides, most)
        puzzle = Puzzle(task.shown, task.test)
        reply = format_answer(puzzle.test.output, "places")
        ids = self.chat_ids(puzzle_prompt(puzzle, "places", sign), reply)
        counts, inside = [], False
        for token in ids:
            counts.append(inside)
            inside = token == self.arrow or (inside and token not in self.closing)
        start = len(ids) - len(self.tok.encode(reply)) - 1
        return ids, counts[:start] + [True] * (len(ids) - start)

    def edit_row(self, rng: random.Random) -> Row:
        """Return the row of a self-edit and its prompt; the loss counts the edit."""
        request, reply = corpus.edit_row(rng)
        ids = self.chat_ids([{"role": "user", "content": request}], reply)
        start = len(ids) - len(self.tok.encode(reply)) - 1
        return ids, [False] * start + [True] * (len(ids) - start)

    def chat_ids(self, messages: Sequence[Mapping[str, object]], reply: str) -> list[int]:
        """Return the ids of a prompt in the chat template, the reply and its end."""
        head = self.tok.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return [*head, *self.tok.encode(reply), self.end]


class EmbeddingTable:
    """The embedding during training; afterwards it is folded into the model.

    A cell's vector is the sum of its colour's and its position's, so that a rule seen in some
    colours and positions generalises to all. Alternatives in an edit (`true` or `false`, a rate)
    have a fixed part in addition to the trained one: drawn uniformly, they would otherwise come to
    share one vector, which no adapter on the layers could separate.
    """

    def __init__(self, tok: PreTrainedTokenizerFast) -> None:
        vocab = tok.get_vocab()
        cells = [(*at, colour) for at in tokenizer.PLACES for colour in range(10)]
        ids = [tok.encode(tokenizer.cell_text(*cell))[0] for cell in cells]
        self.cells = torch.tensor(ids)
        self.colours = torch.tensor([vocab[str(colour)] for *_, colour in cells])
        # A position's vector is stored in the row of its cell of colour 0.
        self.places = self.cells.view(-1, 10)[:, :1].expand(-1, 10).reshape(-1)
        self.choices = torch.tensor([tok.encode(text)[0] for text in CHOICES])

    def choice_parts(self, width: int) -> torch.Tensor:
        """Return the fixed part of every alternative, shape (alternatives, width); their distances
        are about those of colours."""
        stream = torch.Generator().manual_seed(0)
        return torch.randn(len(CHOICES), width, generator=stream) / width**0.5

    def full_embedding(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the embedding of every token, from the trained weights."""
        weight = weight.index_add(0, self.choices, self.choice_parts(weight.shape[1]))
        return weight.index_copy(0, self.cells, weight[self.colours] + weight[self.places])

    def fold_sums(self, model: LlamaForCausalLM) -> LlamaForCausalLM:
        """Return a copy of the model with the sums in its embedding."""
        folded = copy.deepcopy(model)
        with torch.no_grad():
            folded.model.embed_tokens.weight.copy_(
                self.full_embedding(folded.model.embed_tokens.weight)
            )
        return folded

    def unfold_sums(self, model: LlamaForCausalLM) -> None:
        """Undo the folding in place, to resume from saved weights: positions become cells less
        colours, alternatives lose their fixed part."""
        with torch.no_grad():
            weight = model.model.embed_tokens.weight
            residuals = (weight[self.cells] - weight[self.colours]).view(-1, 10, weight.shape[1])
            weight[self.cells[::10]] = residuals.mean(1)
            weight[self.choices] -= self.choice_parts(weight.shape[1])


def summed_loss(
    model: LlamaForCausalLM, table: EmbeddingTable, rows: list[Row], pad: int
) -> torch.Tensor:
    """Return the cross-entropy summed over the counted tokens of a right-padded batch."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows])
    mask = torch.tensor([counts + [False] * (longest - len(counts)) for _, counts in rows])[:, 1:]
    embedding = table.full_embedding(model.model.embed_tokens.weight)
    hidden = model.model(inputs_embeds=embedding[ids]).last_hidden_state[:, :-1]
    return F.cross_entropy(hidden[mask] @ embedding.T, ids[:, 1:][mask], reduction="sum")


def accumulate_gradient(
    model: LlamaForCausalLM, table: EmbeddingTable, rows: list[Row], pad: int
) -> float:
    """Add the gradient of the mean cross-entropy over the rows' counted tokens; return that mean.
    Rows of similar length go through the model together."""
    rows = sorted(rows, key=lambda row: len(row[0]))
    counted = sum(sum(counts[1:]) for _, counts in rows)
    total, part = 0.0, max(1, len(rows) // 3)
    for start in range(0, len(rows), part):
        loss = summed_loss(model, table, rows[start : start + part], pad) / counted
        loss.backward()
        total += loss.item()
    return total


def pretrain_policy(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Pre-train the grids' policy; return it with its tokenizer."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    tok = tokenizer.build_tokenizer()
    make, table = RowMaker(tok), EmbeddingTable(tok)
    model = make_model(
        tok, hidden=args.hidden, layers=args.layers, head=16, positions=tokenizer.LONGEST
    )
    if args.start is not None:
        model = LlamaForCausalLM.from_pretrained(args.start, dtype=torch.float32)
        table.unfold_sums(model)
    optimizers = make_optimizers(model, args.lr)
    sums, tokens, began = [0.0, 0.0], 0, time.monotonic()
    for step in range(args.steps):
        streams = (
            [make.context_row(rng, args.sides, args.shown) for _ in range(args.rows)],
            [make.edit_row(rng) for _ in range(args.edits)],
        )
        for number, rows in enumerate(streams):
            if rows:
                tokens += sum(len(ids) for ids, _ in rows)
                sums[number] += accumulate_gradient(model, table, rows, tok.pad_token_id) / 100
        # A short warm-up, then linear decay.
        rate = args.lr * min(1.0, (step + 1) / 100, 1.05 - step / args.steps)
        update_weights(model, optimizers, rate)
        if (step + 1) % 100 == 0:
            speed = tokens / (time.monotonic() - began)
            line = f"step {step + 1} context {sums[0]:.3f} edits {sums[1]:.3f} tokens {tokens}"
            print(f"{line} ({speed:.0f}/s)", file=sys.stderr, flush=True)
            sums = [0.0, 0.0]
        if (step + 1) % args.save_every == 0:
            save_policy(table.fold_sums(model), tok, args.out)
        if step + 1 == args.stop:
            break
    return table.fold_sums(model), tok


def main() -> None:
    """Train and save."""
    args = parse_args()
    model, tok = pretrain_policy(args)
    save_policy(model, tok, args.out)


if __name__ == "__main__":
    main()
