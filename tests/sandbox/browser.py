"""What a person does on a page in headless Chromium, and what a screen reader finds there."""

from collections.abc import Callable
from typing import Any

from chromium import Tab

from patience import until

KEYS = {"Escape": 27, "Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}


class Page:
    """The page in a tab of the browser."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.value = tab.evaluate

    def run(self, statements: str) -> None:
        self.tab.evaluate(f"{statements}; undefined")

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({selector!r})?.innerText ?? ''"))

    def shows(self, selector: str, *texts: str) -> bool:
        """Return whether each of these texts is in an element."""
        return all(text in self.text(selector) for text in texts)

    def count(self, selector: str) -> int:
        return int(self.value(f"document.querySelectorAll({selector!r}).length"))

    def shows_prompt(self) -> bool:
        return self.value("!document.getElementById('veil').hidden") is True

    def click(self, selector: str, *, then: Callable[[], bool] = lambda: True) -> None:
        """Click in the middle of an element, whatever is there, and wait for what follows."""
        x, y = self.value(f"""(() => {{
            const element = document.querySelector({selector!r});
            element.scrollIntoView({{ block: "center", behavior: "instant" }});
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        for event in ("mousePressed", "mouseReleased"):
            self.tab.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)
        self.until(then)

    def unfold(self, row: str) -> None:
        """Unfold a row. What is inside is made when it is first wanted, a moment later."""
        self.click(f"{row} summary", then=lambda: self.count(f"{row} details[open] .payload") > 0)

    def fill(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({selector!r}).focus(); document.activeElement.select()")
        self.tab.call("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option, once it is shown. The page may draw its options anew at any moment."""
        chosen = f"""(() => {{
            const box = document.querySelector({selector!r});
            if (!box?.checkVisibility() || ![...box.options].some((each) => each.value === {value!r})) return false;
            box.focus();
            box.value = {value!r};
            return box.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()"""
        self.until(lambda: self.value(chosen) is True)

    def press(self, key: str) -> None:
        event = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "text": "\r" if key == "Enter" else ""}
        for kind in ("keyDown", "keyUp"):
            self.tab.call("Input.dispatchKeyEvent", type=kind, **event)

    def show(self, *, width: int, scheme: str = "light") -> None:
        """Set the width of the window in CSS pixels, and the scheme that the user prefers."""
        self.tab.set_window(width=width, height=900, scheme=scheme)

    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader finds."""
        nodes = self.tab.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")))
            for node in nodes
            if not node["ignored"]
        ]

    def until(self, holds: Callable[[], Any]) -> None:
        until(holds, "the page")
