"""The conversation browser: an index over runs, a local server, and the same pages as files.

May use every stage before it.
"""

from convbench.view.follow import GrowingIndex
from convbench.view.index import ViewIndex, build_index
from convbench.view.library import Library
from convbench.view.server import serve
from convbench.view.site import write_site

__all__ = ["GrowingIndex", "Library", "ViewIndex", "build_index", "serve", "write_site"]
