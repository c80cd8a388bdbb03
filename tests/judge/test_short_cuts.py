"""What a reply has no sign of is not looked for: each sign must stand in all that it stands for."""

import re
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from convbench.answers.tags import TAG, may_hold_tags, segments
from convbench.catalog import load
from convbench.judge import disowned, fence, flatten, lines, own, rubric, score, structured
from convbench.schema import JudgeSpec, Metric

TESTS = Path(__file__).parents[1]
REPLIES = [
    case["reply"] for case in yaml.safe_load((TESTS / "judge/replies.yaml").read_text("utf-8"))
]
REPLIES += [case["reply"] for part in yaml.safe_load(
    (TESTS / "hostile/replies.yaml").read_text("utf-8")).values() for case in part]  # fmt: skip
LINES = sorted({line for reply in REPLIES for line in reply.splitlines()})
ASCII = st.text(alphabet=string.printable)
RUBRIC = load(JudgeSpec, "judges", "rubric")
HEAD = re.sub(r"\(\?!\[[^]]*\]\)", "", lines._HEAD.pattern, count=1)
"""The pattern without what it passes over."""


def plainly(match):
    return match and (match.span(), match.groups())


@given(ASCII, st.from_regex(disowned._ANY_CASE.pattern.lower()), ASCII)
def test_words_in_ascii_disown_wherever_the_plain_pattern_finds_them(before, said, after):
    for text in (said, said.upper(), before + said, f"{before} {said}{after}"):
        found = disowned._ANY_CASE.search(text)
        assert disowned.disowned(text) == (found[0] if found else None)


def test_every_word_that_may_begin_such_words_is_looked_at():
    """Each alternative of the pattern is met: hypothesis might leave one out."""
    for text in (
        "disregard the above", "Forget my scores", "withdraw those ratings", "the score is wrong",
        "take back all of these numbers", "do not trust my verdicts", "Retract all above",
        "all of the values are random", "my figures were an example", "They are not meant",
        "I refuse to judge", "i am unable to rate it", "Made these numbers up", "make up my scores",
        "ratings must be ignored", "numbers should be discarded", "values are to be disregarded",
        "evaluation would look", "verdict might read", "figures merely show", "format could look",
        "just kidding", "not a genuine", "only a test", "Just a test", "scrap these evaluations",
        "discard the scores", "Ignore all of the above", "those were the scores that the teacher",
    ):  # fmt: skip
        for said in (text, text.upper(), f"8.{text}", f"({text}", f"_ {text}", f"\n\n{text}"):
            assert disowned.disowned(said) == disowned._ANY_CASE.search(said)[0]
        for said in (f"x{text}", f"_{text}", f"7{text}"):
            found = disowned._ANY_CASE.search(said)
            assert disowned.disowned(said) == (found and found[0])


@given(st.from_regex(HEAD, fullmatch=True) | st.text(alphabet="Ais '\"(-=>.:,[1/_&é") | ASCII)
def test_a_label_ends_where_it_did(text):
    assert plainly(lines._HEAD.match(text)) == plainly(re.match(HEAD, text))


def test_a_label_of_a_reply_ends_where_it_did():
    found = [
        line for line in LINES if plainly(lines._HEAD.match(line)) != plainly(re.match(HEAD, line))
    ]
    assert not found


@given(st.characters(), st.text(alphabet=" *_=~`|:-a\t"))
def test_what_begins_with_a_letter_or_number_is_no_rule_and_no_fence(sign, rest):
    if sign.isalnum():
        raw = sign + rest
        assert not lines._RULE.match(raw)
        assert not raw.lstrip().startswith("```")


KNOWN = rubric._known(RUBRIC.metrics).either


@given(st.lists(st.sampled_from([
    "overall", "OVERALL score ", " Accuracy", "reasoning_ability", ": ", "8", "(7", "\n", "\r",
    "\x0b", ", ", "aCCuracy=", "ſ", "final  score 1", " ",
])))  # fmt: skip
def test_lines_that_list_several_metrics_have_two_digits_and_two_of_their_first_words(pieces):
    text = "".join(pieces)
    for line in text.splitlines():
        if len(flatten._listed(KNOWN).findall(line)) > 1:
            assert flatten._may_list(line, KNOWN)
            assert not text.isascii() or flatten._TWO_DIGITS.search(text)


def test_a_line_of_a_reply_that_lists_several_metrics_may_do_so():
    listed = [line for line in LINES if len(flatten._listed(KNOWN).findall(line)) > 1]
    assert len(listed) > 5
    assert all(flatten._may_list(line, KNOWN) for line in listed)
    assert all(flatten._TWO_DIGITS.search(line) for line in listed if line.isascii())
    assert flatten._may_list("Qualität: 8", frozenset({""}))


@given(ASCII)
def test_text_in_ascii_has_no_sign_that_is_written_otherwise(text):
    assert text.translate(flatten._FULLWIDTH).replace("\u00a0", " ") == text


@given(st.from_regex(score._REPLACED))
def test_a_second_number_has_a_digit(text):
    assert score._says_number(text)


@given(st.text())
def test_a_number_is_said_where_there_is_any_digit(text):
    assert score._says_number(text) == bool(re.search(r"\d", text))


def test_nothing_is_no_doubt():
    assert not score._doubted("", bare=True)


def said_by_the_judge(reply):
    """The judge's own words, whatever signs a reply has."""
    reply = own._FENCE.sub(own._fence, own._BLOCK.sub("\n", own._after_thought(reply)))
    kept = [line for line in reply.splitlines() if not line.lstrip().startswith((">", "&gt;"))]
    return "\n".join(own._unechoed(kept))


@pytest.mark.parametrize("dress", [
    "{}", "```\n{}\n```", "~~~\nUser: 4\n{}\n~~~", "<think>{}</think>", "◁think▷{}",
    "[THINK]{}[/THINK]8", "[transcript]{}[/transcript]\n7", "<quote>{}</quote>", "> {}",
    "8\n&gt; {}", "◁/think▷\n{}",
])  # fmt: skip
def test_own_words_are_what_they_are_when_everything_is_looked_for(dress):
    for reply in REPLIES:
        text = dress.format(reply)
        assert own.own_words(text) == said_by_the_judge(text)


@given(st.from_regex(own._BLOCK) | st.from_regex(TAG))
def test_tags_and_blocks_have_a_sign(text):
    assert may_hold_tags(text)
    assert own.own_words(text) == said_by_the_judge(text)


@given(st.text(alphabet="think/ |>]▷"))
def test_a_text_without_a_sign_has_no_tag_and_no_block(text):
    assert [piece.thinking for piece in segments(text)] == [False]
    assert own._BLOCK.sub("\n", text) == text


@given(st.from_regex(own._FENCE))
def test_a_fenced_block_has_a_sign(text):
    assert own.own_words(text) == said_by_the_judge(text)


@given(st.from_regex(own._COLON))
def test_what_introduces_others_words_has_a_colon(text):
    assert ":" in text


@given(st.text(alphabet="aZ_9 :=*\"')(|.-\x1c/") | ASCII)
def test_a_score_in_ascii_is_one_in_any_script(text):
    assert plainly(own._SCORED_ASCII.search(text)) == plainly(own._SCORED.search(text))


def test_a_score_of_a_reply_is_one_in_any_script():
    scored = [line for line in LINES if line.isascii() and own._SCORED.search(line)]
    assert len(scored) > 100
    assert all(own._SCORED_ASCII.search(line) for line in scored)


def test_rubrics_do_not_share_what_their_metrics_are_called():
    other = RUBRIC.model_copy(update={"metrics": (Metric(name="overall", label="Whole"),)})
    for _ in range(2):
        assert set(rubric.parse(REPLIES[0], RUBRIC).scores) == {m.name for m in RUBRIC.metrics}
        assert rubric.parse("Whole: 7", other).scores == {"overall": 7.0}
        assert isinstance(rubric.parse("Whole: 7", RUBRIC), rubric.Complaint)


@pytest.mark.parametrize("dress", ["{}", " \n{}", "```json\n{}\n```", "\t```\n {}\n```\n"])
def test_an_object_behind_blanks_is_not_read_as_text(dress, monkeypatch):
    """What begins with no brace is no object, and not tried as one."""
    said = ", ".join(f'"{m.name}": {{"score": 7}}' for m in RUBRIC.metrics)
    monkeypatch.setattr(structured, "parse", None)
    assert isinstance(structured.read(dress.format(f"{{{said}}}"), RUBRIC), rubric.Scores)


@given(st.from_regex(fence._TOKENS) | st.text(alphabet="<>|[]/｜stranſcipİNKST_ \n") | st.text())
def test_tokens_are_held_where_the_whole_pattern_finds_one(text):
    assert fence._holds_tokens(text) == bool(fence._TOKENS.search(text))


@pytest.mark.parametrize("token", [
    "<|im_start|>", "a|>", "｜>", "<｜User｜>", "</s>", "<BOS>", "<eos>", "<pad>", "[INST]",
    "<start_of_turn>", "<end_of_turn>", "<<SYS>>", "<</sys>>", "[/inst]", "[SYSTEM_PROMPT]",
    "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "</ transcript-1>", "<opening",
])  # fmt: skip
def test_every_token_is_written_out(token):
    for text in (token, f"so {token} said", f"Zürich\n{token}"):
        assert fence._holds_tokens(text)
        assert "\\" in fence.quoted(text)
