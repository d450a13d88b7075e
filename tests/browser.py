"""Headless Chromium through chromedriver's own HTTP protocol: nothing to install but Debian's two packages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--disable-dev-shm-usage",
)  # fmt: skip


class Browser:
    """One browser with a new profile. `close` ends it and its driver."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="simkit-browser-")
        self._driver = subprocess.Popen(
            [str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._driver.stdout is not None
        port = None
        for line in self._driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                port = found[1]
                break
        assert port is not None, "chromedriver did not start"
        self._base = f"http://127.0.0.1:{port}"
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        options = {"args": [*ARGUMENTS, f"--user-data-dir={self._profile}"], "binary": str(CHROMIUM)}
        always = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": always}})
        self._base += f"/session/{session['sessionId']}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._base + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with self._open(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path) -> None:
        self.log("browser"), self.log("performance")  # what was before does not count
        self._call("POST", "/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        """The value of a script's ``return``."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Entries of the log ("browser" = the console, "performance" = the network) since it was last asked for."""
        entries: list[dict[str, Any]] = self._call("POST", "/se/log", {"type": kind})
        return entries

    def requests(self) -> list[str]:
        """Addresses that the page asked for since `open`."""
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def emulate(self, command: str, **parameters: Any) -> None:
        """A command of the developer tools' protocol."""
        self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def width(self, pixels: int, height: int = 900) -> None:
        self.emulate(
            "Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1, mobile=False
        )

    def media(self, **features: str) -> None:
        """``prefers_color_scheme="dark"``, ``media="print"``."""
        named = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items() if name != "media"
        ]
        self.emulate("Emulation.setEmulatedMedia", media=features.get("media", ""), features=named)

    def close(self) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.communicate(timeout=30)
            shutil.rmtree(self._profile, ignore_errors=True)
