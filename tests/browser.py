"""A headless Chromium, driven over its pipe by the DevTools protocol; tests skip where none is installed."""

import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SILENCE_S: Final = 60.0  # after which a browser that says nothing counts as broken
OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",  # which does not work for root; it opens nothing but our own page
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)


def chromium() -> str:
    """Its path; skips the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or pytest.skip(f"no headless browser: none of {', '.join(NAMES)} is installed")


class Page:
    """One page of a browser. `said` are its console and its errors, `asked` the addresses that it requested."""

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write, self.ids = read, write, count(1)
        self.buffer, self.session = b"", ""
        self.said: list[str] = []
        self.asked: list[str] = []
        self.loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        number = next(self.ids)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self.take()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def take(self) -> dict[str, Any]:
        """The next message; what it tells of the page is kept."""
        while b"\0" not in self.buffer:
            assert select.select([self.read], [], [], SILENCE_S)[0], "the browser says nothing"
            part = os.read(self.read, 1 << 16)
            assert part, "the browser has gone"
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self.note(message.get("method", ""), message.get("params", {}))
        return message

    def note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded += 1
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.said.append(str(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.said.append(params["entry"]["text"])

    # --- what a person does

    def open(self, path: Path, width: int = 1200, scheme: str = "light") -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.prefer(scheme)
        before = self.loaded
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.loaded == before:
            self.take()

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, script: str) -> Any:
        """The value of an expression, after two frames have been drawn."""
        frames = "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
        text = f"(async () => {{ {frames} return ({script}); }})()"
        answer = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def slide(self, place: int, value: int) -> float:
        """Move a what-if's slider; returns the step that the page then shows, ms."""
        self.run(
            f"(input => {{ input.value = {value}; input.dispatchEvent(new Event('input')); }})"
            f"(document.getElementById('row{place}'))"
        )
        return float(self.run("document.querySelector('.answer').dataset.ms"))

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def wheel(self, selector: str, delta: int) -> None:
        place = self.run(f"(box => [box.x + box.width / 2, box.y + 40])({self.box(selector)})")
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=place[0], y=place[1], deltaX=0, deltaY=delta)

    @staticmethod
    def box(selector: str) -> str:
        return f"document.querySelector('{selector}').getBoundingClientRect()"


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A page of a browser that keeps its own files in `folder`."""
    program = chromium()
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    # The browser reads from its descriptor 3 and writes to 4.
    shell = f'exec "$0" "$@" 3<&{from_us} 4>&{to_us}'
    command = ["bash", "-c", shell, program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, pass_fds=(from_us, to_us), stdout=silent, stderr=silent, start_new_session=True)
    os.close(from_us)
    os.close(to_us)
    try:
        yield Page(from_browser, to_browser)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        process.terminate()
        process.wait(timeout=SILENCE_S)
