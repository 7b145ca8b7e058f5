"""``python -m vfl_node`` is ``vfl-node``."""

from vfl_node.cli import main

if __name__ == "__main__":
    main()
