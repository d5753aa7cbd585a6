"""Names that are imported when they are first used, so that importing a package stays light."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package from a table of its names.

    Parameters
    ----------
    package : str
        Its `__name__`.
    homes : mapping of name to module
        The module, relative to the package, that holds each name.

    Returns
    -------
    getattr, dir : callable
        The first imports a name's module and keeps the value in the package, where it also replaces a module
        of the same name.

    Examples
    --------
    >>> find, names = lazy("latentlink", {"Link": "links"})
    >>> find("Link").__name__, names()
    ('Link', ['Link'])
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted(homes)
