"""placeholder"""
from typing import Any
def select_of(half: Any, ids: Any) -> Any:
    from vfl_node.export.graph import export_error
    raise export_error("x","y")
def check_select(*a: Any) -> None: ...
