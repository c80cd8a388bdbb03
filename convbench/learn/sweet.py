"""SWEET-RL (Zhou et al. 2025): its settings, and the rows of its stages.

Stage 1 trains a critic that sees the hidden reference on pairs of conversations of one task,
equation (2). Stage 2 samples candidate replies at the policy's turns, ranks them by the critic's
advantage, equation (3), and trains the policy on pairs of them without the hidden text, equation
(4). `credit.py` goes through the stages.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from convbench import catalog
from convbench.engine.jobs import run_in_loop
from convbench.engine.session import Session
from convbench.errors import TrainError
from convbench.learn.pairs import Pair, Pairs, Reply
from convbench.learn.rows import Chats, Material, Row, Rows, prompted_replies
from convbench.learn.select import Logged, Selection, name_hash, select
from convbench.learn.tokens import ChatTokens, PromptedReply, Unrenderable
from convbench.learn.weights import Ties, break_ties, equal_indices
from convbench.models.weights_path import SHIPPED_REFS, weights_of
from convbench.options.shared import CallOptions
from convbench.rollout.calls import check_affordable, max_calls, open_caller, raise_stop
from convbench.rollout.candidates import (
    CandidateJob,
    CandidatePosition,
    SampleSummary,
    candidate_rows,
    open_candidate_model,
    sample_candidates,
)
from convbench.rollout.plan import seen_before
from convbench.schema import Message, ToolCall
from convbench.schema.base import FrozenModel
from convbench.schema.recipe import Fit, Recipe
from convbench.store.jsonl import read_records
from convbench.store.run import Run
from convbench.views import SEPARATOR, own_turns

CRITIC, CANDIDATES, RANK, SCORES = "critic", "candidates.jsonl", "rank", "scores.jsonl"
Normalize = bool | Literal["turn", "trajectory"]
Place = tuple[str, int, int]
"""(conversation id, turn, rounds of tools before it) of a reply of the policy."""


class SweetArgs(FrozenModel):
    """`args` of recipes `sweet` and `mt-dpo`."""

    hidden: tuple[str, ...] = ("reference",)
    """Hidden fields of the example that the critic sees; none makes it a plain trajectory DPO."""
    wording: str = "In light of the final answer, which the agent does not see:\n{hidden}"
    """How the critic is shown them; `{hidden}` stands for the fields."""
    select: Literal["best", "gap"] = "best"
    """Pairs: of tasks whose best reward is at least `top` the best against each lower one
    (backend), or all that differ by at least `gap` (frontend)."""
    top: float = 1.0
    """Least best reward of a task (`best`)."""
    gap: float = Field(default=0.1, gt=0)
    """Least difference in reward (`gap`)."""
    beta: float = Field(default=0.1, gt=0)
    """beta of equation (2)."""
    nll: float = Field(default=0.01, ge=0)
    """Weight of the chosen side's negative log-likelihood in stage 2."""
    critic_nll: float = Field(default=0.0, ge=0)
    """The same in stage 1."""
    normalize: Normalize = "turn"
    """`turn`: the sum over turns of the mean over each one's tokens, equation (3); `trajectory`:
    the mean over all tokens of all turns, as the released trainer has it; false sums (the
    ablation). True is `turn`."""
    informed_reference: bool = True
    """Whether the reference that candidates are scored against sees the hidden fields too, as in
    equation (3); the released code's does not."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the conversations whose turns get candidates, at least one."""
    held_out: float = Field(default=0.1, ge=0, lt=1)
    """Share of the train tasks on which the critic is only measured."""
    candidates: int = Field(default=16, ge=2)
    """Replies sampled at each policy turn."""
    pairs: int = Field(default=4, ge=1)
    """Pairs a turn: one from the top half, one from the bottom half, at random."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of the candidates."""
    conversations: int | None = Field(default=None, ge=1)
    """Conversations a task whose turns get candidates; null: all. Equal histories count once."""
    critic: dict[str, Any] = Field(default_factory=dict)
    """What the critic's `fit` has otherwise than the recipe's."""

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> SweetArgs:
        """Return a recipe's args as settings. Raises SpecError if they are invalid."""
        return catalog.check_spec(cls, recipe.args, f"recipe {recipe.name!r}: args")


def critic_recipe(recipe: Recipe) -> Recipe:
    """Return stage 1's recipe: the same, named NAME-critic, with `args.critic` over its `fit`.

    Raise SpecError for invalid values."""
    values = {**recipe.fit.model_dump(), **SweetArgs.from_recipe(recipe).critic}
    fit = catalog.check_spec(Fit, values, f"recipe {recipe.name!r}: args.critic")
    name = f"{recipe.name}-critic"
    return recipe.model_copy(update={"name": name, "trainer": "critic", "fit": fit})


def trajectory_material(
    recipe: Recipe, runs: Sequence[Run], chats: Chats, limit: int | None
) -> Material:
    """Return the pairs (better, worse) of conversations of one task for equation (2), to train on
    and held out. Raise TrainError if there are none to train on, or without a hidden field."""
    args, selection = SweetArgs.from_recipe(recipe), select(runs, recipe.data)
    pairs, ties = trajectory_pairs(selection, args, recipe)

    def side(item: Logged) -> Row:
        rows = critic_rows(item, chats, args)
        if rows is None:
            raise Unrenderable("of a conversation without a token of the policy")
        if limit is not None and max(map(len, rows["ids"])) > limit:
            raise Unrenderable("longer than a row")
        return rows

    def tokenise(some: Sequence[tuple[Logged, Logged, bool]], counts: Counter[str]) -> Rows:
        for better, worse, held in some:
            try:
                chosen, rejected = side(better), side(worse)
            except Unrenderable as error:
                counts[f"pairs left out: {error}"] += 1
                continue
            counts["pairs held out" if held else "pairs"] += 1
            yield {
                "task": better.task,
                "held": held,
                "chosen_ids": chosen["ids"],
                "chosen_turns": chosen["turns"],
                "rejected_ids": rejected["ids"],
                "rejected_turns": rejected["turns"],
            }

    end = chats.of(runs[0]).end_of_turn
    return Material(selection, "pair of conversations", pairs, tokenise, ties=ties, end_of_turn=end)


def trajectory_pairs(
    selection: Selection, args: SweetArgs, recipe: Recipe
) -> tuple[list[tuple[Logged, Logged, bool]], Ties | None]:
    """Return ((better, worse, whether held out) of every pair, summary of ties among the best)."""
    pairs: list[tuple[Logged, Logged, bool]] = []
    tied = looked = 0
    rule = recipe.pairing.ties
    for task, logged in selection.by_task().items():
        held = is_held(task, args.held_out)
        if args.select == "gap":
            both = itertools.product(logged, logged)
            pairs += [(a, b, held) for a, b in both if a.reward - b.reward >= args.gap - 1e-12]
            continue
        rewards = [item.reward for item in logged]
        if max(rewards) < args.top - 1e-9 or min(rewards) == max(rewards):
            continue
        best = equal_indices(rewards, max(rewards))
        looked, tied = looked + 1, tied + (len(best) > 1)
        for winner in break_ties(best, rule, recipe.fit.seed, task, "best"):
            top = logged[winner]
            pairs += [(top, item, held) for item in logged if item.reward < top.reward]
    if not any(not held for *_, held in pairs):
        raise TrainError(
            f"no pair of conversations is left to train on under select: {args.select}; build more "
            "samples per task, or change args.top or args.gap"
        )
    for item in (item for *both, _ in pairs for item in both):
        informed(item, (), args)  # a missing field is refused now
    return pairs, Ties(rule, tied, looked) if args.select == "best" else None


def is_held(task: str, share: float) -> bool:
    """Return True if a task is in the held-out share; it is the same on every machine."""
    number = int.from_bytes(name_hash(f"held/{task}")[:6], "big")
    return number / 2**48 < share


def informed(item: Logged, seen: Sequence[Message], args: SweetArgs) -> tuple[Message, ...]:
    """Return messages with the hidden text before the content of the first one of the user. Raises
    TrainError if a hidden field is missing."""
    hidden, out = item.example.hidden, list(seen)
    missing = [name for name in args.hidden if name not in hidden]
    if missing:
        raise TrainError(
            f"example {item.example.example_id}: found no hidden field {missing[0]!r}; it has "
            f"{sorted(hidden)}; name them with --set args.hidden='[...]'"
        )
    text = args.wording.replace("{hidden}", "\n".join(str(hidden[name]) for name in args.hidden))
    user = next((n for n, message in enumerate(out) if message["role"] == "user"), None)
    if args.hidden and user is not None:
        out[user] = {**out[user], "content": f"{text}{SEPARATOR}{out[user]['content']}"}
    return tuple(out)


def candidate_places(selection: Selection, args: SweetArgs) -> list[tuple[Logged, int, int]]:
    """Return (conversation, turn, rounds of tools before it) of every reply that gets candidates.

    Equal histories come once; tasks held out from the critic do not come."""
    items = [
        item
        for task, logged in selection.by_task().items()
        if not is_held(task, args.held_out)
        for item in logged[: args.conversations]
    ]
    ids = sorted((item.id for item in items), key=lambda name: name_hash(f"share/{name}"))
    sampled = set(ids[: max(1, round(args.share * len(ids)))])
    seen: set[str] = set()
    places = []
    for item in items:
        if item.id not in sampled:
            continue
        for turn in own_turns(item.protocol, item.conversation):
            for rounds in range(item.conversation.turns[turn].reply_count):
                before = seen_before(item.protocol, item.conversation, turn, rounds)
                mark = json.dumps([item.task, before], default=str)
                if mark not in seen:
                    seen.add(mark)
                    places.append((item, turn, rounds))
    return places


def sample_missing(
    run: Run,
    recipe: Recipe,
    selection: Selection,
    file: Path,
    calls: CallOptions,
    session: Session,
    *,
    check: bool,
) -> None:
    """Append the candidates that the file does not hold yet; with `check` only see that they could
    be asked for, with nothing sent or loaded.

    Raise what stopped it early, or TrainError if some failed; the same call then resumes."""
    args = SweetArgs.from_recipe(recipe)
    known = {(*place_of(row), row["candidate"]) for row in candidate_rows(file)}
    jobs: list[CandidateJob] = []
    for item, turn, rounds in candidate_places(selection, args):
        for number in range(args.candidates):
            if (item.id, turn, rounds, number) not in known:
                place = {"conversation_id": item.id, "turn": turn, "rounds": rounds}
                position = CandidatePosition(**place, candidate=number)
                jobs.append((item.conversation, position))
    if not jobs:
        return
    member = run.manifest.policy_member
    start, model_path = member.model, weights_of(recipe.model or "") or recipe.model
    if model_path not in (None, start, weights_of(start, member.weights)):  # that which is trained
        start = str(recipe.model if recipe.model in SHIPPED_REFS else f"local:{recipe.model}")
        session = session.naming(start)

    async def sample() -> SampleSummary | None:
        model = open_candidate_model(run, start, calls, session)
        try:
            if check:
                check_affordable(model, calls)
                return None
            many = max_calls(calls, [model])
            async with open_caller(run, calls, session, "candidates", many, [model]) as caller:
                return await sample_candidates(
                    run, model, jobs, file, caller, many, args.temperature
                )
        finally:
            await model.aclose()

    done = run_in_loop(sample)
    if done is None:
        return
    raise_stop(done.jobs)
    if done.failures:
        count, (words, _) = done.failures.total(), done.failures.most_common(1)[0]
        raise TrainError(
            f"{count} candidates failed, e.g. {words}; run the command again to resume"
        )


def critic_rows(item: Logged, chats: Chats, args: SweetArgs) -> Row | None:
    """Return a conversation as the critic reads it: `ids` and `turns` of its rows, the hidden text
    before its first user message; None without a token of the policy."""
    replies = [
        replace(reply, messages=informed(item, reply.messages, args))
        for reply in prompted_replies(item.protocol, item.conversation)
    ]
    return turn_rows(chats.of(item.run, item.conversation), replies, item)


def turn_rows(chat: ChatTokens, replies: Sequence[PromptedReply], item: Logged) -> Row | None:
    """Return `ids` of the rows of replies, and `turns`: the number of each token's reply, -1 where
    it is context."""
    rows = chat.token_rows(replies, item.day)
    if not any(mark >= 0 for row in rows for mark in row.replies[1:]):
        return None
    return {"ids": [list(row.ids) for row in rows], "turns": [list(row.replies) for row in rows]}


def rows_to_rank(
    folder: Path, run: Run, recipe: Recipe, selection: Selection, chats: Chats
) -> Iterator[Row]:
    """Yield a row for each candidate, equal contents of one place once, and for each logged
    conversation, of any split, that the critic can read: how critic and reference read it."""
    args = SweetArgs.from_recipe(recipe)
    by_id = {item.id: item for item in selection.logged}
    scored: set[str] = set()
    for row in candidate_rows(folder / CANDIDATES):
        item, key = by_id.get(row["conversation_id"]), candidate_key(row)
        if item is None or key in scored:
            continue
        scored.add(key)
        _, turn, rounds = place_of(row)
        before = seen_before(item.protocol, item.conversation, turn, rounds)
        chat, shown = chats.of(item.run, item.conversation), informed(item, before, args)
        critic, reference = (
            turn_rows(chat, [PromptedReply(seen, reply_of(row))], item)
            for seen in (shown, shown if args.informed_reference else tuple(before))
        )
        if critic and reference:
            yield {"key": key, "critic": critic, "reference": reference}
    for conversation in run.conversations():
        example = run.examples[conversation.example_id]
        if conversation.failure is not None or not all(n in example.hidden for n in args.hidden):
            continue
        item = Logged(run, conversation, example, example.example_id, 0.0)
        try:
            rows = critic_rows(item, chats, args)
        except Unrenderable:
            continue
        if rows:
            yield {"key": item.id, "critic": rows, "reference": rows}


def ranked_pairs(folder: Path, recipe: Recipe, selection: Selection) -> Pairs:
    """Return pairs of candidates of a turn under the messages that the policy saw, without hidden
    text, equation (4). Raise TrainError if there are none, or no scores."""
    if not (folder / RANK / SCORES).is_file():
        raise TrainError(
            f"{folder / RANK / SCORES}: found no such file; convbench train {recipe.name} makes "
            "it, from candidates and their scores"
        )
    args, scores = SweetArgs.from_recipe(recipe), read_scores(folder)
    known = {item.id for item in selection.logged}
    places: dict[Place, list[tuple[float, Reply]]] = {}
    unscored = 0
    for row in candidate_rows(folder / CANDIDATES):
        values = scores.get(candidate_key(row))
        if values is None or row["conversation_id"] not in known:
            unscored += 1
        else:
            places.setdefault(place_of(row), []).append((sum(values), reply_of(row)))
    pairs = candidate_pairs(selection, places, args, recipe.fit.seed)
    if not pairs.items:
        equal = sum(pairs.left_out.values())
        raise TrainError(
            f"no pair of candidates is left to train on ({unscored} candidates without a score, "
            f"{equal} pairs of the same text or advantage); sample more per turn "
            "(args.candidates), or train the critic for longer (args.critic)"
        )
    return pairs


def candidate_pairs(
    selection: Selection,
    places: Mapping[Place, Sequence[tuple[float, Reply]]],
    args: SweetArgs,
    seed: int,
) -> Pairs:
    """Return pairs of the candidates (advantage, reply) of each place, under the messages that the
    policy saw there: `args.pairs` times one drawn from the upper half by advantage and one from the
    lower. Those of the same text or advantage are left out."""
    by_id = {item.id: item for item in selection.logged}
    pairs, left_out = [], Counter[str]()
    for (name, turn, rounds), candidates in places.items():
        item, order = by_id[name], sorted(candidates, key=lambda candidate: -candidate[0])
        draw = random.Random(f"{seed}/{name}/{turn}" + (f".{rounds}" if rounds else ""))
        seen = tuple(seen_before(item.protocol, item.conversation, turn, rounds))
        half = len(order) // 2  # the middle one of an odd number is in neither
        for _ in range(args.pairs if half else 0):
            gain, better = draw.choice(order[:half])
            loss, worse = draw.choice(order[len(order) - half :])
            if better.content_key == worse.content_key or gain == loss:
                left_out["pairs of the same text or advantage"] += 1
            else:
                pairs.append(Pair(item, seen, better, worse))
    return Pairs(selection, pairs, dict(left_out))


def read_scores(folder: Path) -> dict[str, list[float]]:
    """Return what `trainers/rank.py` wrote: the advantages of each row's turns, by its key."""
    return {row["key"]: row["advantages"] for row in read_records(folder / RANK / SCORES)}


def place_of(row: Mapping[str, Any]) -> Place:
    """Return the place of the logged reply that a candidate is an alternative to."""
    return row["conversation_id"], row["turn"], row.get("rounds", 0)


def reply_of(row: Mapping[str, Any]) -> Reply:
    """Return a candidate's reply, its text and calls, without reasoning."""
    calls = tuple(ToolCall.model_validate(call) for call in row.get("calls", ()))
    return Reply(row["text"], row["cut"], calls=calls)


def candidate_key(row: Mapping[str, Any]) -> str:
    """Return a key that is equal for candidates of one place with the same content."""
    return json.dumps([place_of(row), reply_of(row).content_key, row["cut"]])
