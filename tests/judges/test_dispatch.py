"""Judging conversations: asking again, failures, journal keys, rules, people."""

import asyncio
import json

import pytest

from convbench.engine.caller import Caller, RetryPolicy
from convbench.engine.journal import Journal
from convbench.errors import DataError, FatalModelError, SpecError, TransientModelError
from convbench.judges.ask import judge_messages
from convbench.judges.dispatch import judge_conversation
from convbench.judges.resolve import resolve_judge
from convbench.judges.verdicts import failed_verdict
from convbench.models.model import Model
from convbench.schema import (
    Completion,
    Failure,
    text_of,
)
from tests.helpers.judged_talk import EXAMPLE, GOOD, PROTOCOL, conversation

BAD = GOOD.replace("Overall: 8", "")


class Replies(Model):
    """A judge model that says what it is told to, in order."""

    ref = "test:replies"
    priced = True

    def __init__(self, *replies):
        self.replies = list(replies)
        self.sent = []

    def price(self, prompt, reply):
        return 0.0

    async def complete(self, messages, sampling, *, key):
        self.sent.append((key, [dict(m) for m in messages]))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return Completion(reply, prompt_tokens=10, completion_tokens=5, cost_usd=0.25)

    async def aclose(self):
        pass


def judge_once(model, judge=None, talk=None, caller=None, **more):
    judge = judge or resolve_judge("test:replies")
    caller = caller or Caller(retry=RetryPolicy(tries=2, backoff_s=0.0))
    talk = talk or conversation()
    return asyncio.run(judge_conversation(caller, model, judge, talk, EXAMPLE, PROTOCOL, **more))


def test_a_good_reply():
    model = Replies(GOOD)
    got = judge_once(model)
    assert got.scores == dict.fromkeys(
        ["accuracy", "reasoning", "comprehensiveness", "pedagogical", "confidence", "overall"], 8.0
    )
    assert (got.reward, got.attempts, got.failure, got.reply) == (0.8, 1, None, None)
    assert (got.prompt_tokens, got.completion_tokens, got.cost_usd) == (10, 5, 0.25)
    assert got.judge == "test:replies"
    assert model.sent[0][0] == f"judge/{got.fingerprint}/c0#0"


def test_what_the_judge_sees():
    system, user = judge_messages(resolve_judge("x/y").spec, conversation("one", "two"), EXAMPLE)
    text = text_of(user["content"])
    assert "Original Question: Which stone sinks?\n\nChoices: A. pumice, B. granite\n\n" in text
    assert "Correct Answer: B\n\n" in text
    spoken = [line for line in text.splitlines() if line.startswith(("[", ">"))]
    assert [line.partition("] ")[2] or line for line in spoken] == [
        "Teacher:", "> Well?", "Assistant:", "> one", "Teacher:", "> Well?", "Assistant:", "> two",
    ]  # fmt: skip
    for hidden in ("SYSTEM PROMPT", "be brief"):
        assert hidden not in text + text_of(system["content"])


def test_it_asks_again_with_the_complaint():
    model = Replies(BAD, GOOD)
    got = judge_once(model)
    assert (got.scores["overall"], got.attempts) == (8.0, 2)
    assert (got.prompt_tokens, got.cost_usd) == (20, 0.5)
    first, second = model.sent
    assert second[1][:2] == first[1]
    assert second[1][2] == {"role": "assistant", "content": BAD}
    assert second[1][3]["role"] == "user"
    assert "missing: Overall" in second[1][3]["content"]
    assert [key.rpartition("#")[2] for key, _ in model.sent] == ["0", "1"]


def test_a_blank_reply_is_not_sent_back():
    model = Replies("  ", GOOD)
    assert judge_once(model).attempts == 2
    sent = model.sent[1][1]
    assert [m["role"] for m in sent] == ["system", "user"]
    assert "missing: Accuracy" in sent[-1]["content"]


def test_never_a_score_from_an_unreadable_reply():
    got = judge_once(Replies(BAD, "I would rather not.", GOOD.replace("8", "11")))
    assert (got.scores, got.reward, got.attempts) == ({}, None, 3)
    assert got.failure.kind == "UnreadableReply"
    assert "Accuracy: found '11.0'" in got.failure.message
    assert got.reply == GOOD.replace("8", "11")
    assert got.prompt_tokens == 30


def test_a_reply_that_was_cut_within_a_number_is_asked_for_again():
    cut = Completion(GOOD.replace("Words.", "").strip()[:-1] + "1", finish_reason="length")
    got = judge_once(Replies(cut, GOOD))
    assert (got.attempts, got.scores["overall"]) == (2, 8.0)


def test_asks_is_a_field():
    judge = resolve_judge("test:replies", sets={"asks": 1})
    got = judge_once(Replies(BAD, GOOD), judge)
    assert (got.attempts, got.failure.kind) == (1, "UnreadableReply")


def test_a_model_that_gives_up_is_a_failure_of_the_judge():
    got = judge_once(Replies(BAD, TransientModelError("busy"), TransientModelError("busy")))
    assert got.failure.kind == "TransientModelError"
    assert (got.attempts, got.reply, got.scores) == (1, BAD, {})
    got = judge_once(Replies(FatalModelError("context too long", stops_run=False)))
    assert (got.failure.kind, got.attempts, got.cost_usd) == ("FatalModelError", 0, None)


def test_a_wrong_key_stops_the_run():
    with pytest.raises(FatalModelError, match="wrong key"):
        judge_once(Replies(FatalModelError("wrong key")))


def test_a_judge_killed_while_asking_goes_on_where_it_was(tmp_path):
    judge = resolve_judge("test:replies")
    first = Replies(BAD, FatalModelError("killed"))
    with pytest.raises(FatalModelError):
        judge_once(first, judge, caller=Caller(Journal(tmp_path / "calls.jsonl")))
    journal = Journal(tmp_path / "calls.jsonl")
    assert journal.load_calls() == 1
    second = Replies(GOOD)
    got = judge_once(second, judge, caller=Caller(journal))
    assert (got.attempts, len(second.sent)) == (2, 1)
    assert second.sent[0][0].endswith("#1")


def test_judging_a_failure_again_asks_anew(tmp_path):
    judge = resolve_judge("test:replies")
    failed = judge_once(Replies(BAD, BAD, BAD), judge, caller=Caller(Journal(tmp_path / "c.jsonl")))
    journal = Journal(tmp_path / "c.jsonl")
    assert journal.load_calls() == 3
    model = Replies(GOOD)
    got = judge_once(model, judge, caller=Caller(journal), attempts=failed.attempts)
    assert (got.scores["overall"], got.attempts, len(model.sent)) == (8.0, 4, 1)


def test_a_failed_conversation_gets_no_score():
    failed = conversation(failure=Failure(kind="X", message="m"))
    got = judge_once(Replies(), talk=failed)
    assert (got.failure.kind, got.scores) == ("ConversationFailed", {})


def test_discount_and_metric_are_fields():
    judge = resolve_judge(
        "test:replies", sets={"reward.discount": 0.5, "reward.metric": "accuracy"}
    )
    talk = conversation("a", "b", "c")
    replied = [t.model_copy(update={"step": "r"}) if t.speaker == "teacher" else t
               for t in talk.turns]  # fmt: skip
    talk = talk.model_copy(update={"turns": tuple(replied)})
    got = judge_once(Replies(GOOD.replace("Accuracy: 8", "Accuracy: 4")), judge, talk)
    assert got.reward == pytest.approx(0.4 * 0.25)
    got = judge_once(Replies(GOOD), judge, conversation("a", "b"))
    assert got.reward == pytest.approx(0.8), "scripted turns answer no question"


def test_failed_verdict():
    judge = resolve_judge("rules")
    got = failed_verdict(judge, "c7", ValueError("odd"))
    assert (got.conversation_id, got.failure.kind, got.failure.message) == (
        "c7",
        "ValueError",
        "ValueError: odd",
    )
    assert got.scores == {}


# --- names


def test_names():
    alias = {"gpt-4o": "openai/gpt-4o-2024"}
    model = resolve_judge("gpt-4o", resolve_model=lambda name: alias.get(name, name))
    assert (model.name, model.spec.name, model.model) == ("gpt-4o", "rubric", "openai/gpt-4o-2024")
    both = resolve_judge("rubric-section4@vertex_ai/m@001")
    assert (both.spec.name, both.model) == ("rubric-section4", "vertex_ai/m@001")
    assert resolve_judge("vertex_ai/m@001").model == "vertex_ai/m@001"
    rules = resolve_judge("rules")
    assert (rules.name, rules.model, rules.spec.kind) == ("rules", None, "rules")


def test_fingerprints():
    one = resolve_judge("a/b").fingerprint
    assert resolve_judge("rubric@a/b").fingerprint == one
    assert resolve_judge("a/c").fingerprint != one
    assert resolve_judge("rubric-section4@a/b").fingerprint != one
    assert resolve_judge("a/b", sets={"temperature": 0.5}).fingerprint != one
    assert resolve_judge("a/b", sets={"title": "another"}).fingerprint == one


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rubric", "names no model; expected rubric@MODEL"),
        ("rules@gpt-4o", "needs no model"),
        ("rubrik@gpt-4o", "no judge spec 'rubrik'"),
        ("human:", "found no file"),
        ("human", "expected --judge human:FILE"),
    ],
)
def test_names_that_mean_nothing(name, message):
    with pytest.raises(SpecError, match=message):
        resolve_judge(name)


# --- people


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return f"human:{path}"


def test_labels_of_people(tmp_path):
    text = "conversation_id,rater,accuracy,overall,note\nc0,ann,8,6,good\nc0,bob,,9,\nc1,ann,1,2,\n"
    judge = resolve_judge(write(tmp_path, "expert.csv", text))
    assert judge.name == "human:expert"
    assert judge.scorable_ids(["c0", "c1", "c2"]) == {"c0", "c1"}
    got = judge_once(None, judge)
    assert (got.scores, got.reward) == ({"accuracy": 8.0, "overall": 7.5}, 0.75)
    assert got.justifications == {"overall": "good"}
    assert [r["rater"] for r in got.details["raters"]] == ["ann", "bob"]
    with pytest.raises(DataError, match=r"1 conversation_ids are not in this run, e\.g\. 'c1'"):
        judge.scorable_ids(["c0"])


def test_labels_as_json_lines(tmp_path):
    rows = [{"conversation_id": "c0", "overall": 3}, {"conversation_id": "c0", "overall": 4.5}]
    judge = resolve_judge(write(tmp_path, "l.jsonl", "\n".join(map(json.dumps, rows)) + "\n"))
    assert judge_once(None, judge).scores == {"overall": 3.75}


BREAKS = "one\u2028two\u2029three\x85four\x0bfive"
"""Characters that end a line for Python, but neither in JSON nor in CSV."""


def test_notes_keep_line_breaks_of_every_kind(tmp_path):
    """Two rows each, the first of which a careless reader of lines would cut."""
    rows = [
        {"conversation_id": "c0", "overall": 3, "note": BREAKS.replace("\x0b", "\n")},
        {"conversation_id": "c1", "overall": 4},
    ]
    text = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    got = judge_once(None, resolve_judge(write(tmp_path, "l.jsonl", text)))
    assert got.justifications == {"overall": rows[0]["note"]}
    text = f'conversation_id,overall,note\nc0,3,"{BREAKS}\nsix"\nc1,4,\n'
    judge = resolve_judge(write(tmp_path, "l.csv", text))
    assert judge_once(None, judge).justifications == {"overall": f"{BREAKS}\nsix"}
    assert judge.scorable_ids(["c0", "c1"]) == {"c0", "c1"}


def test_other_labels_are_another_judge(tmp_path):
    first = resolve_judge(write(tmp_path, "a.csv", "conversation_id,overall\nc0,3\n"))
    (tmp_path / "b").mkdir()
    moved = resolve_judge(write(tmp_path / "b", "a.csv", "conversation_id,overall\nc0,3\n"))
    other = resolve_judge(write(tmp_path, "a.csv", "conversation_id,overall\nc0,4\n"))
    assert first.fingerprint == moved.fingerprint != other.fingerprint


def test_a_conversation_without_a_label(tmp_path):
    judge = resolve_judge(write(tmp_path, "a.csv", "conversation_id,overall\nc9,3\n"))
    assert judge_once(None, judge).failure.kind == "NotLabelled"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            "conversation_id,overall\nc0,11\n",
            r"a.csv:2: overall is '11'; expected a number from 0 to 10",
        ),
        ("a.csv", "conversation_id,overall\nc0,good\n", "overall is 'good'"),
        ("a.csv", "conversation_id,overall\nc0,nan\n", "overall is 'nan'"),
        (
            "a.csv",
            "conversation_id,overall,clarity\nc0,1,2\n",
            "unknown column 'clarity'; expected conversation_id",
        ),
        ("a.csv", "conversation_id,accuracy\nc0,1\n", "a.csv:2: no overall"),
        ("a.csv", "overall\n3\n", "a.csv:2: no conversation_id"),
        (
            "a.csv",
            "conversation_id,rater,overall\nc0,ann,1\nc0,ann,2\n",
            "a.csv:3: rater 'ann' scored c0 twice",
        ),
        ("a.csv", "conversation_id,overall\n", "found no labels"),
        ("a.csv", "conversation_id,overall\nc0,1,2\n", "a.csv:2: found 3 cells; expected 2"),
        (
            "a.csv",
            f'conversation_id,overall\nc0,"{"1" * 200_000}"\n',
            "a.csv:2: (not valid CSV|overall is '1{59};)",
        ),
        ("a.txt", "c0 3", "found ending '.txt'"),
        ("a.jsonl", '{"conversation_id": "c0", "overall": true}', "overall is True"),
        ("a.jsonl", f'{{"conversation_id": "c0", "overall": 1{"0" * 400}}}', "overall is 1000"),
        ("a.jsonl", "[1]", "found list; expected an object"),
        ("a.jsonl", "{", "a.jsonl:1: not valid JSON"),
    ],
)
def test_labels_that_are_wrong(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        resolve_judge(write(tmp_path, name, text))


def test_labels_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        resolve_judge(f"human:{tmp_path / 'none.csv'}")


# --- functions


def test_rules_get_the_run_s_mode():
    judge = resolve_judge("rules")
    said = conversation("The answer is B. Granite is heavy, so it sinks.")
    standard = judge_once(None, judge, said, mode="standard").scores
    thinking = judge_once(None, judge, said, mode="thinking").scores
    assert standard["pedagogical"] > thinking["pedagogical"]


PLUGIN = """
VERSION = 3
async def later(conversation, example, protocol, spec):
    return {"overall": spec.highest}, {"seen": example.example_id}
def odd(conversation, example, protocol):
    return {"overall": 12}
def other(conversation, example, protocol):
    return {"style": 1}
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_judges_for_tests.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "judges").mkdir()
    for name in ("later", "odd", "other"):
        (tmp_path / "judges" / f"{name}.yaml").write_text(
            f"title: t\nkind: rules\nfunction: own_judges_for_tests:{name}\n"
            "metrics: [{name: overall, label: Overall}]\n"
        )
    return [tmp_path]


def test_a_function_of_one_s_own(own):
    got = judge_once(None, resolve_judge("later", own))
    assert (got.scores, got.reward, got.details) == ({"overall": 10.0}, 1.0, {"seen": "e"})


def test_a_function_is_held_to_its_spec(own):
    with pytest.raises(DataError, match="returned overall 12; expected a number from 0 to 10"):
        judge_once(None, resolve_judge("odd", own))
    with pytest.raises(DataError, match=r"returned \['style'\]; expected \['overall'\]"):
        judge_once(None, resolve_judge("other", own))
