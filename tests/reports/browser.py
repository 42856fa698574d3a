"""Chromium without a window, driven by its own driver as W3C WebDriver says, by Python alone.

    with Browser(width=1280, height=900) as browser:
        browser.open(path)
        browser.run("return document.title")
"""
import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Down": "\ue015", "Up": "\ue013", "Tab": "\ue004",
        "End": "\ue010", "Home": "\ue011"}


def found():
    """The programs that are needed; None if one is missing."""
    driver = shutil.which("chromedriver")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    return (driver, browser) if driver and browser else None


class Browser:
    def __init__(self, width=1280, height=900, dark=False, phone=False):
        driver, program = found()
        self.profile = tempfile.TemporaryDirectory(prefix="attest-browser-",
                                                   ignore_cleanup_errors=True)
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        try:
            self.at = f"http://127.0.0.1:{self.port()}/session"
            # Unset: chromium as root has no sandbox of its own; the pages are ours.
            arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                         "--disable-dev-shm-usage", f"--window-size={width},{height}",
                         f"--user-data-dir={self.profile.name}"]
            options = {"binary": program, "args": arguments}
            if phone:
                options["mobileEmulation"] = {"deviceMetrics": {
                    "width": width, "height": height, "pixelRatio": 2, "touch": True}}
            answer = self.ask("POST", "", {"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
            self.at += "/" + answer["sessionId"]
            if dark:
                self.devtools("Emulation.setEmulatedMedia", features=[
                    {"name": "prefers-color-scheme", "value": "dark"}])
        except BaseException:
            self.close()
            raise

    def port(self):
        for line in self.process.stdout:
            if started := re.search(r"successfully on port (\d+)", line):
                return started[1]
        raise RuntimeError("chromedriver did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            if self.at.count("/") > 3:
                self.ask("DELETE", "")
        except (OSError, AttributeError):
            pass
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.profile.cleanup()

    def ask(self, method, path, body=None):
        data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.at + path, data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with DIRECT.open(request, timeout=120) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, path, address=""):
        """The page, once its scripts have its verdicts; the seconds that it took."""
        self.ask("POST", "/url", {"url": path.resolve().as_uri() + address})
        self.until("return document.documentElement.dataset.ready")

    def until(self, script, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(script):
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}")

    def run(self, script, *arguments):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script, *arguments):
        """Of a script that gives its answer to its last argument, a function."""
        return self.ask("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def press(self, *keys):
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def console(self):
        """What the browser complained of since it was asked last."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def picture(self, path, whole=False):
        options = {"captureBeyondViewport": True} if whole else {}
        shot = self.devtools("Page.captureScreenshot", **options)["data"]
        path.write_bytes(base64.b64decode(shot))
