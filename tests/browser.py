"""Drives a headless Chromium over its DevTools protocol: loads pages, clicks and types as a user does.

Clicks are mouse events at the place of an element, so one that is hidden or covered cannot be clicked.
"""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
START_LIMIT_S = 120
WAIT_LIMIT_S = 60
MISSING = "there is no chromium on this machine"


class Browser:
    """One page of a browser. Mutable.

    Args:
        connection: The DevTools connection of the page.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._last_id = 0
        self.problems: list[str] = []
        """Exceptions and errors that the page reported since it was made."""
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and returns its result; notes the errors that arrive meanwhile."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        self._connection.send(json.dumps(message))
        while True:
            reply = json.loads(self._connection.recv(timeout=WAIT_LIMIT_S))
            if reply.get("id") == self._last_id:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result
            self._note(reply)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(event["params"]["exceptionDetails"]))
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.problems.append(str(event["params"]["entry"]))

    def open(self, url: str) -> None:
        """Loads a page and waits until it is there."""
        self.send("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.send("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def resize(self, width: int, height: int = 900) -> None:
        """Gives the page a size in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def value(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression; a promise is awaited."""
        result = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + WAIT_LIMIT_S
        while not self.value(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Clicks into the middle of the first element that a CSS selector names, as a mouse does."""
        x, y = self._place(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, selector: str, begin: float, end: float) -> None:
        """Drags over an element, from one share of its width to another."""
        left, top, width, height = self._box(selector)
        y = top + height / 2
        steps = (("mousePressed", begin), ("mouseMoved", (begin + end) / 2), ("mouseMoved", end))
        for kind, share in (*steps, ("mouseReleased", end)):
            x = left + share * width
            self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                buttons=1,
                clickCount=1,
            )

    def type(self, text: str) -> None:
        """Types text where the focus is."""
        self.send("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Presses a named key such as Tab, Enter or ArrowRight."""
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **(text if kind == "keyDown" else {}),
            )

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        """Stores a picture of the page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
        return path

    def pdf(self, path: Path) -> Path:
        """Stores the page as it is printed."""
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF")["data"]))
        return path

    def _place(self, selector: str) -> tuple[float, float]:
        left, top, width, height = self._box(selector)
        assert width, f"{selector} is not visible"
        x, y = left + width / 2, top + height / 2
        hit = f"""(function () {{
            const wanted = document.querySelector({json.dumps(selector)});
            const there = document.elementFromPoint({x}, {y});
            return Boolean(there) && wanted.contains(there);
        }})()"""
        assert self.value(hit), f"{selector} is covered by another element"
        return x, y

    def _box(self, selector: str) -> tuple[float, float, float, float]:
        box = self.value(f"""(function () {{
            const found = document.querySelector({json.dumps(selector)});
            if (!found) {{ return null; }}
            found.scrollIntoView({{block: "center", inline: "center"}});
            // A link over two lines has two rectangles, and the middle of both may be beside it.
            const box = found.getClientRects()[0] || found.getBoundingClientRect();
            return [box.left, box.top, box.width, box.height];
        }})()""")
        assert box, f"there is no {selector}"
        left, top, width, height = box
        return left, top, width, height


@contextmanager
def chromium(folder: Path, width: int = 1400) -> Iterator[Browser]:
    """Starts a browser and ends it.

    Args:
        folder: For its profile; must be empty.
        width: Of the page, in CSS pixels.
    """
    assert CHROMIUM is not None, MISSING
    arguments = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--remote-debugging-port=0", "--remote-allow-origins=*", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(f"--user-data-dir={folder}", "about:blank"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    try:
        with connect(_page_address(folder, process), max_size=None) as connection:
            browser = Browser(connection)
            browser.resize(width)
            yield browser
    finally:
        process.terminate()
        process.wait()


def _page_address(folder: Path, process: "subprocess.Popen[bytes]") -> str:
    """Waits until the browser listens; returns the address of its page."""
    end = time.monotonic() + START_LIMIT_S
    while True:
        try:
            port, path = (folder / "DevToolsActivePort").read_text(encoding="utf-8").split()
            break
        except (OSError, ValueError):
            assert process.poll() is None, (folder / "log").read_text(errors="replace")
            assert time.monotonic() < end, "chromium did not start"
            time.sleep(0.05)
    root = f"ws://127.0.0.1:{port}"
    with connect(f"{root}{path}", max_size=None) as connection:
        connection.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
        targets = json.loads(connection.recv(timeout=WAIT_LIMIT_S))["result"]["targetInfos"]
    (page,) = [one["targetId"] for one in targets if one["type"] == "page"]
    return f"{root}/devtools/page/{page}"
