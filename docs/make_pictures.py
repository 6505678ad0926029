#!/usr/bin/env python3
"""Makes the pictures of a run's report in docs/: the page, wide and light (report-light.png) and on
a phone, dark (report-dark.png), and what ddp_report prints on a terminal (report-terminal.svg).

    docs/make_pictures.py BUILD RUN      RUN: the folder of a run that has ended

Needs Chromium for the page. The text of the terminal is the program's own, colours included.
"""
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from xml.sax.saxutils import escape

DOCS = pathlib.Path(__file__).resolve().parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Of the page: name, width, height, dark; a window is never narrower than 500, a frame may be.
PAGES = (("report-light.png", 1280, 1580, False), ("report-dark.png", 390, 1815, True))

PAGE_COLOUR = ("#f6f7f9", "#14171b")  # the page's own background

COLUMNS, ADVANCE, LINE, EDGE = 80, 7.8, 17, 14
BACK, INK, BOLD = "#1d2126", "#d5d9de", "#ffffff"
COLOURS = {"31": "#ff9d94", "32": "#6fd39c", "33": "#ffc777"}
SEQUENCE = re.compile(r"\x1b\[([\d;]*)m")
WORDS = re.compile(r"\S+(?: \S+)*")  # between two spaces or more, which a drawing would lose


def on_terminal(*command):
    """What a program writes to a terminal of 80 columns."""
    master, slave = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=slave,
                               stderr=slave, env={**environment, "TERM": "xterm"})
    os.close(slave)
    text = b""
    while True:
        try:
            read = os.read(master, 65536)
        except OSError:  # no process has it open any more
            break
        text += read
        if not read:
            break
    os.close(master)
    if process.wait() != 0:
        sys.exit(text.decode())
    return text.decode().replace("\r\n", "\n").rstrip("\n")


def pieces(text):
    """(line, column, words, colour, bold) of what stands on the screen."""
    colour, bold = INK, False
    for row, line in enumerate(text.split("\n")):
        column = 0
        for i, part in enumerate(SEQUENCE.split(line)):
            if i % 2 == 0:
                for words in WORDS.finditer(part):
                    yield row, column + words.start(), words[0], colour, bold
                column += len(part)
                continue
            for code in part.split(";"):
                if code in COLOURS:
                    colour = COLOURS[code]
                elif code == "1":
                    bold = True
                else:
                    colour, bold = INK, False


def draw_terminal(text, path):
    lines = text.count("\n") + 1
    width, height = round(COLUMNS * ADVANCE) + 2 * EDGE, lines * LINE + 2 * EDGE
    drawn = []
    for row, column, words, colour, bold in pieces(text):
        drawn.append(f'<text x="{EDGE + column * ADVANCE:.1f}" '
                     f'y="{EDGE + row * LINE + 13}" textLength="{len(words) * ADVANCE:.1f}" '
                     f'fill="{BOLD if bold and colour == INK else colour}"'
                     f'{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""}>'
                     f'{escape(words)}</text>')
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="ui-monospace, \'DejaVu Sans Mono\', monospace" '
        f'font-size="13">\n<title>What ddp_report prints</title>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACK}"/>\n'
        + "\n".join(drawn) + "\n</svg>\n")


def photograph(browser, page, path, width, height, dark):
    with tempfile.TemporaryDirectory() as folder:
        around = pathlib.Path(folder, "around.html")
        around.write_text(f'<!doctype html><body style="margin:0;background:{PAGE_COLOUR[dark]}">'
                          f'<iframe src="{page.as_uri()}" style="border:0;display:block;'
                          f'margin:0 auto;width:{width}px;height:{height}px"></iframe>')
        shot = pathlib.Path(folder, "shot.png")
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile",
                        "--no-first-run", "--allow-file-access-from-files",
                        "--virtual-time-budget=500",
                        "--run-all-compositor-stages-before-draw",  # or a tile may be missing
                        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                        f"--window-size={max(width, 500)},{height}", f"--screenshot={shot}",
                        around.as_uri()], check=True, capture_output=True, timeout=60)
        shutil.move(shot, path)


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    build, run = (pathlib.Path(argument).resolve() for argument in arguments)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("Chromium is not installed")
    text = on_terminal(build / "ddp_report", run)
    draw_terminal(text.rsplit("\n\npage: ", 1)[0], DOCS / "report-terminal.svg")
    for name, width, height, dark in PAGES:
        photograph(browser, run / "report.html", DOCS / name, width, height, dark)


if __name__ == "__main__":
    main(sys.argv[1:])
