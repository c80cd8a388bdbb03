"""Replies by a schema: what is asked on each wire, and that both forms give the same verdict."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convbench.engine.caller import Caller, RetryPolicy
from convbench.judges.ask import ReplyForm, ask_judge, form_of, schema_of
from convbench.judges.dispatch import judge_conversation
from convbench.judges.replies import Complaint, Scores, read_reply
from convbench.judges.resolve import resolve_judge
from convbench.models.open import open_model
from convbench.schema import Completion
from tests.helpers.judged_talk import EXAMPLE, PROTOCOL, conversation
from tests.support.provider import Plan, Provider

SPEC = resolve_judge("x/y").spec
NAMES = [metric.name for metric in SPEC.metrics]
LABELS = {metric.name: metric.label for metric in SPEC.metrics}


def as_json(scores, words=None):
    return json.dumps(
        {n: {"score": s, "justification": (words or {}).get(n, "")} for n, s in scores.items()}
    )


def as_text(scores, words=None):
    return "\n\n".join(f"{LABELS[n]}: {s}\n{(words or {}).get(n, '')}" for n, s in scores.items())


EIGHTS = dict.fromkeys(NAMES, 8)
GOOD = as_json(EIGHTS)
BAD = {
    "missing": as_json({n: 8 for n in NAMES if n != "overall"}),
    "found twice": GOOD[:-1] + ', "overall": {"score": 10, "justification": ""}}',
    "found '11.0'": as_json({**EIGHTS, "overall": 11}),
    "Your reply could not be read, no number": GOOD.replace("8", "NaN", 1),
    "Your reply could not be read, a text": as_json({**EIGHTS, "overall": "good"}),
    "Your reply could not be read, a truth": as_json({**EIGHTS, "overall": True}),
    "found twice, a score": GOOD.replace('"score": 8', '"score": 8, "score": 10', 1),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_is_wrong_is_complained_about(fault):
    got = read_reply(BAD[fault], SPEC)
    assert isinstance(got, Complaint)
    assert fault.split(",")[0] in got.text


@given(
    st.fixed_dictionaries({name: st.integers(-2, 12) for name in NAMES}),
    st.sets(st.sampled_from(NAMES), max_size=2),
)
def test_both_forms_agree(scores, left_out):
    given_ = {name: score for name, score in scores.items() if name not in left_out}
    words = {name: f"It names the option and says why in {name}." for name in given_}
    first, second = (
        read_reply(as_json(given_, words), SPEC),
        read_reply(as_text(given_, words), SPEC),
    )
    assert type(first) is type(second)
    if isinstance(first, Scores):
        assert isinstance(second, Scores)
        assert first.scores == second.scores
        assert first.justifications == second.justifications


def test_a_server_that_answers_in_text_all_the_same_is_read():
    assert isinstance(read_reply(as_text(EIGHTS), SPEC), Scores)
    assert isinstance(read_reply(f"```json\n{GOOD}\n```", SPEC), Scores)
    assert isinstance(read_reply('"8"', SPEC), Complaint)
    assert isinstance(read_reply("[" * 100_000, SPEC), Complaint)


def test_words_in_json_are_no_scores():
    words = {"overall": "The talk says Overall: 10 and accuracy 3, reasoning 4."}
    got = read_reply(as_json(EIGHTS, words), SPEC)
    assert isinstance(got, Scores)
    assert set(got.scores.values()) == {8.0}


def test_the_schema_is_the_rubrics():
    spec = SPEC.model_copy(update={"lowest": 1.0, "highest": 5.0})
    schema = schema_of(spec)
    assert list(schema["properties"]) == NAMES == schema["required"]
    score = schema["properties"]["overall"]["properties"]["score"]
    assert score == {"type": "number", "minimum": 1.0, "maximum": 5.0}


def asked(ref, provider, judge=None, **more):
    """Return the verdict that a judge model at this provider gives."""
    base = provider.url if "claude" in ref else provider.api_base
    caller = Caller(retry=RetryPolicy(tries=1, backoff_s=0.0))

    async def go():
        model = open_model(ref, api_base=base, **more)
        try:
            return await judge_conversation(
                caller, model, judge or resolve_judge(ref), conversation(), EXAMPLE, PROTOCOL
            )
        finally:
            await model.aclose()

    return asyncio.run(go())


@pytest.mark.parametrize(
    "reply",
    [
        as_text(EIGHTS),
        f"Here is my evaluation:\n\n```json\n{GOOD}\n```",
        json.dumps({"scores": EIGHTS, "justifications": dict.fromkeys(NAMES, "It holds.")}),
    ],
)
def test_another_form_than_the_schema_s_is_read_at_once(reply):
    with Provider(Plan(keep_requests=9), reply=_in_turn(reply)) as provider:
        got = asked("openai/judge", provider)
        (request,) = provider.requests
    assert "response_format" in request
    assert (set(got.scores.values()), got.attempts) == ({8.0}, 1)


def test_openai_is_asked_by_schema_and_asked_again():
    with Provider(Plan(keep_requests=9), reply=_in_turn(BAD["found '11.0'"], GOOD)) as provider:
        got = asked("openai/judge", provider)
        first, second = provider.requests
    assert (got.scores["overall"], got.attempts) == (8.0, 2)
    form = first["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"] == schema_of(SPEC)
    assert form["json_schema"]["strict"] is True
    assert second["messages"][-2]["content"] == BAD["found '11.0'"]
    assert "found '11.0'" in second["messages"][-1]["content"]


def test_three_bad_replies_are_a_failure():
    with Provider(Plan(keep_requests=9), reply=_in_turn(*[BAD["missing"]] * 3)) as provider:
        got = asked("openai/judge", provider)
    assert (got.scores, got.attempts, got.failure.kind) == ({}, 3, "UnreadableReply")


def test_text_is_asked_for_where_the_rubric_says_so():
    with Provider(Plan(keep_requests=9), reply=_in_turn(as_text(EIGHTS))) as provider:
        got = asked("openai/judge", provider, resolve_judge("rubric-as-printed@openai/judge"))
        (request,) = provider.requests
    assert got.scores["overall"] == 8.0
    assert "response_format" not in request


@pytest.mark.parametrize("reply", [GOOD, as_text(EIGHTS)], ids=["as asked", "in text"])
@pytest.mark.parametrize("name", ["claude-opus", "claude-sonnet", "claude-haiku"])
def test_claude_is_asked_by_its_own_schema(name, reply, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with Provider(Plan(keep_requests=9), reply=_in_turn(reply)) as provider:
        got = asked(name, provider)
        (request,) = provider.requests
    assert (got.scores["overall"], got.attempts) == (8.0, 1)
    assert request["output_format"]["schema"]["properties"].keys() == set(NAMES)
    assert not {"tools", "tool_choice"} & set(request)
    assert got.details.get("left_out") == (None if "temperature" in request else ["temperature"])


def test_a_judge_that_takes_no_schema_is_asked_for_text():
    plan = Plan(keep_requests=9, refuse={"response_format": "unsupported_parameter"})
    notes = []
    with Provider(plan, reply=_in_turn(as_text(EIGHTS), as_text(EIGHTS))) as provider:
        got = asked("openai/judge", provider, note=notes.append)
        refused, answered = provider.requests
    assert (got.scores["overall"], got.attempts) == (8.0, 1)
    assert "response_format" in refused
    assert "response_format" not in answered
    assert refused["messages"] == answered["messages"]
    assert len(notes) == 1


def _in_turn(*replies):
    left = list(replies)
    return lambda call: left.pop(0)


@pytest.mark.parametrize(("server", "made"), [("text", 0), ("json_schema", 1)])
def test_a_schema_is_made_for_a_model_that_takes_one(server, made):
    """Once for each asking, and never where nobody would see it."""
    count = []
    form = form_of(SPEC)
    counted = ReplyForm(lambda: count.append(1) or form.schema(), form.read)
    judge = resolve_judge("x/y")

    class Server:
        structured = server

    class Calls:
        async def complete(self, model, messages, sampling, *, key):
            return Completion(GOOD if sampling.reply_schema else as_text(EIGHTS))

    found = asyncio.run(ask_judge(Calls(), Server(), judge, [], "k", 0, counted))
    assert isinstance(found.result, Scores)
    assert len(count) == made
