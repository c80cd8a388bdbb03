"""SWiFt in one file, without convbench and without a trainer: the oracle of the engine.

From a run's folder on disk to three steps of gradient descent: log, weights, tokens, loss. Nothing
here is fast or general: one policy `student`, one `teacher`, one judge, a chat template that only
appends. Mukherjee et al. (NeurIPS 2025), section 3.3, equation (9).
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

Row = tuple[list[int], list[bool], float]
"""(token ids, whether the policy wrote each, the weight of the conversation)."""


def read_log(run: Path) -> list[tuple[str, dict[str, Any], float]]:
    """Return (question, conversation, reward) of every train conversation, by question and
    sample."""

    def lines(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (run / name).read_text().splitlines()]

    train = {row["example_id"] for row in lines("examples.jsonl") if row["split"] == "train"}
    rewards = {row["conversation_id"]: row["reward"] for row in lines("verdicts.jsonl")}
    talks = [row for row in lines("conversations.jsonl") if row["example_id"] in train]
    talks.sort(key=lambda row: (row["example_id"], row["sample"]))
    return [(row["example_id"], row, rewards[row["conversation_id"]]) for row in talks]


def weights(log: list[tuple[str, dict[str, Any], float]]) -> list[float]:
    """Return each conversation's weight: its reward standardised within its question."""
    groups: dict[str, list[float]] = {}
    for question, _, reward in log:
        groups.setdefault(question, []).append(reward)
    return [
        (reward - fmean(groups[question])) / stdev(groups[question])
        if len(set(groups[question])) > 1
        else 0.0
        for question, _, reward in log
    ]


def tokens(talk: dict[str, Any], tokenizer: Any) -> tuple[list[int], list[bool]]:
    """Return (ids, whether the policy wrote each) of a conversation: each reply is tokenised after
    the prompt that the policy was sent, and ends with the template's end of turn."""
    messages = [{"role": "system", "content": talk["systems"]["student"]}]
    end = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    ids: list[int] = []
    mine: list[bool] = []
    for turn in talk["turns"]:
        if turn["speaker"] == "teacher":
            messages.append({"role": "user", "content": turn["content"]})
            continue
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        both = tokenizer(prompt + turn["content"], add_special_tokens=False)["input_ids"]
        assert prompt_ids[: len(ids)] == ids, "the template does not only append"
        mine += [False] * (len(prompt_ids) - len(ids)) + [True] * (len(both) - len(prompt_ids) + 1)
        ids = [*both, end]
        messages.append({"role": "assistant", "content": turn["content"]})
    return ids, mine


def make_rows(run: Path, model: Path) -> list[Row]:
    """Return the rows of a run's train conversations."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    log = read_log(run)
    return [
        (*tokens(talk, tokenizer), weight)
        for (_, talk, _), weight in zip(log, weights(log), strict=True)
    ]


def step_loss(model: Any, rows: list[Row]) -> torch.Tensor:
    """Return -(1/N) sum_i w_i sum_t log pi(a_t | h_t), N the policy's tokens in these rows."""
    total, count = torch.zeros(()), 0
    for ids, mine, weight in rows:
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
        log_pi = logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]]
        written = torch.tensor(mine[1:])
        total = total - weight * log_pi[written].sum()
        count += int(written.sum())
    return total / count


def train(
    run: Path, model: Path, *, rate: float, batch: int, steps: int
) -> tuple[Any, list[float]]:
    """Return (the model after some steps of plain gradient descent, the loss of each step); rows in
    the order of the log, `batch` a step."""
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimizer = torch.optim.SGD(policy.parameters(), lr=rate)
    rows, losses = make_rows(run, model), []
    for step in range(steps):
        first = step * batch % len(rows)
        loss = step_loss(policy, rows[first : first + batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return policy, losses
