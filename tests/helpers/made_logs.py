"""A made-up log of each format, as small as one can be, and what is said in it.

In most a user asks for the degrees in Ulm, the assistant calls a tool, and says them.
"""

from __future__ import annotations

import json
from typing import Any

from tests.helpers.imports import Said

ASK = {"role": "user", "content": "How warm?"}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "7"}
SAY = {"role": "assistant", "content": "It is 7."}
CHAT = [ASK, CALLING, RESULT, SAY]
SAID = ["How warm?", 'weather({"city": "Ulm"})=7', "It is 7."]
EXPECTED: Said = [(SAID, None)]
REWARDED: Said = [(SAID, 1.0)]
USE = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Ulm"}}
BACK = {"type": "tool_result", "tool_use_id": "c1", "content": "7"}


def claude(kind: str, number: int, content: Any, **more: Any) -> dict[str, Any]:
    """A line of a session of Claude Code."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": more.pop("id", f"m{number}"), "model": "claude-x"}
    own = {
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number else None,
        "sessionId": "s",
    }
    return {"type": kind, "message": message, "timestamp": "2026-01-01T00:00:00Z", **own, **more}


def item(**payload: Any) -> dict[str, Any]:
    """A line of a rollout of Codex."""
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload}


def span(kind: str, number: int, **attributes: Any) -> dict[str, Any]:
    """A span of OpenTelemetry."""
    own = {"trace_id": "t", "span_id": f"s{number}", "start_time": number, "name": kind}
    return {**own, "attributes": attributes}


FUNCTION = {
    "type": "function_call",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city": "Ulm"}',
}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "7"}
PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "How warm?"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "weather",
                                     "arguments": {"city": "Ulm"}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "7"}]},
    {"role": "assistant", "parts": [{"type": "text", "content": "It is 7."}]},
]  # fmt: skip
FLAT = {
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "How warm?",
    "llm.input_messages.1.message.role": "assistant",
    "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
    "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "weather",
    "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": '{"city": "Ulm"}',
    "llm.input_messages.2.message.role": "tool",
    "llm.input_messages.2.message.tool_call_id": "c1",
    "llm.input_messages.2.message.content": "7",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "It is 7.",
}
ATIF = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s",
    "agent": {"name": "a", "version": "1", "model_name": "m"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "How warm?"},
        {"step_id": 2, "source": "agent", "message": "", "tool_calls": [
            {"tool_call_id": "c1", "function_name": "weather", "arguments": {"city": "Ulm"}}],
         "observation": {"results": [{"content": "7"}]}},
        {"step_id": 3, "source": "agent", "message": "It is 7."},
    ],
}  # fmt: skip
INSPECT = {
    "version": 2, "status": "success", "eval": {"task": "t", "model": "m"},
    "samples": [{"id": "a/b", "epoch": 1, "input": "How warm?", "target": "7",
                 "messages": [ASK, {**CALLING, "content": "", "tool_calls": [
                     {"id": "c1", "function": "weather", "arguments": {"city": "Ulm"}}]},
                     {"role": "tool", "tool_call_id": "c1", "function": "weather", "content": "7"},
                     {"role": "assistant", "content": [{"type": "text", "text": "It is 7."}]}],
                 "scores": {"includes": {"value": "C"}}}],
}  # fmt: skip
TAU2 = {
    "info": {"agent_info": {"llm": "m"}, "environment_info": {"policy": ""}},
    "tasks": [{"id": "1"}],
    "simulations": [{
        "id": "x", "task_id": "1", "trial": 0, "termination_reason": "user_stop",
        "reward_info": {"reward": 1.0},
        "messages": [
            ASK,
            {"role": "user", "content": None, "tool_calls": [
                {"id": "u1", "name": "look", "arguments": {}, "requestor": "user"}]},
            {"role": "tool", "id": "u1", "content": "a bar", "requestor": "user"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "name": "weather", "arguments": {"city": "Ulm"}}]},
            {"role": "tool", "id": "c1", "content": "7", "requestor": "assistant"},
            SAY, {"role": "user", "content": "Thanks ###STOP###"}],
    }],
}  # fmt: skip
OPENHANDS = [
    {"id": 0, "source": "user", "action": "message", "args": {"content": "How warm?"}},
    {"id": 1, "source": "environment", "observation": "agent_state_changed", "content": ""},
    {"id": 2, "source": "agent", "action": "run", "args": {"city": "Ulm", "thought": ""},
     "tool_call_metadata": {"function_name": "weather", "tool_call_id": "c1", "model_response": {
         "id": "r", "model": "m", "choices": [{"message": {"content": "",
          "tool_calls": [CALL]}}]}}},
    {"id": 3, "source": "agent", "observation": "run", "cause": 2, "content": "7"},
    {"id": 4, "source": "agent", "action": "finish", "args": {"final_thought": "It is 7."}},
]  # fmt: skip
EPISODE = {
    "id": "e", "env": {"id": "x"}, "ok": True, "errors": [],
    "traces": [{"id": "t", "task": {"key": "k", "data": {"answer": "7"}}, "agent": {"name": "a"},
                "nodes": [{"message": ASK, "sampled": False},
                          {"parent": 0, "sampled": True, "message": {"role": "assistant",
                           "tool_calls": [
                              {"id": "c1", "name": "weather", "arguments": '{"city": "Ulm"}'}]}},
                          {"parent": 1, "message": RESULT, "sampled": False},
                          {"parent": 2, "message": SAY, "sampled": True}],
                "calls": [{"node": 3, "model": "m", "finish_reason": "stop"}],
                "rewards": {"a": {"score": 0.5, "weight": 2.0}}}],
}  # fmt: skip
LANGFUSE = {"trace": {"id": "t", "scores": [{"name": "good", "value": 1}], "observations": [
    {"id": "1", "type": "GENERATION", "startTime": "1", "model": "m", "input": json.dumps([ASK]),
     "output": json.dumps(CALLING)},
    {"id": "2", "type": "GENERATION", "startTime": "2", "input": json.dumps(json.dumps(CHAT[:3])),
     "output": json.dumps(SAY)}]}}  # fmt: skip
OPENCLAW = [
    {"role": "toolResult", "toolCallId": "c1", "content": [{"type": "text", "text": "7"}]},
    {"type": "toolCall", "id": "c1", "name": "weather", "arguments": {"city": "Ulm"}},
]
BATCH = {"batch": [
    {"type": "trace-create", "body": {"id": "t"}},
    {"type": "generation-create", "body": {"id": "g", "input": {"messages": CHAT[:3]},
     "output": SAY}},
]}  # fmt: skip
PROMPT = "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"

Log = tuple[list[Any], Said]
MADE: dict[str, Log] = {
    "anthropic_managed_agents": ([
        ["client.beta.sessions.create", {"agent": {"model": {"id": "m"}, "tools": []}}],
        ["client.beta.sessions.events.send", ["s", {"events": [
            {"type": "user.message", "content": [{"type": "text", "text": "How warm?"}]}]}]],
        ["client.beta.sessions.events.stream", {"id": "c1", "type": "agent.tool_use",
         "name": "weather",
                                                "input": {"city": "Ulm"}}],
        ["client.beta.sessions.events.stream", {"type": "agent.tool_result", "tool_use_id": "c1",
                                                "content": [{"type": "text", "text": "7"}]}],
        ["client.beta.sessions.events.stream", {"type": "agent.message", "content": [
            {"type": "text", "text": "It is 7."}]}]], EXPECTED),
    "exchanges-anthropic": ([
        {"request": {"messages": [ASK]}, "response": {"type": "message", "content": [USE]}},
        {"request": {"messages": [ASK, {"role": "assistant", "content": [USE]},
                                  {"role": "user", "content": [BACK]}]},
         "response": {"type": "message", "content": [{"type": "text", "text": "It is 7."}]}}],
          EXPECTED),
    "atif": ([ATIF], EXPECTED),
    "casino": ([{"dialogue_id": 1, "participant_info": {"mturk_agent_2": {"outcomes": {
        "points_scored": 1}}}, "chat_logs": [
            {"text": "Hi.", "task_data": {}, "id": "mturk_agent_1"},
            {"text": "Ho.", "task_data": {}, "id": "mturk_agent_2"}]}], [(["Hi.", "Ho."], 1.0)]),
    "claude_code-sdk": ([
        {"type": "system", "subtype": "init", "session_id": "s", "model": "m"},
        {"type": "user", "message": ASK, "session_id": "s", "parent_tool_use_id": None},
        {"type": "assistant", "message": {"id": "1", "role": "assistant", "content": [USE]},
         "session_id": "s", "parent_tool_use_id": None},
        {"type": "user", "message": {"role": "user", "content": [BACK]}, "session_id": "s"},
        {"type": "assistant", "message": {"id": "2", **SAY}, "session_id": "s"},
        {"type": "result", "subtype": "success", "session_id": "s"}], EXPECTED),
    "claude_code-older-sub-agents": ([
        claude("user", 0, "How warm?"),
        *(claude("user", n, f"Look {n}.", isSidechain=True, parentUuid=None) for n in (1, 2)),
        *(claude("assistant", n, [{"type": "text", "text": f"Done {n}."}], isSidechain=True,
                 parentUuid=f"u{n - 2}") for n in (3, 4)),
        claude("assistant", 5, [{"type": "text", "text": "It is 7."}], parentUuid="u0")],
        [(["How warm?", "It is 7."], None), (["Look 1.", "Done 3."], None),
         (["Look 2.", "Done 4."], None)]),
    "claude_code": ([
        {"type": "summary", "summary": "x", "leafUuid": "other"},
        claude("user", 0, "<command-name>/model</command-name>"),
        claude("user", 1, "How warm?"),
        claude("assistant", 2, [{"type": "thinking", "thinking": "Ask."}], id="m"),
        claude("assistant", 3, [USE], id="m"),
        claude("user", 4, [BACK]),
        claude("assistant", 5, [{"type": "text", "text": "It is 7."}])], EXPECTED),
    "codex": ([
        {"timestamp": "x", "type": "session_meta", "payload": {"id": "s", "instructions": None}},
        item(type="message", role="user", content=[
            {"type": "input_text", "text": "<environment_context>x</environment_context>"}]),
        item(type="message", role="user", content=[{"type": "input_text", "text": "How warm?"}]),
        {"timestamp": "x", "type": "event_msg", "payload": {"type": "user_message"}},
        item(type="reasoning", summary=[{"type": "summary_text", "text": "Ask."}]),
        item(**FUNCTION), item(**OUTPUT),
        item(type="message", role="assistant", content=[{"type": "output_text",
            "text": "It is 7."}])],
        EXPECTED),
    "codex-stream": ([
        {"type": "thread.started", "thread_id": "t"},
        {"type": "item.started", "item": {"id": "i", "type": "command_execution", "command": "ls"}},
        {"type": "item.completed", "item": {"id": "i", "type": "command_execution", "command": "ls",
                                            "aggregated_output": "x", "exit_code": 0}},
        {"type": "item.completed", "item": {"id": "j", "type": "agent_message", "text": "One."}}],
        [(['shell({"command": "ls"})=x', "One."], None)]),
    "colbench": ([{"task": {"problem_description": "How warm?", "ground_truth": "7"}, "reward": 1,
                   "dialogue_history": [{"role": "agent", "content": "It", "output": "It is 7.",
                                         "input": PROMPT}, {"role": "human_user",
                                          "content": "x"}]}],
                 [(["Be brief.", "It is 7."], 1.0)]),
    "gemini_cli": ([{"sessionId": "s", "projectHash": "h", "messages": [
        {"type": "user", "content": "How warm?"},
        {"type": "gemini", "content": "", "toolCalls": [
            {"id": "c1", "name": "weather", "args": {"city": "Ulm"}, "result": [
                {"functionResponse": {"response": {"output": "7"}}}]}]},
        {"type": "gemini", "content": "It is 7."}]}], EXPECTED),
    "inspect": ([INSPECT], REWARDED),
    "langfuse": ([LANGFUSE], REWARDED),
    "langfuse-batch": ([BATCH], EXPECTED),
    "langsmith": ([{"post": [{"id": "r", "run_type": "llm", "trace_id": "t", "inputs": {
        "messages": CHAT[:3]}, "outputs": {}}], "patch": [{"id": "r", "outputs": {"choices": [
            {"message": SAY, "finish_reason": "stop"}]}}]}], EXPECTED),
    "langsmith-langchain": ([{"run_type": "llm", "trace_id": "t", "id": "r",
        "inputs": {"messages": [[
            {"lc": 1, "id": ["langchain", "HumanMessage"], "kwargs": {"content": "How warm?"}}]]},
        "outputs": {"generations": [[{"text": "It is 7.", "message": {"lc": 1, "id": ["AIMessage"],
            "kwargs": {"content": "It is 7.", "tool_calls": []}}}]]},
        "feedback_stats": {"good": {"n": 1, "avg": 1.0}}}], [(["How warm?", "It is 7."], 1.0)]),
    "exchanges-litellm": ([{"call_type": "completion", "response_cost": 0.1, "messages": CHAT[:3],
                  "response": {"choices": [{"message": SAY}]}}], EXPECTED),
    "swe_agent-mini": ([{"trajectory_format": "mini-swe-agent-1.1", "info": {}, "messages": [
        *CHAT, {"role": "exit", "content": "x", "extra": {"exit_status": "Submitted"}}]}],
            EXPECTED),
    "exchanges-chat": ([{"request": {"messages": CHAT[:3]}, "response": {
        "id": "1", "choices": [{"message": SAY, "finish_reason": "stop"}]}}], EXPECTED),
    "exchanges-responses": ([
        {"request": {"input": "How warm?"}, "response": {"object": "response", "id": "1",
                                                         "output": [FUNCTION]}},
        {"request": {"input": [OUTPUT], "previous_response_id": "1"},
         "response": {"object": "response", "id": "2", "output": [
             {"type": "message", "role": "assistant", "content": [
                 {"type": "output_text", "text": "It is 7."}]}]}}], EXPECTED),
    "openclaw": ([{"type": "session", "id": "s", "cwd": "/x"}] + [
        {"type": "message", "id": "1", "parentId": None, "message": message} for message in (
            ASK, {"role": "assistant", "content": [OPENCLAW[1]]}, OPENCLAW[0], SAY)], EXPECTED),
    "openhands": ([{"instance_id": "i", "history": OPENHANDS}], EXPECTED),
    "spans-genai": ([
        span("a", 1, **{"gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(PARTS[:1]),
                        "gen_ai.output.messages": json.dumps(PARTS[1:2])}),
        span("b", 2, **{"gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(PARTS[:3]),
                        "gen_ai.output.messages": json.dumps(PARTS[3:])})], EXPECTED),
    "spans-events": ([{**span("a", 1, **{"gen_ai.operation.name": "chat"}), "events": [
        {"name": "gen_ai.user.message", "attributes": {"content": "How warm?"}},
        {"name": "gen_ai.choice", "attributes": {"message": '[{"text": "It is 7."}]'}}]}],
        [(["How warm?", "It is 7."], None)]),
    "spans-openinference": ([span("a", 1, **{"openinference.span.kind": "LLM", **FLAT})], EXPECTED),
    "spans-plain": ([span("a", 1, **{
        "openinference.span.kind": "AGENT", "input.value": "How warm?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content.0": "It is 7."})],
        [(["How warm?", "It is 7."], None)]),
    "rows-strands": ([{"one": {"system_prompt": [{"text": "Be brief."}], "messages": [
        {"role": "user", "content": [{"text": "How warm?"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "weather",
                                                       "input": {"city": "Ulm"}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1",
         "content": [{"text": "7"}]}}]},
        {"role": "assistant", "content": [{"text": "It is 7."}]}]}}], [(["Be brief.", *SAID],
         None)]),
    "swe_agent": ([{"environment": "x", "trajectory": [], "history": [
        {"agent": "main", **ASK}, {"agent": "main", **CALLING},
        {"agent": "main", "role": "tool", "content": "7", "tool_call_ids": ["c1"]},
        {"agent": "main", **SAY}], "info": {"exit_status": "submitted"}}], EXPECTED),
    "tau_bench": ([{"task_id": 1, "trial": 0, "reward": 1.0, "info": {"reward_info": {}},
                    "traj": [*CHAT, {"role": "user", "content": "###STOP###"}]}], REWARDED),
    "tau_bench-2": ([TAU2], [([*SAID, "Thanks"], 1.0)]),
    "verifiers-0": ([{"id": 0, "task": "t", "reward": 1.0, "answer": "7", "prompt": [ASK],
                       "completion": [{**CALLING, "tool_calls": [json.dumps(CALL)]},
                                      {"role": "tool", "content": "7"}, SAY]}], REWARDED),
    "verifiers": ([EPISODE], REWARDED),
}  # fmt: skip
"""Lines of a file of each format and what is said in it; the name before a dash is the reader's."""
POLICIES = {"casino": "mturk_agent_2"}
