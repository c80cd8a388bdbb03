"""What a text has no sign of is not looked for: each sign must stand in all that it stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convbench.answers.tags import TAG, may_hold_tags, split_segments
from convbench.catalog import load_spec
from convbench.judges import fence
from convbench.judges.replies import Complaint, read_reply
from convbench.schema import JudgeSpec, Metric

RUBRIC = load_spec(JudgeSpec, "judges", "rubric")
EIGHTS = "\n".join(f"{metric.label}: 8" for metric in RUBRIC.metrics)


@given(st.from_regex(TAG))
def test_tags_have_a_sign(text):
    assert may_hold_tags(text)


@given(st.text(alphabet="think/ |>]▷"))
def test_a_text_without_a_sign_has_no_tag(text):
    assert [piece.thinking for piece in split_segments(text)] == [False]


def test_rubrics_do_not_share_what_their_metrics_are_called():
    other = RUBRIC.model_copy(update={"metrics": (Metric(name="overall", label="Whole"),)})
    for _ in range(2):
        assert set(read_reply(EIGHTS, RUBRIC).scores) == {m.name for m in RUBRIC.metrics}
        assert read_reply("Whole: 7", other).scores == {"overall": 7.0}
        assert isinstance(read_reply("Whole: 7", RUBRIC), Complaint)


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
        assert "\\" in fence.quote_lines(text)
