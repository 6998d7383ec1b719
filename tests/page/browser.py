# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium by its DevTools protocol: a websocket in plain Python."""
import base64
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find():
    return next((p for p in map(shutil.which, PROGRAMS) if p), None)


class Socket:
    """As much of RFC 6455 as this needs: whole texts, masked from us, not masked from there."""

    def __init__(self, address):
        host, path = address.removeprefix("ws://").split("/", 1)
        name, port = host.split(":")
        self.s = socket.create_connection((name, int(port)), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.s.recv(4096)
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        assert b" 101 " in head.split(b"\r\n")[0], head

    def take(self, n):
        while len(self.rest) < n:
            more = self.s.recv(1 << 20)
            if not more:
                raise EOFError("the browser closed the connection")
            self.rest += more
        data, self.rest = self.rest[:n], self.rest[n:]
        return data

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = struct.pack("!B", 0x80 | len(data)) if len(data) < 126 else \
            struct.pack("!BH", 0x80 | 126, len(data)) if len(data) < 65536 else struct.pack("!BQ", 0x80 | 127, len(data))
        self.s.sendall(b"\x81" + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, second = self.take(2)
            n = second & 0x7f
            n = struct.unpack("!H", self.take(2))[0] if n == 126 else struct.unpack("!Q", self.take(8))[0] if n == 127 else n
            data = self.take(n)
            if first & 0x0f in (0, 1):
                text += data
                if first & 0x80:
                    return text.decode()


class Browser:
    def __init__(self, *options):
        self.dir = tempfile.mkdtemp(prefix="sluice-browser-")
        # Root, and containers without user namespaces, cannot have its sandbox; it sees only the pages of this test.
        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio", "--hide-scrollbars",
             "--ignore-certificate-errors", "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={self.dir}",
             *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        port = pathlib.Path(self.dir, "DevToolsActivePort")
        end = time.monotonic() + 60
        while not port.exists() or not port.read_text().strip():
            assert self.process.poll() is None and time.monotonic() < end, "the browser does not start"
            time.sleep(0.05)
        self.port = int(port.read_text().split()[0])

    def page(self):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Page(json.load(answer)["webSocketDebuggerUrl"])

    def close(self):
        os.killpg(self.process.pid, 15)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Page:
    def __init__(self, address):
        self.socket, self.number, self.events = Socket(address), 0, []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self.events.append(message)

    def js(self, text):
        result = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (text, result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, text, what=None, seconds=30):
        end = time.monotonic() + seconds
        while not self.js(f"!!({text})"):
            assert time.monotonic() < end, f"not within {seconds} s: {what or text}"
            time.sleep(0.05)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def go(self, url):
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.call("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'", f"the page {url}")

    def key(self, name, modifiers=0):
        codes = {"Tab": 9, "Enter": 13, "Space": 32}
        text = {"Enter": "\r", "Space": " "}.get(name)
        common = {"key": " " if name == "Space" else name, "code": name, "windowsVirtualKeyCode": codes[name], "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def shot(self, path):
        data = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
