"""The routes to a model that an address can be given for: reference, key, where its path ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SECRET = "sk-stranger-0123456789abcdef0123456789"


@dataclass(frozen=True)
class Route:
    """One provider."""

    ref: str
    variables: tuple[str, ...] = ()
    """Environment variables that hold its key."""
    dialect: str = "openai"

    @property
    def provider(self) -> str:
        return self.ref.split("/", 1)[0]


ROUTES = [
    Route("openai/gpt-test", ("OPENAI_API_KEY",)),
    Route("hosted_vllm/test", ("HOSTED_VLLM_API_KEY",)),
    Route("lm_studio/test", ("LM_STUDIO_API_KEY",)),
    Route("aiohttp_openai/test", ("OPENAI_API_KEY", "AIOHTTP_OPENAI_API_KEY")),
    Route("anthropic/claude-haiku-4-5", ("ANTHROPIC_API_KEY",), "anthropic"),
    Route("azure/gpt-4o", ("AZURE_API_KEY",)),
    Route("azure_ai/mistral-large", ("AZURE_AI_API_KEY",)),
    Route("gemini/gemini-2.5-flash", ("GEMINI_API_KEY",), "gemini"),
    Route("ollama/llama3", ("OLLAMA_API_KEY",), "ollama"),
    Route("ollama_chat/llama3", ("OLLAMA_API_KEY",), "ollama_chat"),
    Route("mistral/mistral-small-latest", ("MISTRAL_API_KEY",)),
    Route("groq/llama-3.1-8b-instant", ("GROQ_API_KEY",)),
    Route("deepseek/deepseek-chat", ("DEEPSEEK_API_KEY",)),
    Route("together_ai/test", ("TOGETHERAI_API_KEY",)),
    Route("openrouter/openai/gpt-4o", ("OPENROUTER_API_KEY",)),
    Route("fireworks_ai/test", ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY")),
    Route("xai/grok-3", ("XAI_API_KEY",)),
    Route("perplexity/sonar", ("PERPLEXITYAI_API_KEY",)),
    Route("cohere_chat/command-r", ("COHERE_API_KEY",), "cohere"),
    Route("huggingface/test", ("HUGGINGFACE_API_KEY", "HF_TOKEN")),
    Route("databricks/test", ("DATABRICKS_API_KEY",)),
    Route("text-completion-openai/gpt-test", ("OPENAI_API_KEY",), "text"),
]

USAGE = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14}


def whole(route: Route, text: Any = "fine words", usage: Any = None) -> dict[str, Any]:
    """Return an orderly reply of this provider."""
    prompt, reply = 12, 2
    if route.dialect == "anthropic":
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": usage or {"input_tokens": prompt, "output_tokens": reply},
        }
    if route.dialect == "gemini":
        return {
            "candidates": [
                {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
            ],
            "usageMetadata": usage
            or {
                "promptTokenCount": prompt,
                "candidatesTokenCount": reply,
                "totalTokenCount": prompt + reply,
            },
        }
    if route.dialect == "ollama":
        counts = {"prompt_eval_count": prompt, "eval_count": reply}
        return {"model": "llama3", "response": text, "done": True, **(usage or counts)}
    if route.dialect == "ollama_chat":
        counts = {"prompt_eval_count": prompt, "eval_count": reply}
        said = {"role": "assistant", "content": text}
        return {"model": "llama3", "message": said, "done": True, **(usage or counts)}
    if route.dialect == "cohere":
        return {
            "text": text,
            "generation_id": "1",
            "finish_reason": "COMPLETE",
            "meta": {"billed_units": {"input_tokens": prompt, "output_tokens": reply}},
        }
    if route.dialect == "text":
        choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
        return {"id": "1", "object": "text_completion", "created": 1, "model": "m",
                "choices": [choice], "usage": usage or USAGE}  # fmt: skip
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage or USAGE,
    }
