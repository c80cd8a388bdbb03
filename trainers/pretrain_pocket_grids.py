"""Pre-train the small policy of the grids' world from scratch on a CPU and save it.

    python trainers/pretrain_pocket_grids.py --out convbench/pocket/grids/weights

Every step takes tasks of a single rule with their demonstrations, where the loss is on every
output grid, and self-edits of which each part is drawn alike, where it is on the edit.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from convbench.pocket.grids import corpus, tokenizer
from convbench.pocket.grids.world import SIDES
from convbench.tasks.arc_agi.grids import Puzzle
from convbench.tasks.arc_agi.wording import END, answer, prompt

Row = tuple[list[int], list[bool]]
"""Token ids of one row, and which of them the loss counts."""


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to save the weights in")
    parser.add_argument("--start", type=Path, help="weights to go on from; else from scratch")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--stop", type=int, help="end after this many of the steps")
    parser.add_argument("--save-every", type=int, default=1000, help="steps between checkpoints")
    parser.add_argument("--sides", type=int, nargs="+", default=list(SIDES), help="of grids")
    parser.add_argument("--shown", type=int, default=2, help="most demonstrations")
    parser.add_argument("--rows", type=int, default=32, help="tasks of a single rule a step")
    parser.add_argument("--edits", type=int, default=2, help="self-edits a step")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def make_model(tok: PreTrainedTokenizerFast, hidden: int = 64, layers: int = 3) -> LlamaForCausalLM:
    """A Llama of less than a million parameters."""
    config = LlamaConfig(
        vocab_size=len(tok),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 16,
        num_key_value_heads=hidden // 16,
        head_dim=16,
        max_position_embeddings=tokenizer.LONGEST,
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
    )
    return LlamaForCausalLM(config)


class Maker:
    """Makes rows of tokens."""

    def __init__(self, tok: PreTrainedTokenizerFast) -> None:
        self.tok, self.end = tok, tok.eos_token_id
        self.arrow = tok.encode(" -> ")[0]
        self.closing = {tok.encode(END)[0], tok.encode(END + "\n")[0], self.end}

    def context(self, rng: random.Random, sides: list[int], most: int) -> Row:
        """A task of a single rule: what follows an arrow counts, up to the end mark and it."""
        found = corpus.context_task(rng, sides, most)
        puzzle = Puzzle(found.shown, found.test)
        said = answer(puzzle.test.output, "digits")
        ids = self.chat(prompt(puzzle, "digits", ""), said)
        counts, inside = [], False
        for token in ids:
            counts.append(inside)
            inside = token == self.arrow or (inside and token not in self.closing)
        start = len(ids) - len(self.tok.encode(said)) - 1
        return ids, counts[:start] + [True] * (len(ids) - start)

    def edit(self, rng: random.Random) -> Row:
        """A self-edit and its prompt: the edit counts."""
        asked, said = corpus.edit_row(rng)
        ids = self.chat([{"role": "user", "content": asked}], said)
        start = len(ids) - len(self.tok.encode(said)) - 1
        return ids, [False] * start + [True] * (len(ids) - start)

    def chat(self, messages: list[dict[str, str]], said: str) -> list[int]:
        """A prompt through the chat template, the reply and its end."""
        head = self.tok.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return [*head, *self.tok.encode(said), self.end]


def summed(model: LlamaForCausalLM, rows: list[Row], pad: int) -> torch.Tensor:
    """Cross-entropy summed over the counted tokens of a right-padded batch."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows])
    mask = torch.tensor([counts + [False] * (longest - len(counts)) for _, counts in rows])[:, 1:]
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    return F.cross_entropy(model.lm_head(hidden[mask]), ids[:, 1:][mask], reduction="sum")


def backward(model: LlamaForCausalLM, rows: list[Row], pad: int) -> float:
    """Add the gradient of the mean over the rows' counted tokens; return it. Rows of like length
    go through the model together."""
    rows = sorted(rows, key=lambda row: len(row[0]))
    counted = sum(sum(counts[1:]) for _, counts in rows)
    total, part = 0.0, max(1, len(rows) // 3)
    for start in range(0, len(rows), part):
        loss = summed(model, rows[start : start + part], pad) / counted
        loss.backward()
        total += loss.item()
    return total


def optimizers_of(model: LlamaForCausalLM, peak: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    muon = torch.optim.Muon(matrices, lr=peak, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(rest, lr=peak, betas=(0.9, 0.98), weight_decay=0.01)]


def train(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Run the whole pre-training."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    tok = tokenizer.build()
    make, model = Maker(tok), make_model(tok, args.hidden, args.layers)
    if args.start is not None:
        model = LlamaForCausalLM.from_pretrained(args.start, dtype=torch.float32)
    optimizers = optimizers_of(model, args.lr)
    sums, tokens, began = [0.0, 0.0], 0, time.monotonic()
    for step in range(args.steps):
        streams = (
            [make.context(rng, args.sides, args.shown) for _ in range(args.rows)],
            [make.edit(rng) for _ in range(args.edits)],
        )
        for number, rows in enumerate(streams):
            if rows:
                tokens += sum(len(ids) for ids, _ in rows)
                sums[number] += backward(model, rows, tok.pad_token_id) / 100
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        # A short warm-up, then straight down to nothing.
        rate = args.lr * min(1.0, (step + 1) / 100, 1.05 - step / args.steps)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        if (step + 1) % 100 == 0:
            speed = tokens / (time.monotonic() - began)
            line = f"step {step + 1} context {sums[0]:.3f} edits {sums[1]:.3f} tokens {tokens}"
            print(f"{line} ({speed:.0f}/s)", file=sys.stderr, flush=True)
            sums = [0.0, 0.0]
        if (step + 1) % args.save_every == 0:
            save(model, tok, args.out)
        if step + 1 == args.stop:
            break
    return model, tok


def save(model: LlamaForCausalLM, tok: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the weights in half precision with tokenizer and generation settings."""
    model.generation_config = GenerationConfig(
        eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id, do_sample=True
    )
    copy.deepcopy(model).to(torch.float16).save_pretrained(out)
    tok.save_pretrained(out, save_jinja_files=False)


def main() -> None:
    """Train and save."""
    args = parse_args()
    model, tok = train(args)
    save(model, tok, args.out)


if __name__ == "__main__":
    main()
