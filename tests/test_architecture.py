"""The structure of the package: imports go down, without cycles, and each library is known in one place."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import momopay

SOURCE = Path(momopay.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Top to bottom, as in docs/contributing.md. A package may import its own layer and those below it.
LAYERS = [
    {"__main__", "_pyinstaller", "cli"},
    {"pytest_plugin"},
    {"integrations"},
    {"probe"},
    {"client"},
    {"types"},
    {"resources"},
    {"durable"},
    {"journal"},
    {"_polling"},
    {"_core"},
    {"_ratelimit"},
    {"_transport"},
    {"spreadsheets"},
    {"callbacks", "errors", "events", "models", "money", "phones", "signing", "urls"},
    {"_fork", "_hints", "_locks", "_redaction"},
]
# A client is built before anything is loaded, so this module of _core imports nothing that costs time.
EVERYWHERE = {"momopay._core.wiring", "momopay._core.config"}
NAMED_FROM_BELOW = {"momopay.client"}
"""What calls further down take, so that their annotations name it; a type checker alone imports it there."""
MOST_LINES = 400
LONGER = {
    "errors.py": 460,  # one table of classes
}
"""Files that are longer, and may not grow."""
MOST_FILES = 184
START_THE_SANDBOX = {"cli", "pytest_plugin", "momopay.integrations.django.test"}
"""Packages and a module that start it, for people and for users' tests."""


def module_of(path: Path) -> str:
    parts = ("momopay", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


MODULES = {module_of(path): path for path in FILES}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Every node of a file's code."""
    return list(ast.walk(ast.parse(path.read_text())))


def is_hint(node: ast.AST) -> bool:
    """Return whether type checkers alone see what is below this node."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def imports_of(path: Path, *, late: bool = True, hints: bool = True) -> set[str]:
    """Every module of this package that a file imports: `late` in functions too, `hints` for type checkers too."""
    functions = {each for each in nodes_of(path) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    blocks = set[ast.AST]() if late else set[ast.AST](functions)
    blocks |= set() if hints else set(filter(is_hint, nodes_of(path)))
    skipped = {node for block in blocks for node in ast.walk(block)}
    found = set[str]()
    for node in nodes_of(path):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "momopay":
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & MODULES.keys()
            if names - MODULES.keys():  # names of the package itself, and not only modules in it
                found.add(str(node.module))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.split(".")[0] == "momopay")
    return found & MODULES.keys() - {module_of(path)}


def layer_of(package: str) -> int:
    return next(number for number, packages in enumerate(LAYERS) if package in packages)


def test_imports_go_down() -> None:
    wrong = list[str]()
    for path in FILES:
        own = package_of(module_of(path))
        if own in {"sandbox", "momopay"}:
            continue
        named = (imports_of(path) - imports_of(path, hints=False)) & NAMED_FROM_BELOW
        for module in imports_of(path) - EVERYWHERE - named - {"momopay"}:
            package = package_of(module)
            if package not in {own, "sandbox"} and layer_of(package) < layer_of(own):
                wrong.append(f"{path.relative_to(SOURCE)} imports {module}")
    assert wrong == []


def test_there_is_no_import_cycle() -> None:
    # Not those in functions: the journal's database loads the one driver that its URL names.
    graph = {
        module: imports_of(path, late=False, hints=False) - {"momopay"}
        for module, path in MODULES.items()
        if module != "momopay"
    }
    finished = set[str]()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join([*above[above.index(module) :], module])
        if module not in finished:
            for each in sorted(graph.get(module, ())):
                visit(each, (*above, module))
            finished.add(module)

    for module in sorted(graph):
        visit(module, ())


def test_nothing_below_the_client_imports_the_package_itself() -> None:
    """Which has names that it loads at their first use: whatever is below would import what is above it."""
    below = {package for layer in LAYERS[layer_of("client") + 1 :] for package in layer}
    wrong = [name for name, path in MODULES.items() if package_of(name) in below and "momopay" in imports_of(path)]
    assert wrong == []


def test_the_sandbox_imports_nothing_of_the_rest_and_nothing_imports_it() -> None:
    for path in FILES:
        imported = {package_of(module) for module in imports_of(path)}
        if package_of(module_of(path)) == "sandbox":
            assert imported <= {"sandbox"}, path
        elif not START_THE_SANDBOX & {package_of(module_of(path)), module_of(path)}:
            assert "sandbox" not in imported, path


KNOWN_BY = {
    "httpx": {"_transport", "client"},
    "httpcore": {"_transport"},
    "anyio": {"_transport"},
    "time": {"_transport", "journal"},
    "asyncio": {"_transport", "integrations"},
    "redis": {"_ratelimit"},
    "tenacity": {"_core"},
    "sqlalchemy": {"journal"},
    "opentelemetry": {"integrations"},
    "openpyxl": {"spreadsheets"},
}
"""The packages that may import a library, apart from those that are programs of their own."""


def test_each_library_is_known_in_one_place() -> None:
    wrong = set[str]()
    for module, path in MODULES.items():
        package = package_of(module)
        for node in nodes_of(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for library in {name.split(".")[0] for name in names} & KNOWN_BY.keys():
                if package not in KNOWN_BY[library] | {"sandbox", "cli", "pytest_plugin"}:
                    wrong.add(f"{module} imports {library}")
    assert wrong == set()


def test_files_are_few_and_short_and_say_what_they_are_for() -> None:
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in FILES}
    assert [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []
    lengths = {name: len(text.splitlines()) for name, text in texts.items()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGER.get(name, MOST_LINES)} == {}
    assert len(FILES) <= MOST_FILES


def test_nothing_jumps_right_within_a_lock() -> None:
    """In Python 3.13, an exception of a signal handler at such a jump passes by the `with`: the lock stays held."""
    withs = [(path, node) for path in FILES for node in nodes_of(path) if isinstance(node, ast.With)]
    holding = [(path, node) for path, node in withs if any("lock" in ast.unparse(each) for each in node.items)]
    assert len(holding) > 10
    for path, node in holding:
        inner = [each for line in node.body for each in ast.walk(line)]
        assert not any(isinstance(each, ast.While) for each in inner), f"{path}:{node.lineno}"
        filters = [each.ifs for each in inner if isinstance(each, ast.comprehension)]
        assert not any(filters), f"{path}:{node.lineno}"


CLIENT = "momopay.Client('pk_test_x', base_url='http://127.0.0.1:1/v1')"
EXTRAS = {"sqlalchemy", "redis", "fastapi", "typer", "openpyxl"}
STEPS: dict[str, set[str]] = {
    "import importlib; import momopay": EXTRAS,
    CLIENT: EXTRAS | {"httpx", "httpcore", "pydantic", "anyio", "tenacity"},
    "import pydantic_core.core_schema": EXTRAS,  # with typing-extensions 4.15, it loads asyncio
    "momopay.parse_callback": EXTRAS | {"httpx", "httpcore", "tenacity", "anyio"},
    f"{CLIENT}.payouts.pay_once": EXTRAS | {"tenacity", "asyncio", "momopay._transport.threads"},
}
"""What one program does, step by step, and libraries that each step must not load."""


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = "import sys\n" + "".join(
        f"before = set(sys.modules)\n{step}\nprint(*sorted(set(sys.modules) - before))\n" for step in STEPS
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [set(line.split()) for line in done.stdout.splitlines()]
    assert {name.split(".")[0] for name in loaded[0]} <= {"momopay", "importlib", "warnings"}
    for step, names in zip(STEPS, loaded, strict=True):
        assert not names & STEPS[step], step
    assert "httpx" in loaded[-1], "it is not noticed where something is loaded"
