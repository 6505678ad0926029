"""ddp_report and report.html: of runs that ended, go on, were killed or are damaged, and of two;
a browser opens the page without a complaint.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import zlib

import harness
from harness import begin, check, metrics, run_json, same, small_cfg, train_well

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OF_BROWSER = re.compile(r"https?://([\w-]+\.)*(google|googleapis|gvt1)\.com/")  # asks by itself


def report(*arguments):
    harness.program = "ddp_report"
    try:
        return harness.Started(arguments).finish()
    finally:
        harness.program = "ddp_train"


def report_well(*arguments):
    result = report(*arguments)
    check(result.code == 0 and not result.err, f"it failed:\n{result}")
    check(max(map(len, result.out.splitlines())) <= 80 or "--json" in arguments,
          f"more than 80 columns:\n{result}")
    return result.out


def page_of(out):
    text = (pathlib.Path(out) / "report.html").read_text()
    check("{{" not in text and text.endswith("</html>\n"), "a page that is not whole")
    for outside in ('src="http', 'href="http', "url(", "@import", "fetch("):
        check(outside not in text, f"the page has {outside}")
    return text


def without_footer(text):
    return re.sub(r"<footer.*", "", text)


def case_a_run_leaves_its_page_and_ddp_report_makes_the_same():
    out = harness.scratch / "out"
    result = train_well(small_cfg(), "--set", "train.steps=24", "--out", out, ranks=2)
    check(",report.html" in result.out, f"the page is not named:\n{result}")
    page, summary = page_of(out), run_json(out)
    for figure in ("Memory by purpose", "m-activations", "Use of processors",
                   f"{100 * summary['scaling_efficiency']:.1f} %", summary["verdict"][:20],
                   f"{100 * summary['final']['test_accuracy']:.2f} %", "finished</strong> after 24",
                   "chart-loss", "chart-rate", "model.input"[-5:], summary["ranks"][1]["host"]):
        check(figure in page, f"the page has no {figure!r}")
    check("http-equiv=\"refresh\"" not in page, "a page that has ended reloads itself")
    same(len(re.findall(r'class="bar"', page)), 4, "bars of time and memory of two ranks")
    printed = report_well(out)
    check(f"efficiency  {100 * summary['scaling_efficiency']:.1f} %" in printed, printed)
    same(without_footer(page_of(out)), without_footer(page), "the page by ddp_report")
    # Without: no page, and no mention of one.
    plain = harness.scratch / "plain"
    result = train_well(small_cfg(), "--set", "report.html=false", "--out", plain)
    check("report.html" not in result.out and not (plain / "report.html").exists(), f"{result}")


def case_figures_are_json_and_csv():
    out, csv = harness.scratch / "out", harness.scratch / "steps.csv"
    train_well(small_cfg(), "--out", out)
    told = json.loads(report_well(out, "--json", "--csv", csv))
    same(told["summary"], run_json(out), "the summary")
    same((told["state"], told["missing"], told["steps"]["count"]), ("ended", [], 6), "the rest")
    lines = [line.split(",") for line in csv.read_text().splitlines()]
    same(lines[0][0], "step", "the first heading")
    same([float(line[3]) for line in lines[1:]],
         [step["loss"] for step in metrics(out, "step")], "losses")
    (out / "report.html").unlink()
    same(report_well(out, "--csv", "-"), csv.read_text(), "the steps on standard output")
    check(not (out / "report.html").exists(), "a page, though the steps alone were asked for")


def case_a_run_that_goes_on_and_one_that_was_killed_are_shown():
    started, out = begin(small_cfg())
    started.wait_for("the page", (out / "report.html").exists)
    check("http-equiv=\"refresh\"" in page_of(out), "the page does not reload itself")
    check("running after" in report_well(out), "it is not said to run")
    for pid in started.ranks().values():  # one that was left would write run.json
        os.kill(pid, 9)
    started.finish()
    printed = report_well(out)
    check("broken off after" in printed and "run.json is missing" in printed, printed)
    page = page_of(out)
    check("http-equiv=\"refresh\"" not in page and "was killed" in page, "the page of a killed run")
    # As if it had been killed after the first step.
    text = (out / "metrics.jsonl").read_bytes()
    (out / "metrics.jsonl").write_bytes(b"".join(text.splitlines(True)[:2]))
    words, printed = r"after 1 of \d+ steps\b", " ".join(report_well(out).split())
    check(re.search(words, printed) and re.search(words, page_of(out)), printed)
    # Half of its files, and none.
    (out / "metrics.jsonl").write_bytes(text[: len(text) // 2])
    (out / "config.yaml").unlink()
    printed = report_well(out)
    check("torn" in printed and "config.yaml is missing" in printed, printed)


def case_wrong_usage_and_missing_runs_have_their_codes():
    empty, broken = harness.scratch / "empty", harness.scratch / "broken"
    empty.mkdir()
    broken.mkdir()
    (broken / "run.json").write_text("{")
    for code, arguments in ((64, ()), (64, ("--wrong", empty)), (64, (empty, empty, empty)),
                            (64, ("--csv",)), (64, (broken, "--csv", "--no-page")),
                            (64, (broken, "--mlflow", "--json")), (66, (harness.scratch / "none",)),
                            (66, (empty,)), (65, (broken,)), (66, (small_cfg(),))):
        result = report(*arguments)
        same((result.code, len(result.err.splitlines())), (code, 1), f"what came of {result}")
    check("RUN2" in report_well("--help") and "lockstep" in report_well("--version"), "no help")
    # Where nothing can be written the report is printed, and then the code says so.
    (broken / "run.json").write_text('{"name": "x"}')
    (broken / "report.html").mkdir()
    result = report(broken)
    check(result.code == 74 and "x: error" in result.out, f"{result}")
    report_well(broken, "--no-page")


def case_what_cannot_be_made_of_a_broken_run_keeps_nothing_else_from_being_made():
    out, store = harness.scratch / "out", harness.scratch / "mlruns"
    out.mkdir()
    (out / "config.yaml").write_text("name: x\n")
    (out / "run.json").write_text(json.dumps({"name": "x", "steps": 1, "ranks": [
        {"rank": 0, "host": "h", "step_ms": {"input": 0, "forward": 0}}]}))
    result = report(out, "--csv", "steps.csv", "--mlflow", store)
    same((result.code, len(result.err.splitlines())), (66, 1), f"what came of {result}")
    check((out / "report.html").exists() and list(store.glob("*/*/meta.yaml")), "not all is made")
    for empty in ("parts of a mean", "\nefficiency"):
        check(empty not in result.out, f"a table of nothing:\n{result.out}")
    check("no step of the run was" in (out / "report.html").read_text(), "the page has that table")


def case_two_runs_are_compared():
    first, second = harness.scratch / "first", harness.scratch / "second"
    train_well(small_cfg(), "--set", "train.steps=40", "--out", first)
    train_well(small_cfg(), "--set", "train.steps=40", "--set", "optimizer.lr=0.2",
               "--set", "model.layers[4].dense.units=24", "--out", second)
    printed = report_well(first, second)
    for line in ("optimizer.lr: 0.1 -> 0.2", "model.layers[4].dense.units: 16 -> 24"):
        check(line in printed, f"no {line!r} in\n{printed}")
    check("train.seed" not in printed, f"what is the same is listed:\n{printed}")
    page = page_of(first)
    check("Compared with another run" in page and "optimizer.lr" in page, "the page does not")
    told = json.loads(report_well(first, second, "--json"))
    same({row["key"] for row in told["changed"]},
         {"optimizer.lr", "model.layers[4].dense.units"}, "what was changed")
    rate = {row["figure"]: row for row in told["figures"]}["samples/s"]
    same(rate["a"], run_json(first)["samples_per_second"], "samples/s of A")
    check(rate["noise"] > 0 and rate["b_is"] in ("better", "worse", "in noise"), f"{rate}")


# ---- in a browser ----

# What the page's copy tells of itself to the page around it.
PROBE = """<script>
const told = {wide: document.documentElement.scrollWidth - innerWidth, values: []};
for (const svg of document.querySelectorAll(".chart svg[data-box]")) {
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2}));
  told.values.push(svg.parentNode.querySelector(".values").textContent);
  svg.dispatchEvent(new PointerEvent("pointerleave"));
  svg.focus({preventScroll: true});
  svg.dispatchEvent(new KeyboardEvent("keydown", {key: "Home"}));
  told.values.push(svg.parentNode.querySelector(".values").textContent);
}
document.activeElement.blur();
told.ragged = [...document.querySelectorAll("table")].filter(table => [...table.rows].some(
  row => row.cells.length !== table.rows[0].cells.length)).length;
told.cut = [...document.querySelectorAll(".who")].filter(who => who.scrollWidth > who.clientWidth)
  .map(who => who.textContent);
told.beyond = [...document.querySelectorAll(".tiles div")].filter(div => div.scrollWidth >
  div.clientWidth).map(div => div.textContent);
told.unnamed = document.querySelectorAll("table:not(:has(caption)), svg:not([aria-labelledby])," +
  "section:not([aria-labelledby], [aria-label])").length;
scrollTo(0, 0);
parent.postMessage(JSON.stringify(told), "*");
</script>"""

AROUND = """<!doctype html><body style="margin:0"><iframe src="copy.html" style="border:0;
width:%dpx;height:1400px"></iframe><script>
addEventListener("message", event => { document.title = event.data; });</script>"""


def browse(browser, folder, width, dark):
    """What the copy tells of itself, what the browser complains of, the addresses it asked for, and
    the first pixel of what it shows."""
    (folder / "around.html").write_text(AROUND % width)
    url = (folder / "around.html").as_uri()
    with tempfile.TemporaryDirectory(dir=harness.scratch) as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                   "--disable-background-networking", "--disable-component-update",
                   "--no-first-run",
                   "--virtual-time-budget=500", "--enable-logging=stderr", "--log-level=0",
                   f"--log-net-log={profile}/net.json", "--allow-file-access-from-files",
                   f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                   f"--window-size={width},1400", f"--screenshot={folder}/shot.png", "--dump-dom",
                   url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        net = pathlib.Path(profile, "net.json")
        asked = net.read_text() if net.exists() else ""
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    check(done.returncode == 0 and title, f"{done.stdout[:500]}\n{done.stderr[-2000:]}")
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    asked = {address for address in re.findall(r'"url":"(https?://[^"]+)"', asked)}
    return json.loads(title[1].replace("&amp;", "&")), complaints, asked


def first_pixel(path):
    """Red, green and blue; of the first pixel no filter of PNG changes anything."""
    data = path.read_bytes()
    body = b"".join(data[match.end():match.end() + int.from_bytes(data[match.start() - 4:
                    match.start()], "big")] for match in re.finditer(b"IDAT", data))
    return tuple(zlib.decompressobj().decompress(body, 4)[1:])


def find_browser():
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or subprocess.run([browser, "--version"], capture_output=True,
                                         check=False).returncode != 0:
        raise harness.Skipped("Debian's package chromium is not installed, or does not start")
    return browser


def case_a_browser_opens_the_page_without_a_complaint():
    browser = find_browser()
    first, second, folder = (harness.scratch / name for name in ("first", "second", "page"))
    folder.mkdir()
    for out, units in ((first, 16), (second, 24)):
        train_well(small_cfg(), "--set", "train.steps=30", "--set", "train.eval_every=1",
                   "--set", f"model.layers[4].dense.units={units}", "--set", "comm.overlap=off",
                   "--set", "report.price_per_hour=0.0001",  # many samples per dollar
                   "--out", out, ranks=2,
                   env={"DP_FAULT": "slow:ms=20"})  # long enough for windows of a tenth of a second
    report_well(first, second)
    page = page_of(first)
    (folder / "copy.html").write_text(page.replace("</body>", PROBE + "</body>"))
    pixels = {}
    for width, dark in ((390, False), (1400, True)):
        told, complaints, asked = browse(browser, folder, width, dark)
        same((complaints, told["wide"], told["unnamed"]), ([], 0, 0), f"at {width}: {told}")
        same((told["ragged"], told["cut"]), (0, []), f"tables, and texts that are cut, at {width}")
        same(told["beyond"], [], f"figures wider than their tile, at {width}")
        asked = {address for address in asked if not OF_BROWSER.match(address)}
        same(asked, set(), "addresses that were asked for")
        check(len(told["values"]) == 8 and all(told["values"]), f"charts show no values: {told}")
        check(told["values"][1].startswith("step 1: train 2."), f"{told['values']}")
        pixels[dark] = first_pixel(folder / "shot.png")
    check(sum(pixels[True]) < 200 < 600 < sum(pixels[False]), f"no two themes: {pixels}")
    # A page that does complain, and ask, is found out.
    broken = page.replace("</body>", '<img src="http://127.0.0.1:9/x"><script>a.b()</script>'
                          + PROBE + "</body>")
    (folder / "copy.html").write_text(broken)
    complaints = browse(browser, folder, 390, False)[1]
    check(any("a is not defined" in line for line in complaints), f"not found: {complaints}")
    check(any("Content Security Policy" in line for line in complaints), f"{complaints}")


if __name__ == "__main__":
    harness.main(globals())
