"""What real providers answer: one row a reply, and what the run is to do about it.

`REFUSALS` are no completions: (who: why, status, headers, body, meaning, words that the user is
told). A meaning is `wait` (another try may help), `conversation` (this one ends), `stop` (the run
ends), `unclear` (left out if it is a parameter, else this conversation ends). `FAULTS` come with
status 200 and are no replies nevertheless. `ENDINGS`, `USAGES` and `THOUGHTS` are completions in
the providers' own words. A name in parentheses, such as `(wire-3)`, is that of a case of the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from convbench.errors import BrokenReply, FatalModelError, ModelError, TransientModelError
from convbench.models.replies import EmptyReply
from tests.support.serve import LocalServer

Row = tuple[str, int, dict[str, str], Any, str, str]


def openai(message: str, type_: str = "invalid_request_error", code: Any = None, param: Any = None):
    """An error in OpenAI's form."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


def google(code: int, message: str, status: str, *details: dict[str, Any]) -> list[Any]:
    """An error of Google's compatible endpoint: a list."""
    inner = {"code": code, "message": message, "status": status, "details": list(details)}
    return [{"error": inner}]


def violation(quota: str) -> dict[str, Any]:
    """The detail of Google's errors that names a quota."""
    return {"@type": "x/QuotaFailure", "violations": [{"quotaId": quota}]}


def xai(message: str, code: str = "The caller does not have permission") -> dict[str, str]:
    """An error in xAI's form."""
    return {"code": code, "error": message}


def anthropic(message: str, type_: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    """An error in Anthropic's form."""
    return {"type": "error", "error": {"type": type_, "message": message, **more}}


def zhipu(code: str, message: str = "see the code") -> dict[str, Any]:
    """An error of Zhipu: all with status 429, told apart by the inner code."""
    return {"error": {"code": code, "message": message}}


QUOTA = "You exceeded your current quota, please check your plan and billing details."
REFUSALS: list[Row] = [
    # OpenAI
    ("OpenAI: no quota (wire-10)", 429, {},
     openai(QUOTA, "insufficient_quota", "insufficient_quota"), "stop", "current quota"),
    *((f"OpenAI: limit of spending: {code}", 429, {},
       openai("Over.", "insufficient_quota", code), "stop",
       "no credit left")
      for code in ("credit_balance_exhausted", "organization_spend_limit_exceeded",
                   "project_spend_limit_exceeded", "organization_usage_limit_exceeded")),
    ("OpenAI: rate limit with a header", 429,
     {"Retry-After": "7", "x-ratelimit-reset-requests": "6ms"},
     openai("Rate limit reached", "requests", "rate_limit_exceeded"), "wait", "Rate limit reached"),
    ("OpenAI: slow down", 503, {},
     openai("Slow down", "server_error", "slow_down"), "wait", "Slow down"),
    ("OpenAI: overloaded", 503, {},
     openai("Busy", "server_error", "server_is_overloaded"), "wait", "Busy"),
    ("OpenAI: one request beyond the limit a minute", 429, {},
     openai("Request too large for gpt-4o: Limit 30000, Requested 41000.", "tokens",
            "rate_limit_exceeded"), "conversation", "Requested 41000"),
    ("OpenAI: invalid prompt", 400, {},
     openai("Your prompt was flagged as potentially violating our usage policy.",
            "invalid_request_error", "invalid_prompt"), "conversation", "filter refused"),
    *((f"OpenAI: policy: {code}", 400, {},
       openai("Not allowed.", code=code), "conversation", "Not allowed")
      for code in ("content_policy_violation", "cyber_policy", "bio_policy")),
    ("OpenAI: policy as a type", 400, {}, openai("Not allowed.", "invalid_prompt"), "conversation",
     "Not allowed"),
    ("OpenAI: repetitive patterns", 400, {},
     openai("Sorry! We've encountered an issue with repetitive patterns in your prompt."),
     "conversation", "filter refused"),
    ("OpenAI: context length", 400, {},
     openai("This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
     "conversation", "longer than the model's context"),
    ("OpenAI: one field too long", 400, {}, openai("Too long.", code="string_above_max_length"),
     "conversation", "Too long"),
    ("OpenAI: reasoning ate the budget", 400, {},
     openai("Could not finish the message because max_tokens or model output limit was reached."),
     "conversation", "--max-tokens"),
    ("OpenAI: another name of max_tokens", 400, {},
     openai("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            code="unsupported_parameter", param="max_tokens"), "unclear", "max_completion_tokens"),
    ("OpenAI: one temperature", 400, {},
     openai("Unsupported value: only the default (1) value is supported.", code="unsupported_value",
            param="temperature"), "unclear", "default"),
    ("OpenAI: invalid value", 400, {},
     openai("Bad.", code="invalid_value", param="top_p"), "unclear",
     "Bad"),
    ("OpenAI: value too large", 400, {},
     openai("Too large.", code="decimal_above_max_value", param="temperature"), "unclear", "Too"),
    ("OpenAI: schema", 400, {},
     openai("Invalid schema for response_format 'evaluation'", param="response_format"), "unclear",
     "Invalid schema"),
    ("OpenAI: schema, newer code", 400, {},
     openai("Invalid schema", code="invalid_json_schema", param="text.format.schema"), "unclear",
     "Invalid schema"),
    ("OpenAI: key", 401, {}, openai("Incorrect API key provided.", code="invalid_api_key"), "stop",
     "the key in ANY_API_KEY was refused"),
    ("OpenAI: country", 403, {},
     openai("Country, region, or territory not supported"), "stop", "Country"),
    ("OpenAI: no such model", 404, {},
     openai("The model does not exist", code="model_not_found"), "stop",
     "is the model's name right?"),
    # Azure
    ("Azure: prompt filtered", 400, {},
     {"error": {"message": "The response was filtered due to the prompt", "code": "content_filter",
                "innererror": {"code": "ResponsibleAIPolicyViolation",
                               "content_filter_result": {"jailbreak": {"filtered": True}}}}},
     "conversation", "filtered"),
    ("Azure: wait in milliseconds", 429, {"retry-after-ms": "700"},
     openai("Please retry after 37 seconds"), "wait", "37 seconds"),
    ("Azure: deployment", 404, {}, openai("None", code="DeploymentNotFound"), "stop", "name right"),
    ("Azure: blocked", 403, {}, openai("Your access is temporarily blocked"), "stop", "blocked"),
    # Anthropic
    ("Anthropic: credit balance", 400, {},
     anthropic("Your credit balance is too low"), "stop", "too low"),
    ("Anthropic: workspace limit", 400, {},
     anthropic("You have reached your specified workspace API usage limits."), "stop", "workspace"),
    ("Anthropic: spend limit of the month", 429, {},
     anthropic("Limited.", "rate_limit_error",
               details={"error_code": "enforced_spend_limit_reached"}), "stop", "no credit left"),
    ("Anthropic: key", 401, {},
     anthropic("invalid x-api-key", "authentication_error"), "stop", "x-api-key"),
    ("Anthropic: billing", 402, {}, anthropic("Pay.", "billing_error"), "stop", "no credit left"),
    ("Anthropic: permission", 403, {},
     anthropic("Not yours.", "permission_error"), "stop", "Not yours"),
    ("Anthropic: no such model", 404, {},
     anthropic("model: x", "not_found_error"), "stop", "name right"),
    ("Anthropic: prompt too long", 400, {},
     anthropic("prompt is too long: 209000 tokens > 200000 maximum"),
     "conversation", "longer than the model's context"),
    ("Anthropic: bytes", 413, {},
     anthropic("Request exceeds the maximum size", "request_too_large"),
     "conversation", "maximum size"),
    ("Anthropic: output filtered", 400, {}, anthropic("Output blocked by content filtering policy"),
     "conversation", "filter refused"),
    *((f"Anthropic: server: {kind}", status, {}, anthropic("Busy", kind), "wait", "Busy")
      for status, kind in ((429, "rate_limit_error"), (500, "api_error"), (409, "conflict_error"),
                           (529, "overloaded_error"))),
    ("Anthropic: deprecated parameter", 400, {},
     anthropic("`temperature` is deprecated for this model."),
     "unclear", "deprecated"),
    # Google
    ("Google: a minute's limit that speaks of billing", 429, {},
     google(429, f"{QUOTA} Please retry in 46s.", "RESOURCE_EXHAUSTED",
            violation("GenerateRequestsPerMinutePerProject")), "wait", "retry in 46s"),
    ("Google: a limit of requests with a delay (wire-1)", 429, {},
     {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
                "details": [{"@type": "x/RetryInfo", "retryDelay": "1s"}],
                "message": "The quota of requests per minute is used up. See your plan and "
                           "billing details. Retry in 1s."}}, "wait", "requests per minute"),
    ("Google: a day's limit", 429, {},
     google(429, f"{QUOTA} Please retry in 9h54m.", "RESOURCE_EXHAUSTED",
            violation("GenerateRequestsPerDayPerProject")), "stop", "a limit that lasts"),
    ("Google: not in the tier", 429, {},
     google(429, f"{QUOTA} limit: 0, model: x", "RESOURCE_EXHAUSTED",
            violation("GenerateRequestsPerMinutePerProject")), "stop", "limit: 0"),
    ("Google: prepaid credit", 402, {},
     google(402, "Used up.", "RESOURCE_EXHAUSTED"), "stop", "Used up"),
    ("Google: key", 400, {},
     google(400, "API key not valid.", "INVALID_ARGUMENT", {"reason": "API_KEY_INVALID"}), "stop",
     "the key in ANY_API_KEY"),
    ("Google: country or billing", 400, {}, google(400, "Location.", "FAILED_PRECONDITION"), "stop",
     "Location"),
    ("Google: unknown field", 400, {},
     google(400, 'Invalid JSON payload: Unknown name "seed": Cannot find field.',
            "INVALID_ARGUMENT"), "unclear", "seed"),
    ("Google: a seed of more than 31 bits (wire-4)", 400, {},
     google(400, "Invalid value at 'seed' (TYPE_INT32), 4294967296", "INVALID_ARGUMENT"), "unclear",
     "TYPE_INT32"),
    ("Google: enum of numbers", 400, {},
     google(400, "Invalid value at 'response_schema.enum[0]' (TYPE_STRING), 60", "INVALID"),
     "unclear", "TYPE_STRING"),
    ("Google: schema with too many states", 400, {},
     google(400, "The schema has too many states for serving", "INVALID_ARGUMENT"), "unclear",
     "too many states"),
    ("Google: server", 500, {}, google(500, "Internal error", "INTERNAL"), "wait", "Internal"),
    ("Google: unavailable", 503, {},
     google(503, "Overloaded", "UNAVAILABLE"), "wait", "Overloaded"),
    ("Google: a limit inside of a server error", 502, {},
     {"error": {"message": '{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}'}}, "wait",
     "RESOURCE_EXHAUSTED"),
    # xAI
    ("xAI: text refused like a key", 403, {},
     xai("Content violates usage guidelines. SAFETY_CHECK_TYPE_BIO"), "conversation",
     "usage guidelines"),
    ("xAI: text refused by a safety check (wire-2)", 403, {},
     xai("This text breaks the usage rules (safety check).", "permission-denied"), "conversation",
     "usage rules"),
    ("xAI: credits", 403, {},
     xai("Your team has used all available credits or reached its monthly spending limit."),
     "stop", "credits"),
    ("xAI: endpoint denied", 403, {},
     xai("Access to the chat endpoint is denied"), "stop", "denied"),
    ("xAI: key by 400", 400, {}, xai("Incorrect API key provided: x", "invalid-argument"), "stop",
     "the key in"),
    # DeepSeek
    ("DeepSeek: content risk (wire-3)", 400, {},
     openai("Content Exists Risk", code="invalid_request_error"), "conversation",
     "Content Exists Risk"),
    ("DeepSeek: content risk, older form", 400, {},
     {"detail": "Content Exists Risk"}, "conversation",
     "filter refused"),
    ("DeepSeek: no schemas", 400, {},
     openai("This response_format type is unavailable now"), "unclear",
     "unavailable"),
    ("DeepSeek: parameter by 422", 422, {},
     openai("temperature: invalid"), "unclear", "temperature"),
    ("DeepSeek: role", 400, {},
     openai("unknown variant `developer`, expected one of `system`"), "unclear",
     "developer"),
    ("DeepSeek: balance", 402, {}, openai("Insufficient Balance"), "stop", "no credit left"),
    ("DeepSeek: limit", 429, {}, openai("Rate Limit Reached"), "wait", "Rate Limit"),
    # Qwen
    *((f"Qwen: limit: {code}", 429, {}, openai("Too fast", code=code), "wait", "Too fast")
      for code in ("limit_requests", "limit_burst_rate", "Throttling.RateQuota")),
    ("Qwen: inspected", 400, {},
     {"code": "DataInspectionFailed", "message": "Input may contain inappropriate content."},
     "conversation", "inappropriate"),
    ("Qwen: arrears", 400, {},
     {"code": "Arrearage", "message": "Access denied."}, "stop", "no credit"),
    ("Qwen: free tier over", 403, {},
     {"code": "AllocationQuota.FreeTierOnly", "message": "Free tier exhausted."}, "stop",
     "no credit"),
    ("Qwen: streams alone", 400, {},
     openai("This model only support stream mode"), "unclear", "stream"),
    ("Qwen: thinking unless streamed", 400, {},
     openai("parameter.enable_thinking must be set to false for non-streaming calls"), "unclear",
     "enable_thinking"),
    # Moonshot
    ("Moonshot: high risk", 400, {},
     openai("The request was rejected because it was considered high risk", "content_filter"),
     "conversation", "high risk"),
    ("Moonshot: token limit", 400, {}, openai("Your request exceeded model token limit: 8192"),
     "conversation", "longer than the model's context"),
    ("Moonshot: balance", 429, {},
     openai("Suspended.", "exceeded_current_quota_error"), "stop", "no credit"),
    *((f"Moonshot: limit: {kind}", 429, {}, openai("Wait.", kind), "wait", "Wait.")
      for kind in ("rate_limit_reached_error", "engine_overloaded_error")),
    ("Moonshot: one temperature", 400, {},
     openai("invalid temperature: only 1 is allowed"), "unclear",
     "temperature"),
    # Zhipu
    *((f"Zhipu: code {code}", 429, {},
       zhipu(code), "conversation", "code") for code in ("1301", "1261")),
    *((f"Zhipu: code {code}", 429, {}, zhipu(code), "wait", "code")
      for code in ("1302", "1303", "1305", "1312")),
    *((f"Zhipu: code {code}", 429, {}, zhipu(code), "stop", "code")
      for code in ("1304", "1308", "1310", "1112", "1113", "1121", "1211", "1220")),
    # Mistral
    ("Mistral: capacity", 429, {},
     {"object": "error", "message": "Service tier capacity exceeded for this model.",
      "type": "invalid_request_error", "param": None, "code": "3505"}, "wait", "capacity"),
    ("Mistral: payment", 402, {},
     {"object": "error", "message": "Pay.", "code": "0"}, "stop", "credit"),
    ("Mistral: order of messages", 400, {},
     {"object": "error", "message": "Unexpected role 'system' after role 'assistant'",
      "type": "invalid_request_message_order", "code": "3230"}, "unclear", "Unexpected role"),
    # Groq
    ("Groq: tokens a minute", 413, {},
     openai("Request too large on tokens per minute (TPM): Limit 6000, Requested 5000", "tokens",
            "rate_limit_exceeded"), "wait", "Limit 6000"),
    ("Groq: more than the tokens of a minute", 413, {},
     openai("Request too large on tokens per minute (TPM): Limit 6000, Requested 9000", "tokens",
            "rate_limit_exceeded"), "conversation", "Requested 9000"),
    ("Groq: capacity", 498, {}, openai("Full.", code="capacity_exceeded"), "wait", "Full."),
    ("Groq: the model's JSON", 400, {},
     {"error": {"message": "Failed to generate JSON", "code": "json_validate_failed",
                "failed_generation": "{"}}, "wait", "Failed to generate"),
    # Together, Fireworks, Cohere
    ("Together: too long by 403", 403, {},
     openai("Input tokens plus max_tokens exceed the context length of this model"),
     "conversation", "longer than the model's context"),
    ("Together: payment", 402, {}, openai("Payment required"), "stop", "no credit"),
    *((f"Together: status {status}", status, {}, openai("Later"), "wait", "Later")
      for status in (408, 429, 503, 520, 524, 529)),
    ("Fireworks: account suspended", 412, {}, openai("Account suspended"), "stop", "suspended"),
    ("Cohere: too many tokens", 400, {}, {"message": "too many tokens: total must be at most 4096"},
     "conversation", "longer than the model's context"),
    ("Cohere: a minute's limit", 429, {}, {"message": "limited to 20 API calls / minute"}, "wait",
     "minute"),
    ("Cohere: a trial key's month", 429, {},
     {"message": "You are using a Trial key, which is limited to 1000 API calls / month."}, "stop",
     "a limit that lasts"),
    # OpenRouter
    ("OpenRouter: in-flight budget", 402, {"Retry-After": "2"},
     {"error": {"code": 402, "message": "Wait.",
                "metadata": {"limit_source": "openrouter_in_flight_budget"}}}, "wait", "Wait."),
    ("OpenRouter: no credits", 402, {},
     {"error": {"code": 402, "message": "Insufficient credits"}}, "stop",
     "Insufficient credits"),
    ("OpenRouter: too heavy for the budget", 402, {},
     {"error": {"code": 402, "message": "Too much.",
                "metadata": {"limit_source": "weight_exceeds_budget"}}}, "conversation", "Too"),
    ("OpenRouter: moderation", 403, {},
     {"error": {"code": 403, "message": "Your input was flagged for violence"}}, "conversation",
     "flagged"),
    ("OpenRouter: guardrail", 403, {},
     {"error": {"code": 403, "message": "Blocked by your guardrail"}}, "stop",
     "guardrail"),
    ("OpenRouter: words of the server behind it", 400, {},
     {"error": {"code": 400, "message": "Provider returned error",
                "metadata": {"raw": '{"error": {"message": "Content Exists Risk"}}'}}},
     "conversation", "Content Exists Risk"),
    ("OpenRouter: server behind it", 502, {},
     {"error": {"code": 502, "message": "Bad"}}, "wait", "Bad"),
    # Bedrock (through litellm)
    ("Bedrock: throttling", 400, {}, openai("Too many", "ThrottlingException"), "wait", "Too many"),
    ("Bedrock: not ready", 400, {},
     openai("Starting", "ModelNotReadyException"), "wait", "Starting"),
    ("Bedrock: validation", 400, {},
     openai("Malformed", "ValidationException"), "unclear", "Malformed"),
    *((f"Bedrock: access: {kind}", status, {}, openai("No.", kind), "stop", "No.")
      for status, kind in ((400, "AccessDeniedException"), (404, "FTUFormNotFilled"),
                           (400, "RequestExpired"))),
    # servers of one's own
    ("llama.cpp: too long", 400, {},
     {"error": {"code": 400, "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}},
     "conversation", "context size"),
    ("llama.cpp: too long by 500", 500, {}, openai("Context size has been exceeded."),
     "conversation", "longer than the model's context"),
    ("Ollama: no such model", 404, {}, openai("model not found", "not_found_error"), "stop",
     "name right"),
    ("Ollama: server", 500, {}, openai("unexpected", "api_error"), "wait", "unexpected"),
    ("LM Studio: an error that is a text", 400, {}, {"error": "Failed to load"}, "unclear",
     "Failed to load"),
    ("a wrong path", 404, {}, {"detail": "Not Found"}, "stop", "Not Found"),
    ("vLLM: no system role", 400, {}, openai("System role not supported"), "unclear",
     "System role"),
    ("a page of a proxy", 502, {}, "<html>Bad gateway 203.0.113.9</html>", "wait", "HTTP 502"),
    ("an empty body", 520, {}, "", "wait", "HTTP 520"),
    ("a redirect", 308, {"Location": "https://127.0.0.1:9/v1"}, "", "stop", "no redirect"),
]  # fmt: skip


def reply(
    content: Any = "The answer is A.",
    finish: Any = "stop",
    usage: Any = None,
    *,
    message: dict[str, Any] | None = None,
    **choice: Any,
) -> dict[str, Any]:
    """A chat completion."""
    said = {"role": "assistant", "content": content, **(message or {})}
    chosen = {"index": 0, "message": said, "finish_reason": finish, **choice}
    return {"object": "chat.completion", "model": "m", "choices": [chosen], "usage": usage}


FAULTS: list[tuple[str, Any, type[ModelError], str]] = [
    ("OpenRouter: upstream", {"error": {"code": 502, "message": "upstream"}}, TransientModelError,
     "upstream"),
    ("OpenRouter: upstream, within the choice (wire-5)",
     reply("The answer", "error", error={"code": 502, "message": "upstream"}), BrokenReply,
     "the reply failed"),
    ("OpenRouter: moderation", {"error": {"code": 403, "message": "was flagged"}}, FatalModelError,
     "flagged"),
    ("OpenRouter: credits", {"error": {"code": 402, "message": "No credits"}}, FatalModelError,
     "No credits"),
    ("Gemini: a blocked prompt", {"choices": []}, EmptyReply, "empty"),
    ("Gemini: a blocked prompt, null", {"choices": None, "usage": {}}, EmptyReply, "empty"),
    ("Gemini: no message", {"choices": [{"message": None, "finish_reason": "stop"}]}, EmptyReply,
     "empty"),
    ("Gemini: filtered", reply("", "SAFETY"), FatalModelError, "filter refused"),
    ("Gemini: all thought", reply(None, "MAX_TOKENS"), FatalModelError, "--max-tokens"),
    ("any: cut before the first word (wire-8)",
     reply("", "length", {"prompt_tokens": 20, "completion_tokens": 0}), FatalModelError,
     "--max-tokens"),
    ("LM Studio: too long", reply("", "stop"), EmptyReply, "empty"),
    ("Ollama: all in reasoning", reply("", "stop", message={"reasoning": "Hm."}), EmptyReply,
     "empty"),
    ("no JSON", "no JSON", BrokenReply, "not a chat completion"),
    ("no choices", {"id": 1}, BrokenReply, "not a chat completion"),
    ("a number for a text", reply(7), EmptyReply, "empty"),
]  # fmt: skip
"""(who: what, body of a 200, error of this conversation, its words)."""

_ENDINGS = {
    "stop: complete": "stop STOP end_turn stop_sequence eos eos_token COMPLETE completed",
    "stop: calls": "tool_calls tool_use function_call",
    "length: cut (wire-6)": "length max_tokens MAX_TOKENS model_length compaction "
    "model_context_window_exceeded max_output_tokens",
    "length: unfinished": "pause_turn",
    "filter: filtered": "content_filter content-filter content_filtered refusal sensitive "
    "guardrail_intervened ERROR_TOXIC SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII LANGUAGE "
    "OTHER IMAGE_SAFETY",
    "failed: failed": "error network_error insufficient_system_resource abort aborted "
    "malformed_model_output malformed_tool_use MALFORMED_FUNCTION_CALL MALFORMED_RESPONSE "
    "UNEXPECTED_TOOL_CALL",
    "other: nobody knows": "singularity",
}
ENDINGS = [(name, word) for name, words in _ENDINGS.items() for word in words.split()]
ENDINGS += [("stop: xAI with tools", "")]
"""(our word, or `failed` for a reply that is asked for again: which meaning, a provider's word)."""

THOUGHTS: list[tuple[str, dict[str, Any], str | None]] = [
    ("vLLM, Ollama, OpenRouter", {"content": "A.", "reasoning": "2 and 2."}, "2 and 2."),
    ("DeepSeek, SGLang, Qwen", {"content": "A.", "reasoning_content": "2 and 2."}, "2 and 2."),
    ("Mistral: parts (wire-9)",
     {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "2 and 2."}]},
                  {"type": "text", "text": "A."}]}, "2 and 2."),
    ("Cohere: parts with a text",
     {"content": [{"type": "thinking", "thinking": "2 and 2."}, {"type": "text", "text": "A."}]},
     "2 and 2."),
    ("none", {"content": "A."}, None),
]  # fmt: skip
"""(who, a message that says "A.", its reasoning)."""


def counts(prompt: Any, completion: Any, total: Any = None, reasoning: Any = None, **more: Any):
    """A usage in OpenAI's form."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    if total is not None:
        usage["total_tokens"] = total
    if reasoning is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return usage


USAGES: list[tuple[str, dict[str, Any], tuple[int | None, int | None], float | None]] = [
    ("OpenAI: reasoning within", counts(20, 505, 525, 500), (20, 505), 20e-6 + 505e-4),
    ("vLLM: no count of reasoning", counts(20, 505, 525, 0), (20, 505), 20e-6 + 505e-4),
    ("xAI: reasoning beside", counts(10120, 1499, 14428, 2809), (10120, 4308), None),
    ("a total that tells (wire-7)", counts(20, 5, 525, 500), (20, 505), 0.05052),
    ("no total", counts(20, 5, None, 500), (20, 505), 0.05052),
    ("Gemini in OpenAI's form", counts(21, 0, 81, 60), (21, 60), 21e-6 + 60e-4),
    ("xAI: ticks", counts(10, 5, 15, cost_in_usd_ticks=37_756_000), (10, 5), 0.0037756),
    ("OpenRouter: credits", counts(10, 5, 15, cost=0.25), (10, 5), 0.25),
    ("cached prompts within", counts(100, 1, 101, prompt_tokens_details={"cached_tokens": 80}),
     (100, 1), 100e-6 + 1e-4),
    ("nothing", {}, (None, None), None),
    ("texts and lies", counts("20", -5), (20, None), None),
]  # fmt: skip
"""(who, usage, (prompt, reply) tokens, dollars at $1 and $100 a million; None: not looked at)."""


class Refusing(LocalServer):
    """A server whose `answer` gets each request's body and returns (status, headers, body)."""

    def __init__(self, answer: Callable[[dict[str, Any]], tuple[int, dict[str, str], Any]]) -> None:
        super().__init__()
        self.answer, self.bodies = answer, list[dict[str, Any]]()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = json.loads(await request.content.read())
        self.bodies.append(body)
        status, headers, value = self.answer(body)
        text = value if isinstance(value, str) else json.dumps(value)
        return web.Response(status=status, headers=headers, text=text)
