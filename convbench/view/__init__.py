"""The conversation browser: an index over runs, a local server, and the same pages as files.

May use every stage before it.
"""

from convbench.view.follow import Growing
from convbench.view.index import Index, build_index
from convbench.view.library import Library
from convbench.view.server import serve
from convbench.view.site import write_site

__all__ = ["Growing", "Index", "Library", "build_index", "serve", "write_site"]
