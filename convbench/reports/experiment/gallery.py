"""Conversations of Base next to a trained policy's, chosen by a rule that looks at no text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from convbench.judges.adaptation.metrics import GRADES
from convbench.reports.document import Cell, Column, ReportPart, SideBySide, Table, Transcript
from convbench.reports.measures import (
    ACCURACY,
    Measure,
    judge_measures,
    paired_values,
    reward_measure,
)
from convbench.reports.policies import (
    NAMES,
    Observation,
    Policy,
    judge_spec,
    plain_name,
    round_of,
)
from convbench.reports.sections import Section
from convbench.schema import Conversation, Example, JudgeSpec, Verdict, text_of, turn_scores
from convbench.store import Run

MOST = 5
"""Most pairs of conversations shown."""
LONGEST = 1500
"""Most characters shown of a turn."""
TURNS = 24
"""Most turns shown of a conversation."""
RULE = (
    "Chosen by this rule, which looks at no text: for each task one setting (thinking before "
    "standard, reasoning before clarifying), and the clarifying setting that comes first; in it, "
    "of all pairs of a Base and a trained conversation about the same question with the same "
    "sample and temperature, both with a reward of the first judge, the pair whose difference in "
    "reward (trained minus Base) is the median: the lower of the two middle ones; of equal "
    "differences in the order of their question, sample and temperature. Trained is the method "
    "that comes first in the tables' order, SWiFt before ReFit and both before all others, after "
    "its last round."
)


@dataclass(frozen=True)
class ConversationPair:
    """The chosen pair of a setting."""

    section: Section
    base: Policy
    learnt: Policy
    judge: str | None
    unit: str
    difference: float
    pair_count: int
    """Number of pairs it was chosen from."""


def gallery_part(sections: Sequence[Section]) -> ReportPart | None:
    """Return the part with at most five pairs of conversations, chosen as RULE says; None if no
    setting has a pair.

    Long turns and conversations are cut, with a note of how much.
    """
    chosen = [
        pair for section in _shown_sections(sections) if (pair := median_pair(section)) is not None
    ]
    talks = tuple(_side_by_side(pair) for pair in chosen[:MOST])
    if not talks:
        return None
    notes = (f"At most {LONGEST:,} characters of a turn are shown, and {TURNS} turns.",)
    return ReportPart("Conversations", (RULE,), talks=talks, notes=notes)


def _shown_sections(sections: Sequence[Section]) -> list[Section]:
    """Return at most MOST sections: one for each task, and the first with clarifying questions."""
    order = sorted(sections, key=lambda s: (s.protocol != "reasoning", s.mode != "thinking"))
    firsts: dict[str, Section] = {}
    for section in order:
        firsts.setdefault(section.task, section)
    per_task = [section for section in sections if firsts[section.task] is section]
    asking = next((s for s in sections if s.protocol.startswith("clarifying")), None)
    last = [asking] if asking is not None and asking not in per_task else []
    return [*per_task[: MOST - len(last)], *last]


def median_pair(section: Section) -> ConversationPair | None:
    """Return the pair of conversations with the median difference, the trained policy's value minus
    Base's.

    The value is the reward of the section's first judge, or right answers (0 or 1) without a judge.
    Of two middle pairs it is the lower. The trained policy is that of `trained_policy`. None
    without Base, such a policy or a pair.
    """
    base, learnt = section.base, trained_policy(section)
    if base is None or learnt is None:
        return None
    judge = next(iter(section.judges), None)
    measure: Measure = ACCURACY if judge is None else reward_measure(judge)
    differences = sorted(
        (round(theirs - ours, 9), row.unit)
        for row, ours, theirs in paired_values(base, learnt, measure)
    )
    if not differences:
        return None
    difference, unit = differences[(len(differences) - 1) // 2]
    return ConversationPair(section, base, learnt, judge, unit, difference, len(differences))


def trained_policy(section: Section) -> Policy | None:
    """Return the trained policy of a section that comes first in the order of the papers' tables,
    after its last round; None if nothing was trained."""
    trained = [policy for policy in section.policies if not policy.is_base and policy.recipe]
    if not trained:
        return None
    names = list(NAMES.values())

    def table_order(policy: Policy) -> tuple[int, int]:
        name, number = round_of(policy) or (plain_name(policy), 0)
        return names.index(name) if name in names else len(names), -number

    return min(trained, key=table_order)


def _side_by_side(pair: ConversationPair) -> SideBySide:
    section = pair.section
    (run, first, example), (other, second, _) = (
        _find_conversation(pair.base, pair.unit),
        _find_conversation(pair.learnt, pair.unit),
    )
    verdicts = conversation_verdicts(run, first), conversation_verdicts(other, second)
    what = "reward" if pair.judge else "right answers"
    facts = (
        f"{pair.unit.rpartition('/')[2]}; difference in {what} "
        f"{pair.difference:+.3f}, the median of {pair.pair_count} pairs"
        + (f", judge {pair.judge}." if pair.judge else "."),
        *([f"Expected answer: {example.answer}."] if example.answer else []),
    )
    sides = (
        _policy_transcript(pair, pair.base, first, judge_words(run, verdicts[0])),
        _policy_transcript(pair, pair.learnt, second, judge_words(other, verdicts[1])),
    )
    questions = _question_table(pair, example, verdicts)
    return SideBySide(section.title, facts, sides, () if questions is None else (questions,))


def conversation_verdicts(run: Run, talk: Conversation) -> list[Verdict]:
    """Return the newest verdict of each judge on a conversation."""
    rows = [row for row in run.verdict_rows() if row.conversation_id == talk.conversation_id]
    return [run.read_verdict(row) for row in rows]


def judge_words(run: Run, verdicts: Iterable[Verdict]) -> tuple[tuple[str, str], ...]:
    """Return (judge, metric and score; justification) for each metric that a judge gave words on,
    those of single turns after those of the conversation. Long ones are cut."""
    specs, words = run.judge_specs(), []
    for verdict in verdicts:
        spec = specs.get(verdict.fingerprint)
        parts = [("", verdict.scores, verdict.justifications)]
        parts += [
            (f"turn {turn.turn + 1}, ", turn.scores, turn.justifications)
            for turn in turn_scores(verdict)
        ]
        words += [
            (f"{verdict.judge}, {where}{_score_text(spec, name, scores)}", _shorten_text(why))
            for where, scores, justifications in parts
            for name, why in justifications.items()
            if why.strip()
        ]
    return tuple(words)


def _score_text(spec: JudgeSpec | None, name: str, scores: Mapping[str, float]) -> str:
    """Return a metric's label with its score, e.g. `Accuracy: 8/10`."""
    label = spec.score_labels.get(name, name) if spec is not None else name
    if name not in scores:
        return label
    low, high = spec.score_limits(name) if spec is not None else (0.0, 0.0)
    of = f"/{high:g}" if low >= 0 and high > 1 else ""
    return f"{label}: {scores[name]:g}{of}"


def _question_table(
    pair: ConversationPair, example: Example, verdicts: Sequence[Sequence[Verdict]]
) -> Table | None:
    """Return the table of a passage's questions with the answers after training on each of the two
    self-edits; None if the judge asked none, or the questions are not those of the task."""
    questions = example.hidden.get("questions") or []
    spec = judge_spec((pair.base, pair.learnt), pair.judge)
    both = [_seed_replies(some, pair.judge, len(questions)) for some in verdicts]
    replies = [by_seed for by_seed in both if by_seed is not None]
    if spec is None or not questions or len(replies) < len(both):
        return None
    grade = GRADES.get(str((spec.args.get("inner") or {}).get("grade", "recall")))
    rows = []
    for number, question in enumerate(questions):
        golds = list(map(str, question.get("answers") or [question["answer"]]))
        row = [Cell(str(question["question"])), Cell(golds[0])]
        for by_seed in replies:
            answers = [seed[number] for seed in by_seed]
            row.append(Cell(_shorten_text(answers[0]) or "(nothing)"))
            if grade is not None:
                right = sum(grade(a, golds, str(question["question"])) >= 0.5 for a in answers)
                row.append(Cell(f"{right} of {len(answers)}"))
        rows.append(tuple(row))
    columns = [Column("Question", "Question", numeric=False), Column("Expected", "Expected", False)]
    for policy in (pair.base, pair.learnt):
        columns.append(Column(f"After the edit of {policy.name}", policy.name, numeric=False))
        columns += [Column("right", "right")] if grade is not None else []
    notes = (
        "Asked closed book after training on each edit; the answers are of the first seed"
        + (", right of how many seeds." if grade is not None else "; a model graded them."),
    )
    return Table("Questions about the passage", tuple(columns), tuple(rows), notes, "questions")


def _seed_replies(
    verdicts: Sequence[Verdict], judge: str | None, count: int
) -> list[list[str]] | None:
    """Return the replies to a passage's questions, [seeds][questions], as a verdict has them; None
    if it has other ones."""
    details = next((v.details for v in verdicts if v.judge == judge and v.scored), {})
    replies = details.get("replies")
    if not isinstance(replies, list) or not replies:
        return None
    if not all(isinstance(seed, list) and len(seed) == count for seed in replies):
        return None
    return [list(map(str, seed)) for seed in replies]


def _find_conversation(policy: Policy, unit: str) -> tuple[Run, Conversation, Example]:
    """Return the run and the conversation of a unit, and its example. Raises LookupError if there
    is none."""
    for member in policy.run_policies:
        start = f"{member.family}/" if policy.members else ""
        for talk in member.run.conversations():
            name = f"{start}{talk.example_id}#{talk.sample}@{talk.temperature:g}"
            if name == unit:
                return member.run, talk, member.run.examples[talk.example_id]
    raise LookupError(unit)  # cannot happen: the rows come from these conversations


def _policy_transcript(
    pair: ConversationPair,
    policy: Policy,
    talk: Conversation,
    justifications: tuple[tuple[str, str], ...],
) -> Transcript:
    row = next(row for row in policy.observations if row.unit == pair.unit)
    turns = [(turn.speaker, _shorten_text(text_of(turn.content))) for turn in talk.turns[:TURNS]]
    if len(talk.turns) > TURNS:
        turns.append(("…", f"[{len(talk.turns) - TURNS} more turns]"))
    return Transcript(
        policy.name, "; ".join(_outcome_facts(pair, row)), tuple(turns), justifications
    )


def _outcome_facts(pair: ConversationPair, row: Observation) -> Iterator[str]:
    if row.correct is not None:
        yield "no readable answer" if row.unparsed else "right" if row.correct else "wrong"
    scored = row.verdicts.get(pair.judge or "")
    if scored is None or scored.failed or pair.judge is None:
        return
    for measure in judge_measures([pair.base, pair.learnt], pair.judge):
        value = measure.value(row)
        if value is not None:
            yield f"{measure.head} {value:g}"


def _shorten_text(text: str) -> str:
    """Return the text, cut to LONGEST characters with a note on how many are left out."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… [{len(text) - LONGEST:,} more characters]"
