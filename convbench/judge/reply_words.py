"""Words in a judge's reply, by what they say of its scores; some are patterns, `*` is any end."""

from __future__ import annotations

import re

_WORDS = r"""voice: i i'd i'll i've i'm me my mine myself we our
scores: score scores scored rating ratings rated mark marks marked grade grades graded verdict
verdicts grading scoring numbers figure figures zeros tens values points percentages
metric metrics criterion criteria scale ceiling max maximum above
evaluations: evaluation evaluations assessment assessments judgment judgments judgement judgements
judging: score scores scored rating ratings rated mark marks grade grades verdict deserves deserve
merits merit earns earn warrants warrant fairer honest hindsight worth correcting corrected
reconsidered reconsidering reflection second thinking rereading again revised revising closer
honestly generous harsh lenient strict strictly really rather instead truly maybe perhaps too
should ought must would make call gets lower lowered raise raised drop dropped bump bumped cut
reduce reduced adjust adjusted change changed move moved set settle update updated downgrade
downgraded upgrade upgraded subtract deduct appropriate now mean meant feels
afterthought: strike wait actually scratch scrap correction edit edited hmm oops sorry apologies
kidding lol or
keeping: so but stay stays stayed still keep keeps kept remain remains
speaking: say says said claim claims claimed write writes wrote state states stated ask asks asked
want wants wanted demand demands demanded request requests requested suggest suggests suggested
propose proposes proposed hoped typed gave gives put itself himself herself themselves
others: assistant teacher tutor student pupil learner user human agent policy bot ai model system
participant speaker author writer attacker reviewer viewer evaluator judge grader rater annotator
examiner assessor marker referee colleague someone somebody he she they talk transcript conversation
dialogue answer sum product difference equation
counted by: turn turns step steps option options answer answers question questions line lines item
items part parts example examples case cases choice choices chapter section page day round attempt
stage level point points not short + - * = # × $
after: instead rather now since because as for given then not but and at in on overall here really
after though although however if is was would it out or to seems all when while may might looks
feels
between: , ; : ( ) | & no or and then now up down was were from the a at maybe perhaps more like
but really somewhere around
leading: here here's is are my the an a this that your of for on in with to as and per each below
following final overall detailed requested own complete full numeric evaluation evaluations
assessment score scores scoring rating ratings grade grades grading mark marks result results
metric metrics criterion criteria verdict judgment judgement analysis feedback review report
summary breakdown conversation dialogue chat interaction exchange assistant assistant's tutor
tutor's response performance out scale range format json table exact specified rubric using based
brief justification justifications reason reasons name value points why comment note okay sure now
so therefore follows follow i would give rate evaluated scored i've i'd how by section part output
data from best worst lowest highest maximum max between where means higher lower better every all
six you go being run used
pointing: these those mine evaluate rate judge assess grade view above
behind: no not i it that this these those both make maybe my the
open: minus plus less unless depending assuming provided pending give if or
pronouns: this that they so it
good: best top perfect flawless excellent outstanding ideal good highest most max*
bad: worst bottom poor useless terrible bad lowest least no nothing min*
not now: previous before earlier last first initial old draft turn prior example max* provisional
tentative actually
reason: because since as due with but given overall it the this
for(?!\s(?:the\s)?(?:turn|step|part|first|last|previous))
link: is an? of it this at nota gets earns receives i give rate[ds]? scored? ratings? points?
score keys: score rating value points grade
label keys: metric name criterion label dimension category
words keys: justification reason rationale explanation comment reasoning feedback note why
source keys: source author origin rater from
no metric: justifications? reasons? rationales? explanations? comments? reasoning feedback notes?
why score rating total sum mean average summary (?:overall|brief).justification choices
(?:original.)?question (?:correct.)?answer
scale keys: out max* min* scale range high* low* best worst direction better
against: example* sample* template* placeholder* dummy fake* ficti* hypothe* illustrat* arbitrar*
random* guess* pretend* joke* kidding draft* provisional* tentative* preliminary void invalid*
wrong* incorrect* mistake* test invent* quoted copy copied past(?:ed|ing) verbatim dictat* hoped
wish* merely refus* declin* refrain* abstain* withh* disagree* ignor* disregard* discard* retract*
withdraw* scrap* forget* impossible made.{0,20}up take.back would.be would.have.been only.there
for.the.record no.longer none.of by.chance await* pending scratch correction erratum
off.(?:by|every|each|all|both) dice swap* strike replace mistyped typo typed misread mixed confused
kind generous harsh lenient downgrade upgrade subtract deduct halve double overrated underrated
negating: not never cannot none neither no without
foreign: beg* other different wrote writes written previous* prior earlier another self according
told would.look might.look could.look says said reads contains instruct* inject* quot* demand*
wanted
"""
_ENTRIES = (entry.partition(":") for entry in re.split(r"\n(?=[a-z ]+: )", _WORDS))
WORDS = {name.strip(): frozenset(words.split()) for name, _, words in _ENTRIES}
"""`leading`: of a line that leads to the judge's own scores; `counted by`: ahead of a number that
is no score; `after`: behind one that is; `between`: between a score and another in its place."""


def pattern(*names: str) -> str:
    """Return a pattern that finds a word of these kinds."""
    words = "|".join(sorted(word for name in names for word in WORDS[name]))
    return r"\b(?:" + words.replace("*", r"\w*") + r")\b"
