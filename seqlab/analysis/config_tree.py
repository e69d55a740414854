"""A config as a tree on the screen."""

from typing import Any

from rich.console import Console
from rich.tree import Tree


def print_config(config: dict[str, Any]) -> None:
    """Print a config, a branch for each node and a leaf for each value."""
    tree = Tree("config", guide_style="dim", hide_root=True)
    _grow(tree, config)
    Console().print(tree, soft_wrap=True, markup=False)


def _grow(tree: Tree, node: dict[str, Any]) -> None:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            target = value.get("_target_", "").rpartition(".")[2]
            _grow(tree.add(f"{key}: {target}" if target else key), {k: v for k, v in value.items() if k[0] != "_"})
        else:
            tree.add(f"{key}: {value}")
