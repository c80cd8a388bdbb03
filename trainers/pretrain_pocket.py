"""Pre-train the pocket policy from scratch on a CPU and save it with its tokenizer.

    python trainers/pretrain_pocket.py --out convbench/pocket/weights

Every step takes short plain rows (facts, comparisons) and conversations. First the policy reads
facts only, then careful conversations, then the mixture of careful and careless ones that it is
shipped with. The loss is the mean cross-entropy over all tokens of plain rows and over the
policy's own tokens of conversations.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from convbench.pocket import corpus, tokenizer
from convbench.pocket.world import make_world

Row = tuple[list[int], list[bool]]
"""Token ids of one row, and which of them the loss counts."""

FACTS_ONLY, CAREFUL = 0.10, 0.62
"""Shares of the steps after which conversations begin, and carelessness sets in."""
SLOPPY_START = 0.05
"""How careless the careful stage is; the shipped mixture is 1."""


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to save the weights in")
    parser.add_argument("--steps", type=int, default=2600)
    parser.add_argument("--plain-rows", type=int, default=48, help="plain rows a step")
    parser.add_argument("--chat-rows", type=int, default=22, help="conversations a step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def make_model(tok: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama of about a million parameters."""
    config = LlamaConfig(
        vocab_size=len(tok),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
    )
    return LlamaForCausalLM(config)


def plain_row(tok: PreTrainedTokenizerFast, text: str) -> Row:
    """A plain text and its end; every token counts."""
    ids = [*tok.encode(text), tok.eos_token_id]
    return ids, [True] * len(ids)


def chat_row(tok: PreTrainedTokenizerFast, messages: list[dict[str, str]]) -> Row:
    """A conversation through the chat template; the policy's turns and their ends count."""
    ids: list[int] = []
    counts: list[bool] = []
    for message in messages:
        content = [*tok.encode(message["content"]), tok.eos_token_id]
        ids += [tok.convert_tokens_to_ids(tokenizer.ROLES[message["role"]]), *content]
        counts += [False] + [message["role"] == "assistant"] * len(content)
    return ids, counts


def batches(make: Callable[[], Row], size: int, rng: random.Random) -> Iterator[list[Row]]:
    """Endless batches of rows of like length, in random order."""
    while True:
        pool = sorted((make() for _ in range(size * 16)), key=lambda row: len(row[0]))
        groups = [pool[i : i + size] for i in range(0, len(pool), size)]
        rng.shuffle(groups)
        yield from groups


def loss_of(model: LlamaForCausalLM, rows: list[Row], pad: int) -> torch.Tensor:
    """Mean cross-entropy over the counted tokens of a right-padded batch."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows])
    mask = torch.tensor([counts + [False] * (longest - len(counts)) for _, counts in rows])
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1].float()
    wanted = mask[:, 1:]
    return F.cross_entropy(model.lm_head(hidden[wanted]), ids[:, 1:][wanted])


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up over 100 steps, then a cosine to a tenth of the peak."""
    decay = 0.55 + 0.45 * math.cos(math.pi * step / steps)
    return peak * min(1.0, (step + 1) / 100) * decay


def sloppiness_at(share: float) -> float:
    """How careless conversations are after this share of the steps (1: as shipped)."""
    return SLOPPY_START if share < CAREFUL else min(1.0, SLOPPY_START + (share - CAREFUL) / 0.05)


def make_optimizers(model: LlamaForCausalLM, peak: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    muon = torch.optim.Muon(
        matrices, lr=peak, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    )
    return [muon, torch.optim.AdamW(rest, lr=peak, betas=(0.9, 0.98), weight_decay=0.01)]


def update(
    model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], rate: float
) -> None:
    """Clip the gradient, step every optimizer at this rate, clear the gradient."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()


class Log:
    """Mean losses and speed, every hundred steps on stderr."""

    def __init__(self) -> None:
        self.start, self.tokens = time.monotonic(), 0
        self.sums = [0.0, 0.0]

    def add(self, stream: int, loss: float, rows: list[Row]) -> None:
        """Count one batch of the plain (0) or the chat (1) stream."""
        self.sums[stream] += loss / 100
        self.tokens += sum(len(ids) for ids, _ in rows)

    def show(self, step: int) -> None:
        """Print a line after every hundredth step."""
        if step % 100 == 0:
            plain, chat = self.sums
            rate = self.tokens / (time.monotonic() - self.start)
            line = f"step {step} plain {plain:.3f} chat {chat:.3f} tokens {self.tokens}"
            print(f"{line} ({rate:.0f}/s)", file=sys.stderr, flush=True)
            self.sums = [0.0, 0.0]


def train(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Run the whole pre-training."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng, world, share = random.Random(args.seed), make_world(), 0.0
    tok = tokenizer.build(world)
    model = make_model(tok)
    optimizers, log = make_optimizers(model, args.lr), Log()

    def talk() -> Row:
        return chat_row(tok, corpus.chat_row(world, sloppiness_at(share), rng))

    plain = batches(lambda: plain_row(tok, corpus.plain_row(world, rng)), args.plain_rows, rng)
    chat = batches(talk, args.chat_rows, rng)
    for step in range(args.steps):
        share = step / args.steps
        streams = (plain,) if share < FACTS_ONLY else (plain, chat)
        for number, stream in enumerate(streams):
            rows = next(stream)
            loss = loss_of(model, rows, tok.pad_token_id)
            loss.backward()
            log.add(number, loss.item(), rows)
        update(model, optimizers, learning_rate(step, args.steps, args.lr))
        log.show(step + 1)
    return model, tok


def save(model: LlamaForCausalLM, tok: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the weights in half precision with tokenizer and generation settings."""
    model.generation_config = GenerationConfig(
        eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id, do_sample=True
    )
    model.to(torch.float16).save_pretrained(out)
    tok.save_pretrained(out, save_jinja_files=False)


def main() -> None:
    """Train and save."""
    args = parse_args()
    model, tok = train(args)
    save(model, tok, args.out)


if __name__ == "__main__":
    main()
