"""A headless Chromium that tests talk to through a pipe, in Chrome's DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


class Browser:
    """A browser with one page. `complaints` are the console's errors and warnings, and uncaught exceptions, so far."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None, "whoever asks has looked whether there is one"
        self.complaints: list[str] = []
        self._ready: set[str] = set()
        self._count = 0
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
        # The protocol wants the pipes at 3 and 4.
        command = f'exec "$0" "$@" 3<&{their_in} 4>&{their_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        self._out, self._in = os.fdopen(our_out, "wb"), os.fdopen(our_in, "rb")
        self._session = ""
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Load a file in a window of a width, in a light or dark scheme."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._ready.clear()
        self._call("Page.navigate", url=path.absolute().as_uri())
        while "Page.loadEventFired" not in self._ready:
            self._read()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        told = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Keep a picture of the whole page."""
        told = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(timeout=20)
        self._out.close()
        self._in.close()

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        call: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        self._out.write(json.dumps(call | ({"sessionId": self._session} if self._session else {})).encode() + b"\0")
        self._out.flush()
        while True:
            message = self._read()
            if message.get("id") == self._count:
                assert "error" not in message, message
                return message["result"]

    def _read(self) -> dict[str, Any]:
        parts = []
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser has ended"
            parts.append(byte)
        message = json.loads(b"".join(parts))
        method, params = message.get("method", ""), message.get("params", {})
        self._ready.add(method)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        return message
