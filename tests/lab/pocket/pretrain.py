"""Pre-train the pocket policy from scratch on a CPU and save it with its tokenizer.

    python -m tests.lab.pocket.pretrain --out convbench/pocket/weights

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
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from convbench.pocket.world import make_world
from tests.lab.pocket import corpus, tokenizer

Row = tuple[list[int], list[bool]]
"""Token ids of one row, and which of them the loss counts."""

FACTS_ONLY, CAREFUL = 0.10, 0.62
"""Shares of the steps after which conversations begin, and carelessness sets in."""


def parse_args() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to save the weights in")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--plain-rows", type=int, default=32, help="plain rows a step")
    parser.add_argument("--chat-rows", type=int, default=16, help="conversations a step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def make_model(
    tok: PreTrainedTokenizerFast, *, hidden: int, layers: int, head: int, positions: int
) -> LlamaForCausalLM:
    """Return a new Llama of this width, with heads of `head` dimensions."""
    config = LlamaConfig(
        vocab_size=len(tok),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // head,
        num_key_value_heads=hidden // head,
        head_dim=head,
        max_position_embeddings=positions,
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
    )
    return LlamaForCausalLM(config)


def plain_row(tok: PreTrainedTokenizerFast, text: str) -> Row:
    """Return the row of a plain text and its end; the loss counts every token."""
    ids = [*tok.encode(text), tok.eos_token_id]
    return ids, [True] * len(ids)


def chat_row(tok: PreTrainedTokenizerFast, messages: list[dict[str, str]]) -> Row:
    """Return the row of a conversation in the chat template; the loss counts the policy's turns and
    their ends."""
    ids: list[int] = []
    counts: list[bool] = []
    for message in messages:
        content = [*tok.encode(message["content"]), tok.eos_token_id]
        ids += [tok.convert_tokens_to_ids(tokenizer.ROLES[message["role"]]), *content]
        counts += [False] + [message["role"] == "assistant"] * len(content)
    return ids, counts


def accumulate_gradient(model: LlamaForCausalLM, rows: list[Row], pad: int) -> float:
    """Add the gradient of the mean cross-entropy over the rows' counted tokens; return that mean.

    It is in nats a token; at least one row must have a counted token after its first, else mean and
    gradients are NaN. Rows of similar length go through the model together, which saves padding.
    The mean is over all rows at once: a mean of each group would give tokens of short rows more
    weight.
    """
    rows = sorted(rows, key=lambda row: len(row[0]))
    counted = sum(sum(counts[1:]) for _, counts in rows)
    total = 0.0
    for group in split_by_length(rows):
        loss = summed_loss(model, group, pad) / counted
        loss.backward()
        total += loss.item()
    return total


def split_by_length(rows: list[Row]) -> list[list[Row]]:
    """Return sorted rows as a shorter and a longer half; as one group if all are short."""
    if len(rows[-1][0]) < 64:
        return [rows]
    return [rows[: len(rows) // 2], rows[len(rows) // 2 :]]


def summed_loss(model: LlamaForCausalLM, rows: list[Row], pad: int) -> torch.Tensor:
    """Return the cross-entropy summed over the counted tokens of a right-padded batch."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows])
    mask = torch.tensor([counts + [False] * (longest - len(counts)) for _, counts in rows])
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1].float()
    counted = mask[:, 1:]
    return F.cross_entropy(model.lm_head(hidden[counted]), ids[:, 1:][counted], reduction="sum")


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Return the rate at a step: linear warm-up over 100 steps, then a cosine to a tenth of the
    peak."""
    decay = 0.55 + 0.45 * math.cos(math.pi * step / steps)
    return peak * min(1.0, (step + 1) / 100) * decay


def sloppiness_at(share: float) -> float:
    """Return the sloppiness of conversations after this share of the steps (1: as shipped)."""
    return min(1.0, max(0.0, (share - CAREFUL) / 0.04))


def make_optimizers(model: LlamaForCausalLM, peak: float) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    muon = torch.optim.Muon(matrices, lr=peak, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(rest, lr=peak, betas=(0.9, 0.98), weight_decay=0.01)]


def update_weights(
    model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], rate: float
) -> None:
    """Clip the gradient, step every optimizer at this rate, clear the gradient."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()


class TrainingLog:
    """Prints mean losses and speed to stderr every hundred steps."""

    def __init__(self) -> None:
        self.start, self.tokens = time.monotonic(), 0
        self.sums = [0.0, 0.0]

    def add_batch(self, stream: int, loss: float, rows: list[Row]) -> None:
        """Count one batch of the plain (0) or the chat (1) stream."""
        self.sums[stream] += loss / 100
        self.tokens += sum(len(ids) for ids, _ in rows)

    def show_step(self, step: int) -> None:
        """Print a line after every hundredth step."""
        if step % 100 == 0:
            plain_loss, chat = self.sums
            rate = self.tokens / (time.monotonic() - self.start)
            line = f"step {step} plain {plain_loss:.3f} chat {chat:.3f} tokens {self.tokens}"
            print(f"{line} ({rate:.0f}/s)", file=sys.stderr, flush=True)
            self.sums = [0.0, 0.0]


def pretrain_policy(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Pre-train the pocket policy; return it with its tokenizer."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng, world = random.Random(args.seed), make_world()
    tok = tokenizer.build_tokenizer(world)
    model = make_model(tok, hidden=128, layers=4, head=32, positions=1024)
    optimizers, log = make_optimizers(model, args.lr), TrainingLog()

    for step in range(args.steps):
        share = step / args.steps
        texts = [corpus.plain_row(world, rng) for _ in range(args.plain_rows)]
        streams = [[plain_row(tok, text) for text in texts]]
        if share >= FACTS_ONLY:
            mix = sloppiness_at(share)
            chats = [corpus.chat_row(world, mix, rng) for _ in range(args.chat_rows)]
            streams.append([chat_row(tok, messages) for messages in chats])
        for number, rows in enumerate(streams):
            log.add_batch(number, accumulate_gradient(model, rows, tok.pad_token_id), rows)
        update_weights(model, optimizers, learning_rate(step, args.steps, args.lr))
        log.show_step(step + 1)
    return model, tok


def save_policy(model: LlamaForCausalLM, tok: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the weights in half precision with tokenizer and generation settings."""
    model.generation_config = GenerationConfig(
        eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id, do_sample=True
    )
    model.to(torch.float16).save_pretrained(out)
    tok.save_pretrained(out, save_jinja_files=False)


def main() -> None:
    """Train and save."""
    args = parse_args()
    model, tok = pretrain_policy(args)
    save_policy(model, tok, args.out)


if __name__ == "__main__":
    main()
