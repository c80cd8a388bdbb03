"""`python -m convbench` is `convbench`."""

from convbench.cli import main

if __name__ == "__main__":
    main()
