"""Parts of the local model provider; its face is `tests.support.provider`."""
