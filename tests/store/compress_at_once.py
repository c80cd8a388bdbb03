"""Compress parts of several files at once, as a build does its journals'; a process of its own, for
what goes wrong there may end it.

    python -m tests.store.compress_at_once FOLDER
"""

import random
import sys
from pathlib import Path
from threading import Thread

from convbench.store import parts
from convbench.store import parts as frames


def main() -> None:
    folder = Path(sys.argv[1])
    said = {}
    for number in range(48):
        path, draw = folder / f"{number}.jsonl", random.Random(number)
        said[path] = "".join(
            f'{{"a":{draw.random()},"b":"{"word " * draw.randint(0, 300)}"}}\n' for _ in range(4000)
        ).encode()
        path.write_bytes(said[path])

    def seal(some: list[Path]) -> None:
        for path in some:
            compressor = parts.Compressor(path)
            compressor.rotate()
            compressor.wait()

    threads = [Thread(target=seal, args=(list(said)[first::4],)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for path, wanted in said.items():
        with frames.open_part(parts.list_parts(path)[0]) as stream:
            assert stream.read() == wanted, path


if __name__ == "__main__":
    main()
