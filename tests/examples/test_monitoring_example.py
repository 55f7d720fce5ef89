"""The alerts and the dashboard ask for what a real exporter shows, by the names that it shows."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from examples.runs import EXAMPLES, environment, run

FOLDER = EXAMPLES / "monitoring"
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? \S+$", re.MULTILINE)
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


@pytest.fixture(scope="module")
def exported() -> dict[str, dict[str, set[str]]]:
    """The labels of each metric, and the values that they had."""
    ended = run("monitoring/shop.py", env=environment())
    assert (ended.stderr, "Unresolved: OutcomeUnknownError" in ended.stdout) == ("", True)
    found: dict[str, dict[str, set[str]]] = {}
    for sample in _SAMPLE.finditer(ended.stdout):
        labels = found.setdefault(sample["name"], {})
        for name, value in _LABEL.findall(sample["labels"] or ""):
            labels.setdefault(name, set()).add(value)
    return found


def rules() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in {"page", "ticket"}
            yield rule["alert"], rule["expr"]


def panels() -> Iterator[tuple[str, str]]:
    for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def selectors_in(expression: str) -> list[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)
        elif isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


@pytest.mark.parametrize(("title", "expression"), [*rules(), *panels()])
def test_a_query_asks_for_exported_names(exported: dict[str, dict[str, set[str]]], title: str, expression: str) -> None:
    selectors = selectors_in(expression)
    assert selectors, title
    for selector in selectors:
        assert selector.name in exported, title
        for matcher in selector.matchers.matchers:
            assert matcher.name in exported[str(selector.name)], title
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        labels = {label for selector in selectors for label in exported[str(selector.name)]}
        assert {each.strip() for each in grouped.split(",")} <= labels, title


def test_the_alerts_of_the_page_are_those_of_the_file() -> None:
    text = (EXAMPLES.parent / "docs/operate/monitoring.md").read_text()
    shown = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert {rule["alert"]: rule["expr"] for rule in shown}.items() <= dict(rules()).items()


def test_a_wrong_name_is_noticed(exported: dict[str, dict[str, set[str]]]) -> None:
    with pytest.raises(AssertionError, match="wrong"):
        test_a_query_asks_for_exported_names(exported, "wrong", "max(momopay_journal_unresolved_seconds)")
