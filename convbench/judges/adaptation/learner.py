"""A policy that is adapted to edits: loaded once, adapted many times, unchanged afterwards."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from convbench.errors import MissingDependency, TrainError
from convbench.judges.adaptation.clock import PassClock
from convbench.judges.adaptation.metrics import GRADES
from convbench.judges.adaptation.settings import InnerSettings
from convbench.schema import Message
from convbench.util.install import with_extra

if TYPE_CHECKING:
    from convbench.judges.adaptation.full_finetune import FullFinetune
    from convbench.judges.adaptation.lora import MultiSeedLora
    from convbench.judges.adaptation.server import AdapterServer


@dataclass(frozen=True)
class Question:
    """A closed-book question: the messages it is asked with, and its gold answers."""

    messages: tuple[Message, ...]
    golds: tuple[str, ...]
    text: str = ""
    """The question alone, for the grade."""
    topic: str = ""
    """The passage's title, for a judge model."""


Grade = Callable[[Sequence[Question], Sequence[str]], list[float]]
"""Type of a function that returns a grade from 0 to 1 for each question with its reply."""


@dataclass(frozen=True)
class AdaptationOutcome:
    """The graded outcome of one adaptation."""

    accuracy: float
    """Mean over seeds and questions; the unadapted policy's if nothing was trained."""
    before: float
    """Accuracy of the unadapted policy."""
    by_seed: tuple[float, ...] = ()
    """Accuracy of every seed."""
    replies: tuple[tuple[str, ...], ...] = ()
    """Replies [seeds][questions]."""
    texts: int = 0
    """Number of texts trained on."""
    steps: int = 0
    """Optimiser steps of each seed."""
    seconds: float = 0.0
    """Wall time."""
    passes: float = 0.0
    """Seconds in forward and backward passes."""
    reason: str | None = None
    """Why nothing was trained, so that the edit is no improvement; None if it was trained."""
    guarded: float | None = None
    """Accuracy on the questions that guard against regressions; None without such questions."""

    @property
    def gain(self) -> float:
        """Accuracy minus that of the unadapted policy."""
        return self.accuracy - self.before


Replies = tuple[tuple[str, ...], ...]
"""Replies [seeds][questions]."""


@dataclass(frozen=True)
class AdaptationReplies:
    """The ungraded replies after an adaptation."""

    replies: Replies
    guarded: Replies = ()
    """Replies to the questions that guard against regressions."""
    texts: int = 0
    """Number of texts trained on."""
    steps: int = 0
    """Optimiser steps of each seed."""
    seconds: float = 0.0
    """Wall time."""
    passes: float = 0.0
    """Seconds in forward and backward passes."""
    reason: str | None = None
    """Why nothing was trained; None if it was."""


def outcome_of(
    taught: AdaptationReplies,
    questions: Sequence[Question],
    before: float,
    grade: Grade,
    guard: Sequence[Question] = (),
) -> AdaptationOutcome:
    """Return the graded outcome of an adaptation, from its replies and the accuracy `before` it.

    If `taught` has a reason why nothing was trained, the accuracy is `before`, there are no
    replies, and `guarded` is None. Otherwise the replies are graded, and `guarded` is None only
    without `guard` questions. Raise StatisticsError if there are no replies to grade.
    """
    spent = {"texts": taught.texts, "seconds": taught.seconds, "passes": taught.passes}
    if taught.reason is not None:
        return AdaptationOutcome(before, before, reason=taught.reason, **spent)  # type: ignore[arg-type]
    by_seed = tuple(mean_grade(questions, replies, grade) for replies in taught.replies)
    guarded = [mean_grade(guard, replies, grade) for replies in taught.guarded] if guard else []
    return AdaptationOutcome(
        fmean(by_seed),
        before,
        by_seed,
        taught.replies,
        taught.texts,
        taught.steps,
        taught.seconds,
        taught.passes,
        guarded=fmean(guarded) if guarded else None,
    )


def rule_grade(inner: InnerSettings) -> Grade:
    """Return the grade function of the settings: from questions and replies to a list of grades, 0
    to 1.

    Raise TrainError for a grade that needs a model.
    """
    rule = GRADES.get(inner.grade)
    if rule is None:
        raise TrainError(f"grade {inner.grade!r} needs a judge model; expected args.grader: MODEL")
    return lambda questions, replies: [
        rule(reply, question.golds, question.text)
        for question, reply in zip(questions, replies, strict=True)
    ]


class BaseLearner(ABC):
    """Interface of what is trained on texts and asked: a learner here, or in its own process."""

    @abstractmethod
    def teach_texts(
        self,
        texts: Sequence[str],
        questions: Sequence[Question],
        inner: InnerSettings,
        guard: Sequence[Question] = (),
    ) -> AdaptationReplies:
        """Train on texts, ask the questions and the `guard` questions, and return the ungraded
        replies [seeds][questions]. The policy is unchanged afterwards.

        Without texts nothing is trained: there is one row of replies, and `guard` is not asked. If
        training fails there are no replies, and `reason` says why.
        """

    def adapt_to(
        self,
        texts: Sequence[str],
        questions: Sequence[Question],
        inner: InnerSettings,
        grade: Grade | None = None,
        *,
        before: float | None = None,
        guard: Sequence[Question] = (),
    ) -> AdaptationOutcome:
        """Train on texts, ask the questions closed book, undo the training, and return the graded
        outcome; `grade` is by default the rule of the settings.

        It depends on the arguments alone, not on earlier adaptations: each batch has only the seeds
        of one edit. `before` is the unadapted policy's accuracy, measured if it is None. `guard`
        are questions on other passages, asked in separate batches.
        """
        grade = grade or rule_grade(inner)
        if before is None:
            before = self.unadapted_accuracy(questions, inner, grade)
        taught = self.teach_texts(texts, questions, inner, guard)
        return outcome_of(taught, questions, before, grade, guard)

    def unadapted_accuracy(
        self, questions: Sequence[Question], inner: InnerSettings, grade: Grade
    ) -> float:
        """Return the unadapted policy's mean grade on the questions, 0 to 1.

        Raise StatisticsError without questions.
        """
        return mean_grade(questions, self.teach_texts([], questions, inner).replies[0], grade)


@dataclass
class Learner(BaseLearner):
    """A model with its tokenizer, in this process."""

    model: Any
    tokenizer: Any
    ends: frozenset[int] = field(default_factory=frozenset)
    """Token ids that end a reply."""
    path: str = ""
    """Folder or Hub id that the weights were loaded from."""

    @classmethod
    def load(cls, path: str, device: str | None = None) -> Learner:
        """Return a learner with weights from a folder or the Hub; they are never trained
        themselves.

        Raise MissingDependency without torch or transformers, TrainError if the weights cannot be
        loaded.
        """
        try:
            from convbench.models.weights import load_model, load_tokenizer
        except ImportError:
            raise MissingDependency(
                "torch or transformers",
                needed_for="adaptation",
                install=with_extra("train"),
            ) from None
        try:
            model, tokenizer = load_model(path, device, trains=True), load_tokenizer(path)
        except (OSError, ValueError) as error:
            raise TrainError(f"model {path!r}: {str(error).splitlines()[0]}") from None
        learner = cls.from_model(model, tokenizer)
        learner.path = path
        return learner

    @classmethod
    def from_model(cls, model: Any, tokenizer: Any) -> Learner:
        """Return a learner of a model in memory, whose weights are set to need no gradient.

        Replies end at its end tokens and the tokenizer's.
        """
        model.requires_grad_(False)
        named = getattr(model.generation_config, "eos_token_id", None)
        ids = {*(named if isinstance(named, list) else [named]), tokenizer.eos_token_id}
        return cls(model, tokenizer, frozenset(i for i in ids if i is not None))

    def teach_texts(
        self,
        texts: Sequence[str],
        questions: Sequence[Question],
        inner: InnerSettings,
        guard: Sequence[Question] = (),
    ) -> AdaptationReplies:
        """Train fresh adapters (or a copy of all weights) on texts, ask, remove them, and return
        the replies [seeds][questions].

        Without texts nothing is trained: there is one row of replies, and `guard` is not asked. If
        training diverges or passes a limit there are no replies, and `reason` says why.
        """
        from convbench.judges.adaptation.fit import TrainingDiverged
        from convbench.judges.adaptation.full_finetune import FullFinetune

        clock, server = PassClock(), None
        if inner.server is not None:
            from convbench.judges.adaptation.server import AdapterServer

            server = AdapterServer(inner.server, self.path)
        if not texts:
            if server is not None:
                return AdaptationReplies(
                    (self._served_replies(server, server.served_model(), questions, inner),)
                )
            return AdaptationReplies(self._greedy_replies(questions, inner, clock, 1))
        one_by_one = inner.tuning == "full"
        seeds = range(inner.seed, inner.seed + inner.seeds)
        parts = [inner]
        if one_by_one:
            parts = [inner.model_copy(update={"seed": seed, "seeds": 1}) for seed in seeds]
        replies: Replies = ()
        others: Replies = ()
        steps = 0
        for part in parts:
            try:
                stack, steps = self.train_adapters(texts, part, clock)
            except TrainingDiverged as error:
                return AdaptationReplies(
                    (),
                    texts=len(texts),
                    seconds=clock.total,
                    passes=clock.passes,
                    reason=str(error),
                )
            if server is not None and not isinstance(stack, FullFinetune):
                server.served_model()  # raises for other weights
                with server.load_adapters(stack) as names:
                    replies += tuple(
                        self._served_replies(server, n, questions, part) for n in names
                    )
                    if guard:
                        others += tuple(self._served_replies(server, n, guard, part) for n in names)
                continue
            with stack.apply_to_model():
                replies += self._greedy_replies(questions, part, clock, part.seeds)
                others += self._greedy_replies(guard, part, clock, part.seeds) if guard else ()
        return AdaptationReplies(replies, others, len(texts), steps, clock.total, clock.passes)

    def _served_replies(
        self, server: AdapterServer, model: str, questions: Sequence[Question], inner: InnerSettings
    ) -> tuple[str, ...]:
        prompts = [self._prompt_ids(question) for question in questions]
        return server.greedy_replies(model, prompts, self.ends, inner.max_tokens)

    def _greedy_replies(
        self, questions: Sequence[Question], inner: InnerSettings, clock: PassClock, copies: int
    ) -> Replies:
        return tuple(map(tuple, self.ask_questions(questions, inner, clock, copies=copies)))

    def make_twin(self) -> Learner:
        """Return a learner that shares the weights but has its own modules, so that another thread
        can hook adapters into it at the same time."""
        weights = {id(t): t for t in (*self.model.parameters(), *self.model.buffers())}
        model = copy.deepcopy(self.model, weights)
        return Learner(model, copy.deepcopy(self.tokenizer), self.ends, self.path)

    def train_adapters(
        self, texts: Sequence[str], inner: InnerSettings, clock: PassClock
    ) -> tuple[MultiSeedLora | FullFinetune, int]:
        """Return (trained adapters, or all weights of one seed with `tuning: full`; optimiser steps
        of each seed). The model itself is unchanged until they are applied.

        Raise fit.TrainingDiverged if training fails or no text has two tokens.
        """
        from convbench.judges.adaptation.fit import TrainingDiverged, fit_adapters
        from convbench.judges.adaptation.full_finetune import FullFinetune, is_offloaded
        from convbench.judges.adaptation.lora import MultiSeedLora

        rows = [row for row in (self._token_row(text, inner) for text in texts) if len(row) > 1]
        if not rows:
            raise TrainingDiverged("has no text of two tokens or more")
        stack: MultiSeedLora | FullFinetune
        if inner.tuning == "full":
            stack = FullFinetune(self.model, inner.seed, offload=is_offloaded(self.model, inner))
        else:
            stack = MultiSeedLora(self.model, inner, range(inner.seed, inner.seed + inner.seeds))
        return stack, fit_adapters(self.model, stack, rows, inner, clock)

    def _token_row(self, text: str, inner: InnerSettings) -> list[int]:
        """Return a text's token ids with the end token, cut to the limit of settings and model."""
        ids = list(self.tokenizer(text)["input_ids"])
        last = self.tokenizer.eos_token_id
        if inner.end and last is not None and ids[-1:] != [last]:
            ids.append(last)
        known = getattr(self.model.config, "max_position_embeddings", None) or inner.max_length
        return ids[: min(inner.max_length, known)]

    def write_reply(self, messages: Sequence[Message], most: int) -> str:
        """Return the policy's greedy reply to messages, of at most `most` tokens."""
        inner = InnerSettings(max_tokens=most)
        return self.ask_questions([Question(tuple(messages), ())], inner, PassClock())[0][0]

    def draw_reply(
        self, messages: Sequence[Message], most: int, temperature: float, seed: int
    ) -> str:
        """Return a sampled reply of the policy, the same for the same seed. `most` is in tokens,
        cut to the model's context; `temperature` must be above 0; top_p is 0.95."""
        import torch

        device = self.model.device
        ids = torch.tensor([self._prompt_ids(Question(tuple(messages), ()))], device=device)
        known = getattr(self.model.config, "max_position_embeddings", None) or most + ids.shape[1]
        most = max(1, min(most, known - ids.shape[1]))
        devices = [device] if device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            output = self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=most,
                do_sample=True,
                temperature=temperature,
                top_p=0.95,
                top_k=0,
                eos_token_id=sorted(self.ends),
                pad_token_id=min(self.ends, default=0),
            )
        text: str = self.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
        return text

    def ask_questions(
        self, questions: Sequence[Question], inner: InnerSettings, clock: PassClock, copies: int = 1
    ) -> list[list[str]]:
        """Return the greedy replies [copies][questions] of the model in its present state, of at
        most `inner.max_tokens` tokens; a list of empty lists without questions.

        With adapters of several seeds applied, `copies` is their number, and copy i is answered by
        the adapter of seed i.
        """
        from convbench.judges.adaptation.answer import greedy_replies

        replies: list[list[str]] = [[] for _ in range(copies)]
        prompts = [self._prompt_ids(question) for question in questions]
        for start in range(0, len(prompts), inner.ask_at_once):
            part = prompts[start : start + inner.ask_at_once]
            drawn = greedy_replies(self.model, part, self.ends, inner.max_tokens, clock, copies)
            for texts, tokens in zip(replies, drawn, strict=True):
                texts += [self.tokenizer.decode(t, skip_special_tokens=True) for t in tokens]
        return replies

    def _prompt_ids(self, question: Question) -> list[int]:
        ids: list[int] = self.tokenizer.apply_chat_template(
            list(question.messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return ids


def mean_grade(questions: Sequence[Question], replies: Sequence[str], grade: Grade) -> float:
    """Return the mean grade of replies, 0 to 1; an empty reply counts 0.

    Raise StatisticsError without questions.
    """
    grades = grade(questions, replies)
    return fmean(g if reply.strip() else 0.0 for g, reply in zip(grades, replies, strict=True))


def mean_grade_by_part(
    parts: Sequence[Sequence[Question]], replies: Sequence[str], grade: Grade
) -> list[float]:
    """Return the mean grade of each part, in order; `replies` answer the questions of all parts in
    order. Raise StatisticsError for a part without questions."""
    means, at = [], 0
    for questions in parts:
        end = at + len(questions)
        means.append(mean_grade(questions, replies[at:end], grade))
        at = end
    return means
