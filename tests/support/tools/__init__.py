"""Tool servers for tests: an honest one by the `mcp` package, and hostile ones by hand."""
