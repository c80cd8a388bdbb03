"""Policies of a report: one a run, with its graded conversations and their verdicts."""

from __future__ import annotations

import pickle
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from convbench.errors import RunError
from convbench.models.weights_path import folder_of, weights_fingerprint
from convbench.schema import JudgeSpec
from convbench.schema.experiment import POOLED
from convbench.store.checkpoint import Checkpoint
from convbench.store.grades import GradeRow, graded_rows
from convbench.store.index import VerdictRow
from convbench.store.run import QuestionSplit, Run
from convbench.store.spilled import SpilledPieces

NOTHING: Mapping[str, Any] = {}
"""The empty mapping shared by verdicts without details."""
TOGETHER = 64
"""Observations that are pickled as one piece."""
JOINED_AT_ONCE = 1 << 17
"""Conversations in memory while their verdicts are collected."""


class VerdictScores(NamedTuple):
    """One judge's verdict on one conversation."""

    fingerprint: str
    scores: Mapping[str, float]
    reward: float | None
    failed: bool
    details: Mapping[str, Any] = NOTHING


class Observation(NamedTuple):
    """What a report needs of one conversation of a policy."""

    unit: str
    """Key that pairs it with another policy's conversation: question, sample and temperature."""
    group: str
    """Id of the independent group, for clustered errors."""
    temperature: float | None
    """None if none was sent."""
    failed: bool
    correct: bool | None
    """None if it failed or cannot be graded."""
    unparsed: bool
    """Whether it was graded but no answer could be read."""
    thinking: bool | None
    """Whether the last turn has thinking tags."""
    reasoned: bool | None
    """Whether it has reasoning in a separate channel."""
    flags: tuple[str, ...]
    """Findings of the fidelity checks, `SPEAKER:FINDING`."""
    verdicts: Mapping[str, VerdictScores] = NOTHING
    """Verdicts by judge."""
    reviews: Mapping[str, VerdictScores] = NOTHING
    """Verdicts by judge, of judges that review the simulated human."""
    conversation_id: str = ""
    """conversation_id."""
    words: int | None = None
    """Number of words in the policy's turns."""


class Observations:
    """Sized iterable of a policy's observations, unpickled anew on each iteration."""

    def __init__(self, rows: Iterable[Observation] = ()) -> None:
        self._pieces = SpilledPieces()
        self._last: list[Observation] = []
        for row in rows:
            self.add(row)

    def add(self, row: Observation) -> None:
        """Append an observation; full pieces of 64 are pickled."""
        self._last.append(row)
        if len(self._last) == TOGETHER:
            self._pieces.add(pickle.dumps(self._last))
            self._last = []

    def __len__(self) -> int:
        return len(self._pieces) * TOGETHER + len(self._last)

    def __iter__(self) -> Iterator[Observation]:
        for number in range(len(self._pieces)):
            yield from pickle.loads(self._pieces[number])  # noqa: S301 - written above
        yield from self._last


def at_temperature(rows: Iterable[Observation], temperature: float | None) -> Iterator[Observation]:
    """Yield the rows whose sent temperature equals this one; None selects rows for which none was
    sent."""
    return (row for row in rows if row.temperature == temperature)


def observe_run(run: Run, split: str) -> Iterator[tuple[QuestionSplit, GradeRow, Observation]]:
    """Yield (question, grade, observation) for each conversation of a split, or of `all`, failed
    ones included.

    Verdicts are by judge, the last one of a judge; those
    on the simulated human are in `reviews`. Raise RunError for a damaged record.
    """
    graded_conversations = graded_rows(run, split)
    reviewers = run.reviewer_fingerprints()
    while some := list(islice(graded_conversations, JOINED_AT_ONCE)):
        verdicts: dict[str, dict[str, VerdictScores]] = {}
        reviews: dict[str, dict[str, VerdictScores]] = {}
        for row, *_ in some:
            verdicts[row.conversation_id], reviews[row.conversation_id] = {}, {}
        for verdict in run.verdict_rows():
            into = reviews if verdict.fingerprint in reviewers else verdicts
            if verdict.conversation_id in into:
                into[verdict.conversation_id][verdict.judge] = _score_of(verdict)
        for row, question, graded in some:
            yield (
                question,
                graded,
                Observation(
                    unit=f"{row.example_id}#{row.sample}@{graded.temperature:g}",
                    group=question.group_id,
                    temperature=graded.sent_temperature,
                    failed=not row.ended,
                    correct=graded.correct,
                    unparsed=graded.correct is not None and not graded.answered,
                    thinking=graded.thinking,
                    reasoned=graded.reasoned,
                    flags=tuple(row.flags),
                    verdicts=verdicts[row.conversation_id],
                    reviews=reviews[row.conversation_id],
                    conversation_id=row.conversation_id,
                    words=graded.words,
                ),
            )


def _score_of(verdict: VerdictRow) -> VerdictScores:
    return VerdictScores(
        verdict.fingerprint,
        verdict.scores,
        verdict.reward,
        not verdict.scored,
        verdict.details or NOTHING,
    )


NAMES = {
    "swift": "SWiFt",
    "refit": "ReFit",
    "dpo": "DPO",
    "star-gate": "STaR-GATE",
    "base": "Base",
    "star-gate-d": "STaR-GATE-D",
    "step-dpo": "StepDPO",
    "sweet": "SWEET-RL",
    "mt-dpo": "Multi-turn DPO",
    "rft": "Rejection fine-tuning",
    "seal": "SEAL",
    "star-gate-d-first8": "STaR-GATE-D, first 8 layers",
    "seal-few-shot": "SEAL few-shot",
}
"""Recipes' names in the literature, in the order of the papers' tables."""
BASE = NAMES["base"]
_ROUND = re.compile(r"-round-(\d+)$")


@dataclass(frozen=True)
class Policy:
    """One line of a report's table."""

    name: str
    """Base, a learner, or a model."""
    run: Run
    split: str
    observations: Observations | Sequence[Observation]
    planned: int
    """Number of conversations the run is planned to have in this split."""
    family: str
    """Id of the run whose questions it answers: its own run, or the parent run."""
    is_base: bool = False
    """Whether the other policies were trained from it."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """The resolved recipe of its checkpoint; empty if that is not on disk."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """`training.json` of its checkpoint; empty if that is not on disk."""
    members: tuple[Policy, ...] = ()
    """The policies this one was pooled from."""

    @property
    def run_policies(self) -> tuple[Policy, ...]:
        """Return the policies that it was pooled from, or itself alone: one for each run."""
        return self.members or (self,)

    @property
    def is_other_model(self) -> bool:
        """Return whether it is a model that was evaluated beside Base without being trained."""
        return self.run.manifest.kind == "eval" and not self.is_base and not self.recipe

    @property
    def model(self) -> str:
        """Return the model of the policy's speaker in its run."""
        return self.run.manifest.policy_member.model

    @property
    def recipe_data(self) -> Mapping[str, Any]:
        """Return the recipe's choice of data; empty without a recipe."""
        return self.recipe.get("data") or {}

    @property
    def judges(self) -> tuple[str, ...]:
        """Return the names of the judges with a verdict on these conversations, failed or not, in
        order of appearance.

        Judges of the simulated human are not among them.
        """
        return tuple(self._judge_marks)

    def fingerprints(self, judge: str) -> tuple[str, ...]:
        """Return the sorted fingerprints of this judge's verdicts on these conversations; empty if
        it has none."""
        return tuple(sorted(self._judge_marks.get(judge, ())))

    @cached_property
    def _judge_marks(self) -> Mapping[str, set[str]]:
        marks: dict[str, set[str]] = {}
        for row in self.observations:
            for judge, scored in row.verdicts.items():
                marks.setdefault(judge, set()).add(scored.fingerprint)
        return marks


def judge_spec(policies: Iterable[Policy], judge: str | None) -> JudgeSpec | None:
    """Return a judge's spec as stored with the runs, of the first policy and fingerprint that has
    one; None if none has or `judge` is None."""
    for part in (part for policy in policies for part in policy.run_policies):
        specs = part.run.judge_specs() if judge in part.judges else {}
        for fingerprint in part.fingerprints(judge or ""):
            if fingerprint in specs:
                return specs[fingerprint]
    return None


def read_policies(run: Run, split: str) -> list[Policy]:
    """Return a run's own policy and then those of its child runs by name, if they have
    conversations of the split.

    Raise RunError if none has, or for a damaged record.
    """
    own = read_policy(run, split)
    children = [read_policy(child, split, parent=run) for child in run.child_runs()]
    policies = [policy for policy in (own, *children) if policy.observations]
    if not policies:
        raise RunError(
            f"{run.path}: found no conversations of split {split}{_help_text(run, split)}"
        )
    return policies


def _help_text(run: Run, split: str) -> str:
    """Return what to do about missing conversations of a split, and which splits the run has."""
    spoken = Counter(run.examples[head.example_id].split for head in run.conversation_rows())
    other = "".join(f"; it has {count} of {name}: --split {name}" for name, count in spoken.items())
    if run.manifest.kind == "import":
        return other or "; it was imported and has no conversations"
    if split == "all" or any(example.split == split for example in run.examples.values()):
        return f"; build them: convbench build --run {shlex.quote(str(run.path))}{other}"
    return f", nor questions of it{other or '; build a run with more questions'}"


def read_policy(run: Run, split: str, parent: Run | None = None) -> Policy:
    """Return the policy of one run with its observations, without its children's; it may have no
    observations.

    Its name is `Base`, or for a child run its recipe's name in the literature. `split` is a split's
    name or `all`. `parent` is the run below which the checkpoint is looked for. Raise RunError for
    a damaged record.
    """
    manifest = run.manifest
    recipe, training = checkpoint_of(run, parent)
    observations = Observations(row for *_, row in observe_run(run, split))
    question_counts = Counter(q.split for q in run.questions.values() if split in ("all", q.split))
    child = manifest.parent is not None
    return Policy(
        name=_recipe_name(run, recipe) if child else BASE,
        run=run,
        split=split,
        observations=observations,
        planned=max(manifest.planned_count(question_counts), len(observations)),
        family=manifest.parent or manifest.id,
        is_base=not child,
        recipe=recipe,
        training=training,
    )


def _recipe_name(run: Run, recipe: Mapping[str, Any]) -> str:
    """Return the recipe's display name, with its round if it was trained in rounds, and a suffix if
    an experiment trained it on all tasks."""
    name = str(recipe.get("name") or run.path.name)
    number = _ROUND.search(run.path.name) if recipe else None
    pooled = " (all tasks)" if recipe and run.path.name.startswith(POOLED) else ""
    return NAMES.get(name, name) + (f" round {number[1]}" if number else "") + pooled


def round_of(policy: Policy) -> tuple[str, int] | None:
    """Return (name without the round, round) of a policy trained in rounds; None for others."""
    number = _ROUND.search(policy.run.path.name) if policy.recipe and not policy.is_base else None
    if number is None:
        return None
    return policy.name.replace(f" round {number[1]}", ""), int(number[1])


def checkpoint_of(run: Run, parent: Run | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (resolved recipe, training.json) of the checkpoint that a child run evaluates.

    The manifest's `extra.recipe` (a name, or a mapping) overrides the checkpoint's own file. Both
    are empty if there is neither.
    """
    noted = run.manifest.extra.get("recipe") or {}
    recipe = {"name": noted} if isinstance(noted, str) else dict(noted)
    for folder in _checkpoint_folders(run, parent):
        checkpoint = Checkpoint(folder)
        if checkpoint.recipe:
            return {**checkpoint.recipe, **recipe}, dict(checkpoint.training)
    return recipe, {}


def _checkpoint_folders(run: Run, parent: Run | None) -> list[Path]:
    """Return the folders where a child run's checkpoint may be, those with the evaluated weights
    first: checkpoints of other rounds and folders may have the same name."""
    if run.manifest.checkpoint is None:
        return []
    path = folder_of(run.manifest.checkpoint)
    above = parent.path if parent is not None else run.path.parent.parent
    of_round = [above.joinpath(*path.parts[-5:])] if path.parts[-5:-4] == ("rounds",) else []
    folders = [*of_round, above / "checkpoints" / path.name, path.expanduser()]
    fingerprint = run.manifest.policy_member.fingerprint
    if fingerprint is None:
        return folders
    return sorted(folders, key=lambda folder: weights_fingerprint(folder) != fingerprint)


def sort_policies(policies: list[Policy]) -> list[Policy]:
    """Return a new list in the order of the papers' tables, then other names in alphabetical order
    (also those with a round or suffix)."""
    rank = {name: index for index, name in enumerate(NAMES.values())}
    return sorted(policies, key=lambda p: (rank.get(p.name, len(rank)), p.name))


def plain_name(policy: Policy) -> str:
    """Return a policy's name without the suffix in brackets that distinguishes it."""
    return policy.name.partition(" (")[0]


def with_unique_names(policies: list[Policy]) -> list[Policy]:
    """Return the policies in their order with unique names; all that share a name get a suffix in
    brackets.

    The suffix is the model (Base), the size of the training set or the folder. If names are still
    equal, the run id is added.
    """
    for more in (_distinction, lambda policy: policy.run.manifest.id):
        names = [policy.name for policy in policies]
        policies = [
            replace(policy, name=f"{policy.name} ({more(policy)})")
            if names.count(policy.name) > 1
            else policy
            for policy in policies
        ]
    return policies


def _distinction(policy: Policy) -> str:
    if policy.is_base:
        return policy.model
    rows = policy.recipe_data.get("rows")
    return policy.run.path.name if rows is None else f"{rows} rows"


def pool_policies(policies: list[Policy]) -> list[Policy]:
    """Return the policies with those of one name and folder (all of Base) joined into one, whose
    `members` they are.

    A joined policy has its first member's run, all observations and the sum of `planned`. Units
    begin with the family, so that conversations of different families never pair.
    """
    joined: dict[tuple[str, str], list[Policy]] = {}
    for policy in policies:
        folder = "" if policy.is_base else policy.run.path.name
        joined.setdefault((policy.name, folder), []).append(policy)
    return [
        replace(
            members[0],
            observations=Observations(
                row._replace(unit=f"{policy.family}/{row.unit}")
                for policy in members
                for row in policy.observations
            ),
            planned=sum(policy.planned for policy in members),
            members=tuple(members),
        )
        for members in joined.values()
    ]
