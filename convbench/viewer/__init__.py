"""The conversation browser: an index over runs, a local server, and the same pages as files.

May use every stage before it.
"""

from convbench.viewer.follow import GrowingIndex
from convbench.viewer.index import ViewIndex, build_index
from convbench.viewer.library import Library
from convbench.viewer.server import serve
from convbench.viewer.site import write_site

__all__ = ["GrowingIndex", "Library", "ViewIndex", "build_index", "serve", "write_site"]
