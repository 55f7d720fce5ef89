"""What breaks a caller: compare the public names of two versions, as `public_api` writes them.

A break is what a caller feels: a name, an argument or a field that is gone, that has another type, or that is required
now. An argument that may be left out, a name or a field more, and a default in place of a required value are none.
"""

import ast
import re
from typing import Final

_SIGNATURE: Final = re.compile(r"(?P<path>[\w.]+)(?P<rest>\(.*)")


def breaks(then: list[str], now: list[str]) -> list[str]:
    """Return the lines of an earlier version that a later one breaks."""
    kept, signatures = set(now), {path_of(line): line for line in now if not line.startswith("class ")}
    return [line for line in then if line not in kept and not _still_fits(line, signatures.get(path_of(line)))]


def path_of(line: str) -> str:
    """Return the name that a line describes."""
    return re.split(r"[(:= ]", line.removeprefix("class "))[0]


def _still_fits(then: str, now: str | None) -> bool:
    """Return whether every call that fits an earlier signature fits a later one."""
    if now is None or then.startswith("class "):
        return False
    before, after = _parsed(then), _parsed(now)
    if before is None or after is None or _text(before.returns) != _text(after.returns):
        return False
    first, second = _arguments(before.args), _arguments(after.args)
    is_required = [name for name, (_, _, default) in second.items() if default is None and name not in first]
    positions = [name for name, (kind, _, _) in first.items() if kind == "positional"]
    return (
        not is_required
        and [name for name, (kind, _, _) in second.items() if kind == "positional"][: len(positions)] == positions
        and all(name in second and _takes(each, second[name]) for name, each in first.items())
    )


def _takes(then: tuple[str, str, str | None], now: tuple[str, str, str | None]) -> bool:
    """Return whether an argument takes what it took, and where it is left out means what it meant."""
    is_movable = now[0] == then[0] or (then[0], now[0]) == ("keyword", "positional")
    return is_movable and now[1] == then[1] and (then[2] is None or now[2] == then[2])


def _parsed(line: str) -> ast.FunctionDef | None:
    found = _SIGNATURE.fullmatch(line)
    if found is None:
        return None
    try:
        (function,) = ast.parse(f"def f{found['rest']}: ...").body
    except SyntaxError:  # a default whose repr is no expression: the text must be the same
        return None
    return function if isinstance(function, ast.FunctionDef) else None


def _arguments(given: ast.arguments) -> dict[str, tuple[str, str, str | None]]:
    """Return the kind, the annotation and the default of each argument. Those with a star need no default."""
    positional = [*given.posonlyargs, *given.args]
    missing = [None] * (len(positional) - len(given.defaults))
    found = dict[str, tuple[str, str, str | None]]()
    for each, default in zip(positional, [*missing, *given.defaults], strict=True):
        found[each.arg] = ("positional", _text(each.annotation), None if default is None else _text(default))
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found[each.arg] = ("keyword", _text(each.annotation), None if default is None else _text(default))
    for star in (given.vararg, given.kwarg):
        if star is not None:
            found[star.arg] = ("star", _text(star.annotation), "")
    return found


def _text(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)
