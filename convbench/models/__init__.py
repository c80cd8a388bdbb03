"""Models behind one interface: providers, local weights, a vLLM server, rules, scripts.

Uses the schema and the rooms below the engine.
"""

from convbench.models.aliases import aliases, default_policy, resolve
from convbench.models.model import Model
from convbench.models.open import open_model, policy_or_default

__all__ = ["Model", "aliases", "default_policy", "open_model", "policy_or_default", "resolve"]
