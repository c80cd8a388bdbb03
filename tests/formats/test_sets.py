"""Rows as a hundred public sets and trainers write them, one of each shape, all made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import DataError
from tests.helpers.imports import Said, import_rows, said, write_rows

Q, A, B = "Name a bird.", "A wren.", "A spoon."
ASK = {"role": "user", "content": Q}
GOOD = {"role": "assistant", "content": A}
BAD = {"role": "assistant", "content": B}
HUMAN, GPT = {"from": "human", "value": Q}, {"from": "gpt", "value": A}
CHAT: Said = [([Q, A], None)]
PAIR: Said = [([Q, A], 1.0), ([Q, B], 0.0)]
REWARD: Said = [([Q, A], 1.0)]
WEATHER = {"name": "weather", "description": "degrees", "parameters": {"city": {"type": "string"}}}
CALL = {"name": "weather", "arguments": {"city": "Ulm"}}
CALLED = 'weather({"city": "Ulm"})'


def doc(*parts: str) -> str:
    """A dialogue as one text."""
    return "".join(
        f"\n\n{who}: {text}" for who, text in zip(("Human", "Assistant"), parts, strict=True)
    )


CHATS: dict[str, tuple[dict[str, Any], Said]] = {
    "lmsys": ({"conversation_id": "c", "model": "m", "conversation": [ASK, GOOD], "turn": 1}, CHAT),
    "lmsys-copy": ({"conversation": str([ASK, GOOD])}, CHAT),
    "wildchat": (
        {"conversation": [{**ASK, "hashed_ip": "x", "toxic": None}, {**GOOD, "header": {}}]},
        CHAT,
    ),
    "ultrachat-200k": ({"prompt": Q, "prompt_id": "p", "messages": [ASK, GOOD]}, CHAT),
    "ultrachat": ({"id": "0", "data": [Q, A]}, CHAT),
    "lima": ({"conversations": [Q, A], "source": "x"}, CHAT),
    "sharegpt": ({"conversations": [HUMAN, {**GPT, "label": {"x": 1}}]}, CHAT),
    "sharegpt-bing": ({"conversations": [HUMAN, {"from": "bing", "value": A}]}, CHAT),
    "openhermes": ({"conversations": [{**HUMAN, "weight": None}, GPT], "model": None}, CHAT),
    "openorca": ({"system_prompt": "S", "question": Q, "response": A}, [(["S", Q, A], None)]),
    "alpaca": ({"instruction": "Name one.", "input": Q, "output": A, "text": "x"},
               [([f"Name one.\n\n{Q}", A], None)]),
    "alpaca-no-input": ({"instruction": Q, "input": "", "output": A}, CHAT),
    "dolly": ({"instruction": Q, "context": "", "response": A, "category": "x"}, CHAT),
    "capybara": ({"conversation": [{"input": Q, "output": A}]}, CHAT),
    "magpie": ({"conversations": [HUMAN, GPT], "instruction": Q, "response": A,
                "instruct_reward": -2.5}, [([Q, A], -2.5)]),
    "smoltalk2": ({"messages": [ASK, GOOD], "chat_template_kwargs": {"custom_instructions": "S"}},
                  [(["S", Q, A], None)]),
    "nemotron": ({"input": [ASK], "output": A, "system_prompt": ""}, CHAT),
    "openthoughts": ({"system": "S", "conversations": [{"from": "user", "value": Q},
                     {"from": "assistant", "value": A}]}, [(["S", Q, A], None)]),
    "openthoughts-math": ({"messages": [ASK, BAD], "conversations": [HUMAN, GPT], "correct": True},
                          REWARD),
    "numinamath": ({"problem": Q, "solution": A, "messages": [ASK, GOOD]}, CHAT),
    "guanaco": ({"text": f"### Human: {Q}### Assistant".replace("###", "\n###") + f": {A}"}, CHAT),
    "ms-swift-history": ({"history": [["Hi", "Ho"]], "query": Q, "response": A},
                         [(["Hi", "Ho", Q, A], None)]),
    "human-assistant": ({"conversation": [{"human": Q, "assistant": A}]}, CHAT),
    "llama-factory": ({"instruction": Q, "output": A, "history": [["Hi", "Ho"]], "system": "S"},
                      [(["S", "Hi", "Ho", Q, A], None)]),
    "torchtune": ({"conversations": [{"from": "input", "value": Q}, {"from": "output",
     "value": A}]},
                  CHAT),
    "nemo-aligner": ({"system": "S", "mask": "User", "conversations": [
        {"from": "User", "value": Q}, {"from": "Assistant", "value": A}]}, [(["S", Q, A], None)]),
    "bedrock": ({"system": [{"text": "S"}], "messages": [
        {"role": "user", "content": [{"text": Q}]}, {"role": "assistant",
         "content": [{"text": A}]}]},
        [(["S", Q, A], None)]),
    "gemini": ({"systemInstruction": {"parts": [{"text": "S"}]}, "contents": [
        {"role": "user", "parts": [{"text": Q}]}, {"role": "model", "parts": [{"text": A}]}]},
        [(["S", Q, A], None)]),
    "gsm8k": ({"question": Q, "answer": A}, CHAT),
    "deepeval": ({"input": Q, "actualOutput": A, "expectedOutput": "x",
                  "metricsData": [{"name": "m", "score": 1.0}]}, REWARD),
}  # fmt: skip
PAIRS: dict[str, tuple[dict[str, Any], Said]] = {
    "ultrafeedback-binarized": (
        {"prompt": Q, "chosen": [ASK, GOOD], "rejected": [ASK, BAD], "messages": [ASK, GOOD],
         "score_chosen": 8.5, "score_rejected": 1.5}, [([Q, A], 8.5), ([Q, B], 1.5)]),
    "ultrafeedback": (
        {"instruction": Q, "completions": [
            {"response": A, "model": "m", "overall_score": 8.0,
             "annotations": {"honesty": {"Rating": "5"}}},
            {"response": B, "overall_score": "2", "annotations": {"honesty": {"Rating": "N/A"}}}]},
        [([Q, A], 8.0), ([Q, B], 2.0)]),
    "argilla": ({"prompt": Q, "chosen": A, "rejected": B, "chosen-rating": 4, "rejected-rating": 2},
                [([Q, A], 4.0), ([Q, B], 2.0)]),
    "argilla-lists": ({"instruction": Q, "generations": [A, B], "ratings": ["1", "0"]}, PAIR),
    "hh-rlhf": ({"chosen": doc(Q, A), "rejected": doc(Q, B)}, PAIR),
    "helpsteer": ({"prompt": Q, "response": A, "helpfulness": 3, "verbosity": 1}, CHAT),
    "helpsteer2": ({"prompt": Q, "response_1": A, "response_2": B, "preference_strength": -2},
     PAIR),
    "helpsteer3": ({"context": [ASK], "response1": A, "response2": B, "overall_preference": -1},
     PAIR),
    "nectar": ({"prompt": f"\n\nHuman: {Q}\n\nAssistant: ", "answers": [
        {"answer": A, "model": "m", "rank": 1.0}, {"answer": B, "model": "n", "rank": 2.0}]},
        [([Q, A], -1.0), ([Q, B], -2.0)]),
    "tulu-3": ({"prompt": Q, "chosen": [ASK, GOOD], "rejected": [ASK, BAD], "source": "x"}, PAIR),
    "orca-dpo": ({"system": "", "question": Q, "chosen": A, "rejected": B}, PAIR),
    "kto": ({"prompt": Q, "completion": A, "label": True}, REWARD),
    "kto-whole": ({"prompt": [ASK], "completion": [ASK, GOOD], "label": 1}, REWARD),
    "ultra-interact": ({"trajectory": [HUMAN], "chosen": A, "rejected": B, "parent_id": "x"}, PAIR),
    "shp": ({"history": Q, "human_ref_A": A, "human_ref_B": B, "labels": 1, "score_A": 9,
             "score_B": 4}, [([Q, A], 9.0), ([Q, B], 4.0)]),
    "webgpt": ({"question": {"full_text": Q}, "answer_0": A, "answer_1": B, "score_0": 1,
                "score_1": 0}, PAIR),
    "summarize": ({"info": {"post": Q}, "summaries": [{"text": A}, {"text": B}], "choice": 0},
     PAIR),
    "safe-rlhf": ({"prompt": Q, "response_0": A, "response_1": B, "better_response_id": 0,
                   "safer_response_id": 1}, PAIR),
    "arena-33k": ({"conversation_a": [ASK, GOOD], "conversation_b": [ASK, BAD],
     "winner": "model_a"},
                  PAIR),
    "arena-55k": ({"prompt": json.dumps([Q]), "response_a": json.dumps([A]),
                   "response_b": json.dumps([B]), "winner_model_a": 1, "winner_model_b": 0,
                   "winner_tie": 0}, PAIR),
    "arena-140k": ({"conversation_a": [{"role": "user", "content": [{"type": "text", "text": Q,
                    "image": None}]}, GOOD], "conversation_b": [ASK, BAD], "winner": "tie"},
                   [([Q, A], 0.5), ([Q, B], 0.5)]),
    "alpaca-eval": ({"instruction": Q, "output_1": A, "output_2": B, "preference": 1.0}, PAIR),
    "alpaca-eval-tie": ({"instruction": Q, "output_1": A, "output_2": B, "preference": 1.5},
                        [([Q, A], 0.5), ([Q, B], 0.5)]),
    "reward-bench": ({"prompt": Q, "chosen": A, "rejected": B}, PAIR),
    "reward-bench-2": ({"prompt": Q, "chosen": [A], "rejected": [B, "A cup."]},
                       [*PAIR, ([Q, "A cup."], 0.0)]),
    "judge-bench": ({"question": Q, "response_A": A, "response_B": B, "label": "A>B"}, PAIR),
    "openr1": ({"problem": Q, "answer": "x", "generations": [A, B], "correctness_math": [True,
     False],
                "messages": [ASK, GOOD]}, PAIR),
    "trl-steps": ({"prompt": Q, "completions": ["One.", "Two."], "labels": [True, False]},
                  [([Q, "One.\nTwo."], 0.0)]),
    "process-bench": ({"problem": Q, "steps": ["One.", "Two."], "label": -1},
                      [([Q, "One.\n\nTwo."], 1.0)]),
    "prm800k": ({"labeler": "x", "question": {"problem": Q, "ground_truth_answer": "7"}, "label": {
        "steps": [
            {"chosen_completion": 0, "human_completion": None,
             "completions": [{"text": "One.", "rating": 1}, {"text": "Ten.", "rating": -1}]},
            {"chosen_completion": None, "human_completion": {"text": "Two."}, "completions": []},
            {"chosen_completion": None, "completions": [{"text": "End.", "rating": 0}]}],
        "finish_reason": "solution"}},
        [([Q, "Ten."], -1.0), ([Q, "One.\nTwo.\nEnd."], 0.0)]),
    "nemo-rl": ({"context": [ASK], "completions": [{"rank": 0, "completion": [GOOD]},
                {"rank": 1, "completion": [BAD]}]}, [([Q, A], 0.0), ([Q, B], -1.0)]),
    "gemini-pair": ({"contents": [{"role": "user", "parts": [{"text": Q}]}], "completions": [
        {"score": 1, "completion": {"role": "model", "parts": [{"text": A}]}},
        {"score": 0, "completion": {"role": "model", "parts": [{"text": B}]}}]}, PAIR),
    "openai-pair": ({"input": {"messages": [ASK]}, "preferred_output": [GOOD],
                     "non_preferred_output": [BAD]}, PAIR),
    "llama-factory-pair": ({"conversations": [HUMAN], "chosen": GPT,
                            "rejected": {"from": "gpt", "value": B}}, PAIR),
    "ms-swift-pair": ({"messages": [ASK, GOOD], "rejected_response": B}, PAIR),
    "ms-swift-messages": ({"messages": [ASK, GOOD], "rejected_messages": [ASK, BAD]}, PAIR),
    "axolotl": ({"prompt": Q, "chosen_response": A, "rejected_response": B}, PAIR),
    "torchtune-pair": ({"chosen_conversations": [HUMAN, GPT],
                        "rejected_conversations": [HUMAN, {"from": "gpt", "value": B}]}, PAIR),
}  # fmt: skip
AGENTS: dict[str, tuple[dict[str, Any], Said]] = {
    "xlam": ({"query": Q, "answers": json.dumps([CALL]), "tools": json.dumps([WEATHER])},
             [([Q, f"{CALLED}=None"], None)]),
    "apigen": ({"system": "S", "tools": json.dumps([WEATHER]), "conversations": [
        HUMAN, {"from": "function_call", "value": json.dumps(CALL)},
        {"from": "observation", "value": "7"}, GPT]}, [(["S", Q, f"{CALLED}=7", A], None)]),
    "glaive": ({"system": "SYSTEM: S", "chat": f"USER: {Q}\n\n\nASSISTANT: {A} <|endoftext|>"},
               [(["SYSTEM: S", Q, A], None)]),
    "toolace": ({"system": "S", "conversations": [{"from": "user", "value": Q},
                 {"from": "assistant", "value": "[f(a=1)]"}, {"from": "tool", "value": "7"},
                 {"from": "assistant", "value": A}]}, [(["S", Q, "[f(a=1)]", "7", A], None)]),
    "agent-instruct": ({"conversations": [HUMAN, {**GPT, "loss": False}, HUMAN,
                        {**GPT, "loss": True}]}, [([Q, A, Q, A], None)]),
    "swe-smith": ({"messages": json.dumps([ASK, GOOD]), "resolved": True, "instance_id": "i"},
     REWARD),
    "swe-agent-nebius": ({"trajectory": [{"role": "system", "system_prompt": "S", "text": None},
                          {"role": "user", "text": Q}, {"role": "ai", "text": A, "mask": False}],
                          "target": True}, [(["S", Q, A], 1.0)]),
    "nemotron-agentic": ({"tools": [WEATHER], "messages": [{"role": "system", "content": ""}, ASK,
                          {"role": "assistant", "content": "", "tool_calls": [
                              {"function": {"name": "weather", "arguments": "null"}}]},
                          {"role": "tool", "content": "7"}, GOOD]}, [([Q, "weather({})=7", A],
                           None)]),
    "swe-rebench": ({"trajectory": [ASK, GOOD], "resolved": -1}, CHAT),
}  # fmt: skip
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {}}}
USED = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FURTHER: dict[str, tuple[dict[str, Any], Said]] = {
    "sharegpt-gpt-first": ({"conversations": [GPT, HUMAN, GPT]}, [([A, Q, A], None)]),
    "slim-orca": ({"conversations": [{"from": "system", "value": "S", "weight": None},
                   {**HUMAN, "weight": 0}, {**GPT, "weight": 1}]}, [(["S", Q, A], None)]),
    "olmo": ({"messages": [
        {"role": "system", "content": "S", "functions": json.dumps([TOOL])}, ASK,
        {"role": "assistant", "content": "", "function_calls": "f()"},
        {"role": "environment", "content": "7"}, GOOD]}, [(["S", Q, "f()", "7", A], None)]),
    "numinamath-1.5": ({"problem": Q, "solution": A, "answer": "7"}, CHAT),
    "mt-bench-human": ({"question_id": 8, "winner": "model_b", "judge": "e", "turn": 2,
        "conversation_a": [ASK, BAD, ASK, BAD], "conversation_b": [ASK, GOOD, ASK, GOOD]},
        [([Q, B, Q, B], 0.0), ([Q, A, Q, A], 1.0)]),
    "arena-100k": ({"question_id": "x", "conversation_a": [ASK, GOOD],
                    "conversation_b": [ASK, BAD], "winner": "tie (bothbad)"},
                   [([Q, A], 0.5), ([Q, B], 0.5)]),
    "hermes-fc": ({"conversations": [HUMAN, {"from": "gpt", "value": "<tool_call>{}</tool_call>"},
                   {"from": "tool", "value": "7"}, GPT], "tools": json.dumps([TOOL])},
                  [([Q, "<tool_call>{}</tool_call>", "7", A], None)]),
    "toolbench": ({"conversations": [{"from": "user", "value": Q},
                   {"from": "assistant", "value": "Action: a"}, {"from": "function", "value": "7"},
                   {"from": "assistant", "value": A}]}, [([Q, "Action: a", "7", A], None)]),
    "toolbench-umi": ({"conversations": [HUMAN, {"from": "assistant", "value": "Next: caller."},
                       {"from": "caller", "value": "Action: a"},
                       {"from": "observation", "value": "7"}, {"from": "conclusion", "value": A}]},
                      [([Q, "Next: caller.", "Action: a", "7", A], None)]),
    "open-swe-traces": ({"trajectory": [ASK, {"role": "assistant", "tool_calls": [USED]},
                         {"role": "tool", "tool_call_id": "1", "content": "7"}, GOOD],
                         "tools": [json.dumps(TOOL)], "resolved": 1}, [([Q, "f({})=7", A], 1.0)]),
    "axolotl-ranks": ({"prompt": Q, "answers": [A, B], "ranks": [0, 1]},
                      [([Q, A], 0.0), ([Q, B], -1.0)]),
    "ms-swift-tools": ({"messages": [ASK, {"role": "tool_call", "content": json.dumps(CALL)},
                        {"role": "tool_response", "content": '{"t": 7}'}, {**GOOD, "loss": True}],
                        "tools": json.dumps([WEATHER])}, [([Q, f'{CALLED}={{"t": 7}}', A], None)]),
    "kto-tag": ({"instruction": Q, "input": "", "output": A, "kto_tag": True}, REWARD),
    "nemo-aligner-pair": ({"prompt": Q, "chosen_response": A, "rejected_response": B,
                           "chosen_reward": 2.0}, PAIR),
    "openrlhf": ({"prompt": Q, "chosen": A, "rejected": B, "margin": 1.0}, PAIR),
    "fireworks": ({"messages": [ASK, {**BAD, "weight": 0}, ASK, {**GOOD, "weight": 1}]},
                  [([Q, B, Q, A], None)]),
    "parallel-lists": ({"prompt": [Q, "And?"], "response": [A, B]}, [([Q, A, "And?", B], None)]),
    "a-reply-that-is-json": ({"prompt": Q, "completion": '{"text": "x"}'},
                             [([Q, '{"text": "x"}'], None)]),
    "promptfoo": ({"results": {"results": [{"prompt": {"raw": json.dumps([ASK])},
                   "response": {"output": A}, "score": 0.5, "success": False}]}},
                  [([Q, A], 0.5)]),
    "lm-eval": ({"doc_id": 0, "doc": {}, "target": "7", "resps": [[A]], "exact_match": 1.0,
                 "arguments": {"gen_args_0": {"arg_0": Q, "arg_1": {"until": []}}}}, CHAT),
    "lm-eval-list": ({"doc_id": 0, "arguments": [[Q, {"until": []}]], "resps": [[A]]}, CHAT),
    "helm": ({"request_states": [{"instance": {"references": []}, "request": {"prompt": Q},
              "result": {"completions": [{"text": A}]}}]}, CHAT),
    "deepeval-turns": ({"turns": [ASK, GOOD], "metricsData": [{"name": "a", "score": 0.5},
                        {"name": "b", "score": 1.0}]}, CHAT),
    "request-and-response": ({"request": {"messages": [ASK]},
                              "response": {"choices": [{"message": GOOD}]}}, CHAT),
}  # fmt: skip
ALL = CHATS | PAIRS | AGENTS | FURTHER


@pytest.mark.parametrize("name", ALL)
def test_import_logs_reads_a_row_of_each_set(tmp_path: Path, name: str) -> None:
    row, expected = ALL[name]
    assert said(import_rows(tmp_path, [row])) == expected


WITH_TOOLS = {
    **dict.fromkeys(("xlam", "apigen", "nemotron-agentic", "ms-swift-tools"), "weather"),
    **dict.fromkeys(("olmo", "hermes-fc", "open-swe-traces"), "f"),
}


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_import_logs_keeps_the_tools_of_a_row(tmp_path: Path, name: str) -> None:
    result = import_rows(tmp_path, [ALL[name][0]])
    assert result.run is not None
    (talk,) = result.run.conversations()
    (tool,) = talk.tools
    assert tool["function"]["name"] == WITH_TOOLS[name]
    assert tool["function"]["parameters"]["type"] == "object"


def test_import_logs_groups_rows_of_one_prompt(tmp_path: Path) -> None:
    rows = [{"prompt": Q, "response": A, "helpfulness": 3}, {"prompt": Q, "response": B}]
    result = import_rows(tmp_path, rows)
    assert (result.conversations, result.examples) == (2, 1)


def test_import_logs_pairs_calls_before_each_of_several_replies(tmp_path: Path) -> None:
    prompt = [ASK, {"role": "assistant", "tool_calls": [USED]}, {"role": "tool", "content": "7"}]
    row = {"prompt": prompt, "chosen": [GOOD], "rejected": [BAD]}
    assert said(import_rows(tmp_path, [row])) == [
        ([Q, "f({})=7", A], 1.0),
        ([Q, "f({})=7", B], 0.0),
    ]


def test_import_logs_keeps_no_columns_that_tell_who_somebody_is(tmp_path: Path) -> None:
    ask = {**ASK, "hashed_ip": "9f2", "header": {"accept-language": "de"}, "country": "DE"}
    result = import_rows(tmp_path, [{"conversation": [ask, GOOD], "hashed_ip": "9f2"}])
    assert result.run is not None
    (talk,) = result.run.conversations()
    assert talk.metadata == {"message_fields": [{"country": "DE"}, {}]}
    assert "1 personal columns, not kept" in result.notes


def test_import_logs_keeps_scores_of_which_none_is_the_reward(tmp_path: Path) -> None:
    result = import_rows(tmp_path, [FURTHER["deepeval-turns"][0]])
    assert result.run is not None
    (talk,) = result.run.conversations()
    assert talk.metadata == {"scores": {"a": 0.5, "b": 1.0}}


QUESTIONS: dict[str, dict[str, Any]] = {
    "arc": {"question": Q, "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "A"},
    "mmlu": {"question": Q, "choices": ["a", "b"], "answer": 1, "subject": "s"},
    "hellaswag": {"ctx_a": Q, "endings": ["a", "b"], "label": "0"},
    "truthful-qa": {"question": Q, "best_answer": A, "correct_answers": [A]},
    "verl": {"prompt": [ASK], "reward_model": {"ground_truth": "x"}},
    "rft": {"messages": [ASK], "ground_truth": "x"},
    "bm25": {"text": "Some text.", "input_ids": [1, 2], "labels": [1, 2]},
    "web-arena": {"intent": Q, "eval": {"reference_answers": [A]}},
    "lima-test": {"conversations": [Q]},
    "mt-bench-judgment": {"question_id": 8, "model": "m", "score": -1, "turn": 1},
    "refused-role": {"conversations": [HUMAN, {"from": "narrator", "value": A}]},
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_import_logs_leaves_out_what_has_no_word_of_a_policy(tmp_path: Path, name: str) -> None:
    result = import_rows(tmp_path, [QUESTIONS[name], {"messages": [ASK, GOOD]}])
    assert (result.conversations, result.left_out) == (1, 1)


def test_import_logs_refuses_a_file_without_prompt_and_reply(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="columns mesages, reward; expected messages"):
        import_rows(tmp_path, [{"mesages": [ASK, GOOD], "reward": 1}])


def test_import_logs_makes_the_replies_of_a_tree_samples_of_their_prompt(tmp_path: Path) -> None:
    node = {"message_tree_id": "t", "lang": "en"}
    rows = [
        node | {"message_id": "1", "parent_id": None, "text": Q, "role": "prompter"},
        node | {"message_id": "2", "parent_id": "1", "text": A, "role": "assistant", "rank": 0},
        node | {"message_id": "3", "parent_id": "1", "text": B, "role": "assistant", "rank": 1},
        node | {"message_id": "4", "parent_id": "2", "text": "And?", "role": "prompter"},
        node | {"message_id": "5", "parent_id": "4", "text": "A tit.", "role": "assistant"},
    ]
    result = import_rows(tmp_path, rows)
    assert said(result) == [([Q, A], 0.0), ([Q, B], -1.0), ([Q, A, "And?", "A tit."], None)]
    assert result.examples == 2


def test_import_logs_takes_judgments_of_another_file(tmp_path: Path) -> None:
    """MT-Bench's, one a turn, whose mean counts; -1 is a judge's reply that could not be read."""
    marks = [{"question_id": 8, "model": "m", "turn": 1, "score": score} for score in (9, 4, -1)]
    path = write_rows(tmp_path / "judgments.jsonl", marks)
    row = {"question_id": 8, "model": "m", "messages": [ASK, GOOD]}
    result = import_rows(tmp_path, [row], rewards=str(path), key="question_id")
    assert said(result) == [([Q, A], 6.5)]


def test_import_logs_leaves_no_mark_of_parts_that_say_nothing(tmp_path: Path) -> None:
    parts = [{"text": Q}, {"cachePoint": {"type": "default"}}]
    rows = [{"messages": [{"role": "user", "content": parts}, GOOD]}]
    assert said(import_rows(tmp_path, rows)) == CHAT
