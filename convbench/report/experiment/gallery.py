"""A few conversations of Base next to SWiFt's, chosen by a rule that looks at no text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convbench.report.document import ReportPart, SideBySide, Transcript
from convbench.report.measures import (
    ACCURACY,
    Measure,
    judge_measures,
    paired_values,
    reward_measure,
)
from convbench.report.policies import NAMES, Observation, Policy, plain_name
from convbench.report.sections import Section
from convbench.schema import Conversation, Example, text_of

LEARNT = (NAMES["swift"], NAMES["refit"])
"""The policies that Base is compared with: the first that exists."""
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
    "differences in the order of their question, sample and temperature."
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
    Of two middle pairs it is the lower. The trained policy is SWiFt, else ReFit. None without Base,
    such a policy or a pair.
    """
    by_name = {plain_name(policy): policy for policy in reversed(section.policies)}
    learnt = next((by_name[name] for name in LEARNT if name in by_name), None)
    base = section.base
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


def _side_by_side(pair: ConversationPair) -> SideBySide:
    section = pair.section
    (first, example), (second, _) = (
        _find_conversation(pair.base, pair.unit),
        _find_conversation(pair.learnt, pair.unit),
    )
    what = "reward" if pair.judge else "right answers"
    facts = (
        f"Regime {section.regime}; {pair.unit.rpartition('/')[2]}; difference in {what} "
        f"{pair.difference:+.3f}, the median of {pair.pair_count} pairs"
        + (f", judge {pair.judge}." if pair.judge else "."),
        f"Expected answer: {example.answer or '-'}.",
    )
    sides = (
        _policy_transcript(pair, pair.base, first),
        _policy_transcript(pair, pair.learnt, second),
    )
    return SideBySide(section.title, facts, sides)


def _find_conversation(policy: Policy, unit: str) -> tuple[Conversation, Example]:
    """Return the conversation of a unit, and its example. Raises LookupError if there is none."""
    for member in policy.run_policies:
        start = f"{member.family}/" if policy.members else ""
        for talk in member.run.conversations():
            name = f"{start}{talk.example_id}#{talk.sample}@{talk.temperature:g}"
            if name == unit and talk.branch is None:
                return talk, member.run.examples[talk.example_id]
    raise LookupError(unit)  # cannot happen: the rows come from these conversations


def _policy_transcript(pair: ConversationPair, policy: Policy, talk: Conversation) -> Transcript:
    row = next(row for row in policy.observations if row.unit == pair.unit)
    turns = [(turn.speaker, _shorten_text(text_of(turn.content))) for turn in talk.turns[:TURNS]]
    if len(talk.turns) > TURNS:
        turns.append(("…", f"[{len(talk.turns) - TURNS} more turns]"))
    return Transcript(policy.name, "; ".join(_outcome_facts(pair, row)), tuple(turns))


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
