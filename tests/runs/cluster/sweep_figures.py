"""ddp_sweep without runs: its plan, its figures, its page, and prices."""
import sys

import harness
from harness import ROOT, check, close, same

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "launch"))
import report_page
from sweep import options, page, plan, prices, results, table
from sweep.failure import Failure


# ---- plan and figures ----


def arguments(*words):
    args = options.parse(["m.cfg", "--out", "x", *words], "1")
    args.model_path, args.hosts = "m.cfg", {}
    return args


def case_values_of_lists_are_told_apart():
    for text, values in (("ring,hier:inner=shm,outer=ring,tree",
                          ["ring", "hier:inner=shm,outer=ring", "tree"]),
                         ("[0.9, 0.99],[0.8, 0.9]", ["[0.9, 0.99]", "[0.8, 0.9]"]),
                         ("'a,b',c", ["'a,b'", "c"]), ("1", ["1"]), ("1,", ["1", ""])):
        same(options.split_values(text), values, f"values of {text}")


def case_runs_are_interleaved_and_each_has_a_folder_of_its_own():
    args = arguments("--ranks", "1,2,4", "--mode", "both", "--repeat", "3", "--set",
                     "optimizer.betas=[0.9, 0.99],[0.9, 0.9]", "--strategy",
                     "hier:inner=shm,outer=ring,hier:inner=shm,outer=tree")
    points = plan.points_of(args, {"strategy": "auto", "compressor": "none", "global_batch": 8})
    runs = plan.order_of(points, args.repeat)
    same((len(points), len(runs), len({run.name for run in runs})), (72, 60, 60), "how many")
    same([run.repeat for run in runs], [1] * 20 + [2] * 20 + [3] * 20, "repeats")
    heads = [runs[at] for at in (0, 20, 40)]
    same(len({(run.ranks, run.overrides()[0], run.settings) for run in heads}), 3, "beginnings")
    check(all(set(run.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.=-") for run in runs),
          f"names: {runs[0].name}")
    words = plan.flags_of(runs[0], args)
    check(words[0] == "m.cfg" and "train.global_batch=8" in words and "--steps" in words, words)


def point(ranks, rate, mode="strong", **more):
    base = {"ranks": ranks, "mode": mode, "strategy": "ring", "compressor": "none", "batch": 64,
            "global_batch": 64 * (ranks if mode == "weak" else 1), "set": [], "exit_code": None,
            "error": None, "status": "finished", "samples_per_second": rate, "factors": {},
            "scaling_efficiency": 0.5, "exposed_share": 0.1, "rank_spread": 0.0,
            "samples_per_dollar": None}
    return {**base, **more}


def case_curves_have_medians_efficiencies_and_a_knee():
    points = [point(1, rate) for rate in (90, 100, 130)]
    points += [point(2, 180), point(4, 280), point(8, 300),
               point(16, None, status="failed", exit_code=69, error="why")]
    curve, = results.curves_of(points)
    places = {place["ranks"]: place for place in curve["places"]}
    same([places[p]["samples_per_second"] for p in (1, 2, 4, 8, 16)], [100, 180, 280, 300, None],
         "medians")
    close(places[1]["noise"], 0.4, 1e-9, "noise")
    close(places[4]["efficiency"], 0.7, 1e-9, "efficiency")
    close(places[8]["cost_factor"], 8 / 3, 1e-9, "cost")
    close(places[4]["gain"], 100 / (2 * 90), 1e-9, "gain of the third and fourth rank")
    # 4 ranks gain 56 % of the ideal, 8 only 20 / (4 x 70).
    same((curve["knee"]["ranks"], curve["knee"]["next"]), (4, 8), "the knee")
    results.add_strong_efficiency(points, [curve])
    close(points[4]["strong_efficiency"], 0.7, 1e-9, "strong efficiency")
    text = "\n".join(table.lines_of([curve], 4))
    for part in ("knee: 4 ranks; going on to 8", "16 failed with exit code 69: why", "2.80 x",
                 "with more than 4 ranks they share the 4 cores"):
        check(part in text, f"no {part!r} in\n{text}")


def case_a_curve_without_one_rank_has_no_efficiency_but_a_knee():
    curve, = results.curves_of([point(2, 100, "weak"), point(4, 190, "weak")])
    same([place["efficiency"] for place in curve["places"]], [None, None], "efficiency")
    same((curve["knee"]["ranks"], curve["knee"]["reached"]), (4, False), "the knee")
    same(results.knee_of([{"samples_per_second": 5, "gain": None, "ranks": 1}]), None, "of one")
    # A single rank serves both curves, and weak points have no strong efficiency.
    points = [point(1, 100), point(1, 100, "weak"), point(2, 180, "weak")]
    results.add_strong_efficiency(points, results.curves_of(points))
    same([p["strong_efficiency"] for p in points], [1.0, 1.0, None], "strong efficiency")


def case_figures_of_a_run_survive_what_is_missing():
    found = results.figures({"samples_per_second": "fast", "ranks": [{"step_ms": {"input": 1.0}},
                                                                    {"step_ms": None}, 3]})
    same((found["samples_per_second"], found["exposed_share"], found["rank_spread"]),
         (None, 0.0, 2.0), "figures")
    same(results.figures({})["rank_spread"], None, "nothing")


# ---- the page, and prices ----


def made_up():
    """sweep.json's points of 10 strategies on up to 64 ranks, with one that failed."""
    points = []
    for strategy in ("ring", "<b>&\"'", *"abcdefgh"):
        for ranks in (1, 2, 4, 8, 16, 32, 64):
            step = {"forward": 1.0, "exposed_comm": 0.1 * ranks}
            more = {"step_ms": step, "used_strategy": "ring", "repeat": 1, "seconds": 2.0,
                    "run": f"points/{len(points)}", "hosts": [f"h{ranks // 32}"],
                    "bound": "compute"}
            points.append(point(ranks, 1000 * ranks ** 0.9, strategy=strategy, **more))
    points[-1].update(status="failed", exit_code=69, error="no <i>way</i>",
                      samples_per_second=None, step_ms={})
    return points


def page_of(points, comparison=None, curves=None):
    curves = curves or results.curves_of(points)
    told = {"points": points, "model": "<m>.cfg", "steps": 200}
    return page.text_of(told, curves, comparison, ROOT / "runtime/report/page/page.html",
                        lambda run: run == "points/1", 2)


def case_the_page_shows_all_and_nothing_of_a_text_is_markup():
    text = page_of(made_up())
    for part in ("&lt;m&gt;.cfg", "failed with exit code 69: no &lt;i&gt;way&lt;/i&gt;",
                 '<a href="points/1/report.html">1</a>', "The 8 fastest of 10 curves", "ideal",
                 "no knee up to 64 ranks", "69 finished, 1 failed", "exposed communication"):
        check(part in text, f"the page has no {part!r}")
    for outside in ("<b>&", 'src="http', 'href="http', "url(", "@import", "fetch(", "<m>",
                    "<i>way"):
        check(outside not in text, f"the page has {outside!r}")
    nothing = page_of([point(1, None, status="pending", run="points/1", repeat=1, seconds=None,
                             used_strategy=None)])
    check("no run has finished yet" in nothing and "no values" in nothing, "a page of nothing")


def case_the_page_shows_the_time_to_the_target_for_each_batch():
    def reached(ranks, batch, seconds):
        return point(ranks, 100.0, batch=batch, global_batch=batch, seconds_to_target=seconds,
                     test_accuracy=0.9, run=f"points/{ranks}-{batch}", repeat=1, seconds=1.0,
                     used_strategy="ring")

    points = [reached(1, 64, 20.0), reached(1, 256, 12.0), reached(2, 64, 11.0),
              reached(2, 256, None)]
    text = page_of(points)
    for part in ("1 rank, ring: from 20 s with batch 64 to 12 s with 256",
                 "2 ranks, ring: from 11 s with batch 64 to 11 s with 64", "not reached",
                 'data-at="global batch"'):
        check(part in text, f"the page has no {part!r}")
    check("chart-target" not in page_of([reached(1, 64, None)]), "a chart where no run got there")


def projected(curves):
    """The same, of which one is projected, and one is not for some reason."""
    rows = [{"ranks": ranks, "samples_per_second": 900.0 * ranks, "step_ms": 10.0, "low_ms": 8.0,
             "high_ms": 12.5, "efficiency": 0.9, "strategy": "ring"} for ranks in (64, 256, 1024)]
    curves[0]["projection"] = {"from": "points/p64", "rows": rows, "problem": None}
    curves[1]["projection"] = {"from": None, "rows": None, "problem": "<none> has finished"}
    return curves


def case_a_projected_curve_has_a_line_with_a_band():
    curves = projected(results.curves_of(made_up()))
    text = page_of(made_up(), curves=curves)
    same(text.count('class="band s'), 2, "bands: of samples/s and of the efficiency")
    for part in ("ring, projected", ".band.s0 { fill: var(--s0); }",
                 "Projected from p64, not measured", "921,600",
                 "Not projected: &lt;none&gt; has finished"):
        check(part in text, f"the page has no {part!r}")
    lines = table.lines_of(curves, None)
    check(" 1,024     921,600     737,280   1,152,000 ring" in lines, "\n".join(lines))
    check("not projected: <none> has finished" in lines, "\n".join(lines))
    check('class="band' not in page_of(made_up()), "a band where nothing is projected")


def case_a_browser_opens_the_page_without_a_complaint():
    browser, folder = report_page.find_browser(), harness.scratch
    text = page_of(made_up(), curves=projected(results.curves_of(made_up())))
    text = text.replace("</body>", report_page.PROBE + "</body>")
    (folder / "copy.html").write_text(text)
    pixels = {}
    for width, dark in ((390, False), (1400, True)):
        told, complaints, asked = report_page.browse(browser, folder, width, dark)
        same((complaints, told["wide"], told["unnamed"]), ([], 0, 0), f"at {width}: {told}")
        same({a for a in asked if not report_page.OF_BROWSER.match(a)}, set(), "addresses")
        # Five charts, each pointed at in its middle and read from its begin.
        same(len(told["values"]), 10, f"values in {told}")
        check(told["values"][0].startswith("ranks 16: ") and told["values"][1].startswith(
            "ranks 1: ") and "1,000" in told["values"][1], f"{told['values']}")
        pixels[dark] = report_page.first_pixel(folder / "shot.png")
    check(sum(pixels[True]) < 200 < 600 < sum(pixels[False]), f"no two themes: {pixels}")


def case_prices_say_which_machine_to_rent():
    file = harness.scratch / "prices.yaml"
    file.write_text('# $ an hour\nsmall: 0.5\n"big one": {price: 4, hosts: "gpu-*"} # pattern\n')
    machines = prices.read(file)
    same([(m.name, m.price, m.hosts) for m in machines],
         [("small", 0.5, "small"), ("big one", 4.0, "gpu-*")], "machines")
    small = [point(1, 100, hosts=["small"]), point(2, 190, hosts=["small"])]
    big = [point(1, 900, hosts=["gpu-1"]), point(2, 2000, hosts=["gpu-1", "gpu-2"])]
    same(prices.machine_of(machines, None, ["gpu-1", "gpu-2"]).name, "big one", "by pattern")
    same(prices.machine_of(machines, "small", ["x"]).name, "small", "by name")
    prices.add_to_points(small, machines[0])
    close(small[1]["samples_per_dollar"], 190 * 3600 / 0.5, 1e-9, "samples per dollar")
    told = prices.compare(machines, [(None, results.curves_of(small)),
                                     (None, results.curves_of(big))])
    same([(r["machine"], r["ranks"], r["measured"]) for r in told["rows"]],
         [("small", 2, True), ("big one", 2, True)], "side by side")
    close(told["rows"][1]["samples_per_dollar"], 2000 * 3600 / (4 * 2), 1e-9, "of two nodes")
    check("rent small" in told["rent"] and "52 % more than big one" in told["rent"], told["rent"])
    check("rent small" in page_of(made_up(), told), "the page does not say so")
    check(all(len(line) <= 100 for line in prices.lines_of(told)), "wide lines")
    # On a machine that the file does not have, nothing is claimed to be measured.
    told = prices.compare(machines, [(None, results.curves_of([point(1, 5, hosts=["x"])]))])
    check(told["assumed"] and not any(r["measured"] for r in told["rows"])
          and "if all types are as fast" in told["rent"], f"{told}")
    for text, part in (("a: 0\n", ":1: 0: no price"), ("a 1\n", "expected NAME: DOLLARS"),
                       ("a: 1\na: 2\n", "twice"), ("", "no machine type"),
                       ("a: {price: 1, host: x}\n", "expected {price")):
        file.write_text(text)
        try:
            prices.read(file)
            check(False, f"this is read: {text}")
        except Failure as failure:
            check(part in str(failure) and failure.code == 78, f"{failure}")


if __name__ == "__main__":
    harness.main(globals())
