"""Drives a headless Chromium over the DevTools protocol, with Python's standard library alone."""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request


def find_chromium():
    """Path of a Chromium that can be driven, or (None, why not). $NESTOR_CHROMIUM comes first."""
    for name in (os.environ.get("NESTOR_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name) if name else None
        if path is None:
            continue
        if "snap" in os.path.realpath(path):
            return None, f"{path} is a snap, which cannot read files of the build"
        with open(path, "rb") as file:
            if b"/snap/bin" in file.read(4096):
                return None, f"{path} only starts a snap"
        return path, ""
    return None, "no chromium here (apt-get install chromium on Debian)"


class Socket:
    """Client side of a WebSocket (RFC 6455), text messages."""

    def __init__(self, url):
        host, path = url.removeprefix("ws://").split("/", 1)
        name, port = host.split(":")
        self.stream = socket.create_connection((name, int(port)), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.stream.sendall((f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.stream.recv(1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise ConnectionError(head.decode())

    def send(self, text):
        body = text.encode()
        mask = os.urandom(4)
        size = len(body)
        head = b"\x81" + (struct.pack("!B", 128 | size) if size < 126 else
                          struct.pack("!BH", 254, size) if size < 65536 else struct.pack("!BQ", 255, size))
        self.stream.sendall(head + mask + bytes(b ^ mask[k % 4] for k, b in enumerate(body)))

    def _take(self, size):
        data = bytearray()
        while len(data) < size:
            part = self.stream.recv(min(65536, size - len(data)))
            if not part:
                raise ConnectionError("Chromium closed the connection")
            data += part
        return bytes(data)

    def receive(self):
        message = b""
        while True:
            first, size = self._take(2)
            if size == 126:
                size = struct.unpack("!H", self._take(2))[0]
            elif size == 127:
                size = struct.unpack("!Q", self._take(8))[0]
            message += self._take(size)
            if first & 0x80:
                return message.decode()


class Browser:
    """One page. `console` holds errors, warnings and uncaught exceptions; `requests` what it asked the network for."""

    def __init__(self, chromium):
        self.folder = tempfile.mkdtemp(prefix="nestor_report_")
        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--hide-scrollbars", "--force-color-profile=srgb", "--disable-extensions", "--disable-background-networking",
             "--remote-debugging-port=0", f"--user-data-dir={self.folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.count = 0
        self.console, self.requests = [], []
        self.socket = Socket(self._page())
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(domain + ".enable")

    def _page(self):
        end = time.time() + 60
        port_file = os.path.join(self.folder, "DevToolsActivePort")
        while time.time() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"Chromium ended with {self.process.returncode}")
            try:
                with open(port_file, encoding="utf-8") as file:
                    port = int(file.readline())
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                    pages = [page for page in json.load(answer) if page["type"] == "page"]
                if pages:
                    return pages[0]["webSocketDebuggerUrl"]
            except (OSError, ValueError):
                pass
            time.sleep(0.1)
        raise RuntimeError("Chromium did not start within a minute")

    def _note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description") or details.get("text"))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.console.append(" ".join(str(a.get("value", a.get("description"))) for a in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.console.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def call(self, method, **parameters):
        self.count += 1
        number = self.count
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def run(self, expression):
        """Value of a JavaScript expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "failed: " + expression))
        return result["result"].get("value")

    def resize(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, path, seconds=60):
        """Opens a report; returns the seconds until it was drawn."""
        self.console.clear()
        self.requests.clear()
        start = time.time()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while time.time() < start + seconds:
            if self.run("document.readyState === 'complete' && !!document.documentElement.dataset.ready"):
                return time.time() - start
            time.sleep(0.02)
        raise RuntimeError(f"{path} was not drawn within {seconds} s: {self.console}")

    def key(self, name, code=0):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def screenshot(self, path, selector=None):
        options = {"format": "png", "captureBeyondViewport": True}
        if selector:
            options["clip"] = self.run(
                f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                " return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height, scale: 1}; })()")
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.socket.stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)
