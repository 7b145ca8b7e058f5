"""How far a trial is: a bar on a terminal or in a notebook, and nothing elsewhere."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vfl_node.terminal import ShownProgress

View = dict[str, Any]


@contextmanager
def show_progress(title: str, *, wanted: bool) -> Iterator[Callable[[View], None]]:
    """What takes views of a job as they come.

    Args:
        title: of the job.
        wanted: whether anything is shown.
    """
    if wanted and _is_notebook():
        bar = _NotebookBar(title)
        yield bar.update
        bar.end()
    elif wanted and sys.stderr.isatty():
        with ShownProgress(title) as bars:
            yield bars.update
    else:
        yield lambda _: None


def _is_notebook() -> bool:
    interactive = sys.modules.get("IPython")
    return interactive is not None and hasattr(interactive.get_ipython(), "kernel")


class _NotebookBar:
    """A bar below the cell, drawn by the browser itself: no widgets to install."""

    def __init__(self, title: str) -> None:
        from IPython import display

        self._title, self._view = title, View()
        self._display: Any = display  # IPython is not typed
        self._handle = self._display.display(self._display.HTML(""), display_id=True)

    def update(self, view: View) -> None:
        """Draw ``view``."""
        self._view = view
        if not view["total"]:
            return
        loss = "" if view["loss"] is None else f", loss {view['loss']:.4f}"
        text = f"{self._title}: {view['phase']} {view['done']:,} of {view['total']:,} {view['unit']}{loss}"
        bar = f'<progress value="{view["done"]:d}" max="{view["total"]:d}"></progress>'
        self._handle.update(self._display.HTML(f"{bar} {html.escape(text)}"))

    def end(self) -> None:
        """The job has ended well."""
        if self._view.get("total"):
            self.update(self._view | {"done": self._view["total"]})
