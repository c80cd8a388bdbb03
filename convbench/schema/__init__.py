"""The data model: frozen records and specs, each with its JSON schema.

May use words and errors only.
"""

from convbench.schema.base import (
    FrozenModel,
    Mode,
    Text,
    canonical_json,
    fingerprint,
    pick_template,
)
from convbench.schema.chat import (
    Completion,
    Content,
    FinishReason,
    ImagePart,
    Message,
    Sampling,
    TextPart,
    text_of,
    usual_prompt,
    without_stable,
)
from convbench.schema.conversation import Conversation, Failure, Sent, Turn
from convbench.schema.judge import (
    JudgeSpec,
    Metric,
    Reward,
    TurnScores,
    Verdict,
    turn_scores,
)
from convbench.schema.protocol import Loop, ProtocolSpec, Speaker, Step
from convbench.schema.reasoning import Reasoning, RedactedBlock, ThinkingBlock
from convbench.schema.run import ModelConfig, RunManifest
from convbench.schema.task import Choice, Example, TaskSpec
from convbench.schema.tools import Tool, ToolCall, ToolLimits, ToolResult, ToolRound

__all__ = [
    "Choice",
    "Completion",
    "Content",
    "Conversation",
    "Example",
    "Failure",
    "FinishReason",
    "FrozenModel",
    "ImagePart",
    "JudgeSpec",
    "Loop",
    "Message",
    "Metric",
    "Mode",
    "ModelConfig",
    "ProtocolSpec",
    "Reasoning",
    "RedactedBlock",
    "Reward",
    "RunManifest",
    "Sampling",
    "Sent",
    "Speaker",
    "Step",
    "TaskSpec",
    "Text",
    "TextPart",
    "ThinkingBlock",
    "Tool",
    "ToolCall",
    "ToolLimits",
    "ToolResult",
    "ToolRound",
    "Turn",
    "TurnScores",
    "Verdict",
    "canonical_json",
    "fingerprint",
    "pick_template",
    "text_of",
    "turn_scores",
    "usual_prompt",
    "without_stable",
]
