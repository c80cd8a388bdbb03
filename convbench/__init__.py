"""convbench: multi-turn LLM conversations from one declarative spec.

build → judge → train → eval → report → publish, all from the same records.
"""

__version__ = "0.1.0"
