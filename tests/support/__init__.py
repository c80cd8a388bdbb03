"""Local HTTP servers for tests and demos: a model provider and a Hugging Face Hub.

Both listen on 127.0.0.1 only, and run either in a background thread of this process
(``with Provider() as provider``) or as a process of their own (``with spawn("provider") as url``,
or ``python -m tests.support.provider`` from the project's root).
"""
