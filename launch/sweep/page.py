"""sweep.html: one page that holds all it shows, in the style of a run's report.html, whose
template it takes styles and script from."""
import html
import pathlib
import re

from sweep import results
from sweep.chart import MOST_COLOURS, Chart, Series, drawn
from sweep.failure import NOT_AVAILABLE, Failure
from sweep.table import big, cells, failure_of, knee_text, notes, percent, rate, times, title_of

PARTS = (("input", "input"), ("copy", "copy"), ("forward", "forward"), ("backward", "backward"),
         ("exposed_comm", "exposed communication"), ("optimizer", "optimizer"),
         ("checkpoint", "checkpoint"), ("other", "other"))
MORE_STYLE = """<style>
:root { --s3: #cc79a7; --s4: #8a6d00; --s5: #56a0d3; --s6: #8a8f98; --s7: #6a3d9a; }
@media (prefers-color-scheme: dark) {
  :root { --s3: #e39ac4; --s4: #d9c24a; --s5: #86cdf6; --s6: #a9b1bc; --s7: #b794e0; }
}
%s
.line.ideal { stroke: var(--soft); stroke-dasharray: 5 4; stroke-width: 1.25; }
i.ideal { background: var(--soft); }
.line.projected { stroke-dasharray: 2 3; }
.band { stroke: none; opacity: .18; }
i.projected { height: .3rem; opacity: .55; }
.failed { color: var(--bad); }
%s
</style>
""" % ("\n".join(f".line.s{i} {{ stroke: var(--s{i}); }} .dot.s{i} {{ fill: var(--s{i}); }} "
                 f"i.s{i} {{ background: var(--s{i}); }}" for i in range(3, MOST_COLOURS)),
       "\n".join(f".band.s{i} {{ fill: var(--s{i}); }}" for i in range(MOST_COLOURS)))


def escape(text):
    return html.escape(str(text), quote=True)


def template_parts(path):
    """(style, script) of the template."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}: build and install anew", NOT_AVAILABLE) from error
    parts = [re.search(rf"<{tag}>.*?</{tag}>\n", text, re.S) for tag in ("style", "script")]
    return [part[0] for part in parts]


def section(name, title, body):
    return (f'<section aria-labelledby="h-{name}">\n<h2 id="h-{name}">{title}</h2>\n{body}'
            "</section>\n")


def table(caption, headings, rows, text_columns=()):
    """rows: lists of HTML."""
    head = "".join(f'<th scope="col"{" class=text" if i in text_columns else ""}>{escape(name)}'
                   "</th>" for i, name in enumerate(headings))
    lines = []
    for row in rows:
        first, *others = row
        lines.append(f'<tr><th scope="row">{first}</th>' + "".join(
            f'<td{" class=text" if i + 1 in text_columns else ""}>{cell}</td>'
            for i, cell in enumerate(others)) + "</tr>")
    return (f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
            f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>\n"
            + "\n".join(lines) + "</tbody></table></div>\n")


# ---- charts ----


def short_names(curves, batch=True):
    """What curves of a mode differ in, for legends; without `batch` where that is on an axis."""
    fields = {"strategy": lambda c: c["strategy"], "compressor": lambda c: c["compressor"]}
    if batch:
        fields["batch"] = lambda c: f"batch {c['batch']}"
    for i in range(len(curves[0]["set"])):
        fields[f"set{i}"] = lambda c, i=i: "=".join(map(str, c["set"][i])).rpartition(".")[2]
    differing = [read for read in fields.values() if len({read(c) for c in curves}) > 1]
    return [", ".join(read(c) for read in differing) or c["strategy"] for c in curves]


def series_of(curves, names, key, factor=1.0, whiskers=False):
    found = []
    for colour, (curve, name) in enumerate(zip(curves, names)):
        places = [p for p in curve["places"] if p.get(key) is not None]
        found.append(Series(
            name, [p["ranks"] for p in places], [p[key] * factor for p in places], colour,
            [p["lowest"] * factor for p in places] if whiskers else None,
            [p["highest"] * factor for p in places] if whiskers else None))
    return found


def projected_rows(curve):
    return results.dig(curve, "projection", "rows") or []


def one_rank_share(curve, ranks):
    """What samples/s on so many ranks are multiplied by for the efficiency in percent; None where
    one rank was not measured."""
    first = curve["places"][0]
    one = first["samples_per_second"] if first["ranks"] == 1 else None
    return 100.0 / (ranks * one) if one else None


def projected(curves, names, scale_of):
    """A line and a band for each curve that has a projection. scale_of: of a curve and a number of
    ranks, what samples/s are multiplied by; None where that is not known."""
    found = []
    for colour, (curve, name) in enumerate(zip(curves, names)):
        rows = [(row, scale_of(curve, row["ranks"])) for row in projected_rows(curve)]
        rows = [(row, scale) for row, scale in rows if scale is not None]
        values = [[row["samples_per_second"] * scale * row["step_ms"] / row[end]
                   for row, scale in rows] for end in ("step_ms", "high_ms", "low_ms")]
        found.append(Series(f"{name}, projected", [row["ranks"] for row, _ in rows], values[0],
                            colour, values[1], values[2], True))
    return [series for series in found if series.xs]


def ideals(curves):
    """A line for each batch and setting: from the best rate of a rank at the smallest size on."""
    groups = {}
    for curve in curves:
        places = [p for p in curve["places"] if p["samples_per_second"] is not None]
        if places:
            first = places[0]
            last = max(row["ranks"] for row in [*curve["places"], *projected_rows(curve)])
            key = (curve["batch"], str(curve["set"]))
            pace = first["samples_per_second"] / first["ranks"]
            known = groups.get(key)
            if known is None or pace > known[0]:
                groups[key] = (pace, first["ranks"], last)
    return [Series("ideal" if len(groups) == 1 else f"ideal, batch {key[0]}", [begin, end],
                   [pace * begin, pace * end], None)
            for key, (pace, begin, end) in groups.items() if end > begin]


def course(curves, key, text_of):
    """What a screen reader says of a chart."""
    words = []
    for curve, name in zip(curves, short_names(curves)):
        values = [p for p in curve["places"] if p.get(key) is not None]
        if values:
            words.append(f"{name}: from {text_of(values[0][key])} on {values[0]['ranks']} to "
                         f"{text_of(values[-1][key])} on {values[-1]['ranks']} ranks")
    return "; ".join(words)


CHARTS = (
    ("efficiency", "efficiency", "Efficiency against one rank", " %", 100.0, percent),
    ("exposed", "exposed_share", "Exposed communication, share of a step", " %", 100.0, percent),
    ("cost", "cost_factor", "Cost of a sample, against one rank", " x", 1.0, times),
    ("spread", "rank_spread", "Spread of the ranks, slowest - fastest", " %", 100.0, percent),
    ("dollar", "samples_per_dollar", "Samples per dollar", "", 1.0, big),
)


def charts(curves, mode):
    shown = sorted(curves, key=lambda c: -max((p["samples_per_second"] or 0.0)
                                              for p in c["places"]))[:MOST_COLOURS]
    names = short_names(shown)
    sizes = [p["ranks"] for c in shown for p in [*c["places"], *projected_rows(c)]]
    wide = max(sizes) > 8 * min(sizes)
    rates = (series_of(shown, names, "samples_per_second", whiskers=True)
             + projected(shown, names, lambda curve, ranks: 1.0))
    out = [drawn(Chart(f"chart-{mode}-rate", "Samples/s", "",
                       course(shown, "samples_per_second", rate), rates + ideals(shown), wide,
                       wide))]
    measured = [p["ranks"] for c in shown for p in c["places"]]
    for name, key, title, unit, factor, text_of in CHARTS:
        series = series_of(shown, names, key, factor)
        ends = sizes if name == "efficiency" else measured
        if name == "dollar" and not any(s.xs for s in series):
            continue
        if name == "efficiency":
            series += projected(shown, names, one_rank_share)
        if name in ("efficiency", "cost") and max(ends) > min(ends):
            whole = 100.0 if name == "efficiency" else 1.0
            series.append(Series("ideal", [min(ends), max(ends)], [whole, whole], None))
        out.append(drawn(Chart(f"chart-{mode}-{name}", title, unit, course(shown, key, text_of),
                               series, max(ends) > 8 * min(ends))))
    more = (f'<p class="soft">The {MOST_COLOURS} fastest of {len(curves)} curves are drawn; the '
            "tables have all.</p>\n" if len(curves) > MOST_COLOURS else "")
    return f'<div class="charts">\n{"".join(out)}</div>\n{more}'


def target_chart(curves):
    """Seconds to the target accuracy against the batch, a line for all that is alike but it."""
    lines = {}
    for curve in curves:
        for place in curve["places"]:
            if place["seconds_to_target"] is not None:
                name = f"{place['ranks']} rank{'s' if place['ranks'] > 1 else ''}"
                key = (place["ranks"], curve["strategy"], curve["compressor"], str(curve["set"]))
                lines.setdefault(key, (curve, name, {}))[2].setdefault(
                    place["global_batch"], place["seconds_to_target"])
    shown = sorted(lines.values(), key=lambda line: min(line[2].values()))[:MOST_COLOURS]
    if not shown:
        return ""
    names = [f"{name}, {short}" for (_, name, _), short in
             zip(shown, short_names([curve for curve, _, _ in shown], False))]
    series = [Series(name, sorted(times_at), [times_at[b] for b in sorted(times_at)], colour)
              for colour, (name, (_, _, times_at)) in enumerate(zip(names, shown))]
    sizes = [size for s in series for size in s.xs]
    wide = max(sizes) > 8 * min(sizes)
    course_text = "; ".join(f"{s.name}: from {s.ys[0]:.3g} s with batch {s.xs[0]} to "
                            f"{s.ys[-1]:.3g} s with {s.xs[-1]}" for s in series)
    return drawn(Chart("chart-target", "Time to the target accuracy", " s", course_text, series,
                       wide, at="global batch"))


def target_section(curves):
    """Where some run has reached report.target_accuracy; with those that have not."""
    chart = target_chart(curves)
    rows = [[escape(place["global_batch"]), escape(place["ranks"]), escape(title_of(curve)),
             "not reached" if place["seconds_to_target"] is None
             else f"{place['seconds_to_target']:.3g} s", percent(place["test_accuracy"])]
            for curve in curves for place in curve["places"] if place["finished"] > 0]
    rows.sort(key=lambda row: (int(row[0]), int(row[1])))
    return section("target", "Time to the target accuracy", '<p class="soft">Seconds from the '
                   "start of a run until an evaluation was at report.target_accuracy, medians over "
                   f'repeats.</p>\n<div class="charts" style="max-width:32rem">\n{chart}</div>\n'
                   + table("Each batch and number of ranks", (
                       "batch", "ranks", "curve", "to the target", "test accuracy"), rows, (2,))
                   ) if chart else ""


# ---- tables ----


def curve_table(curve):
    headings = ("ranks", "batch", "runs", "samples/s", "+-", "speed-up", "efficiency",
                "own efficiency", "exposed", "spread", "samples/$", "bound by")
    rows = []
    for place in curve["places"]:
        row = cells(place)
        if place["finished"] == 0:
            row = [row[0], row[1], row[2]] + ["-"] * 8
        why = escape(place["bound"] or "-")
        if place["failed"] > 0:
            why = f'<span class="failed">{escape(failure_of(place))}</span>'
        elif place["finished"] == 0:
            why = "not run yet"
        rows.append([*map(escape, row), why])
    sentence = knee_text(curve)
    return (table(title_of(curve), headings, rows, (11,))
            + (f"<p>{escape(sentence)}</p>\n" if sentence else "") + projection_table(curve))


def projection_table(curve):
    told = curve.get("projection")
    if told is None:
        return ""
    if told["rows"] is None:
        return f'<p class="soft">Not projected: {escape(told["problem"])}</p>\n'
    rows = [[str(row["ranks"]), rate(row["samples_per_second"]),
             *(f"{row[key]:.4g} ms" for key in ("step_ms", "low_ms", "high_ms")),
             percent(row["efficiency"]), escape(row["strategy"])] for row in told["rows"]]
    source = told["from"].rpartition("/")[2]
    return table(f"Projected from {source}, not measured", (
        "ranks", "samples/s", "step", "from", "to", "own efficiency", "strategy"), rows, (6,))


def bars(curve):
    """A step of each place, by its parts."""
    places = [p for p in curve["places"] if p["step_ms"]]
    longest = max((sum(p["step_ms"].values()) for p in places), default=0.0)
    lines = []
    for place in places:
        step, whole = place["step_ms"], sum(place["step_ms"].values())
        pieces = "".join(f'<i class="{key}" style="width:{100 * step.get(key, 0) / longest:.2f}%" '
                         f'title="{name}: {step.get(key, 0):.3g} ms"></i>' for key, name in PARTS)
        lines.append(f'<li><span class="who">{place["ranks"]} <span class="soft">rank'
                     f'{"s" if place["ranks"] > 1 else ""}</span></span><span class="bar">{pieces}'
                     f'</span><span class="sum">{whole:.3g} ms</span></li>')
    return (f"<h3>{escape(title_of(curve))}</h3>\n<ul class=\"bars\">\n" + "\n".join(lines)
            + "</ul>\n") if lines else ""


def lost(curves):
    """What each cause leaves of the efficiency, as measured inside of the runs."""
    names = (("contention", "contention"), ("input", "input"), ("exposed_comm", "exposed"),
             ("waiting", "waiting"), ("other", "other"))
    rows = [[escape(title_of(curve)), str(place["ranks"]), percent(place["scaling_efficiency"]),
             *(percent(place["factors"].get(key)) for key, _ in names)]
            for curve in curves for place in curve["places"]
            if place["ranks"] > 1 and place["finished"] > 0]
    return table("What each cause leaves of a run's own efficiency: their product is it",
                 ("curve", "ranks", "own efficiency", *(name for _, name in names)), rows) \
        if rows else ""


def step_section(curves):
    legend = "".join(f'<li><i class="{key}"></i>{name}</li>' for key, name in PARTS)
    body = "".join(bars(curve) for curve in curves)
    return (f'<ul class="legend" aria-label="parts of a step">{legend}</ul>\n{body}{lost(curves)}'
            if body else '<p class="none">no run has finished</p>\n')


def price_section(comparison):
    rows = [[escape(r["machine"]), f"{r['price_per_hour']:g}", escape(r["ranks"] or "-"),
             escape(r["nodes"] or "-"), rate(r["samples_per_second"]),
             big(r["samples_per_dollar"]),
             "yes" if r["measured"] else "assumed" if r["ranks"] else "no",
             escape(r["setting"] or "-")] for r in comparison["rows"]]
    return (f'<p class="verdict">{escape(comparison["rent"])}</p>\n'
            + table("Machine types by samples per dollar, each with the cheapest of its runs",
                    ("machine", "$/hour", "ranks", "nodes", "samples/s", "samples/$", "measured",
                     "setting"), rows, (7,)))


def run_table(points, has_page):
    rows, seen = [], set()
    for point in points:
        if point["run"] in seen:
            continue
        seen.add(point["run"])
        name = escape(point["run"].rpartition("/")[2])
        if has_page(point["run"]):
            name = f'<a href="{escape(point["run"])}/report.html">{name}</a>'
        status = point["status"] if point["status"] != "failed" else (
            f'<span class="failed">failed with exit code {point["exit_code"]}: '
            f'{escape(point["error"])}</span>')
        rows.append([name, str(point["repeat"]), rate(point["samples_per_second"]),
                     percent(point["scaling_efficiency"]), escape(point["used_strategy"] or "-"),
                     "-" if point["seconds"] is None else f"{point['seconds']:.1f} s", status])
    return table("All runs", ("run", "repeat", "samples/s", "own efficiency", "strategy used",
                              "took", "status"), rows, (6,))


# ---- the page ----


def tiles(curves):
    places = [(p, c) for c in curves for p in c["places"] if p["samples_per_second"] is not None]
    if not places:
        return '<p class="none">no run has finished yet</p>\n'
    best, of = max(places, key=lambda entry: entry[0]["samples_per_second"])
    shown = [("fastest", f"{rate(best['samples_per_second'])}",
              f"samples/s: {best['ranks']} ranks, {of['strategy']}, {of['compressor']}, batch "
              f"{best['global_batch']}")]
    for mode in ("strong", "weak"):
        known = [(p, c) for p, c in places if c["mode"] == mode and p["efficiency"] is not None]
        if known:
            most = max(p["ranks"] for p, _ in known)
            p, c = max((e for e in known if e[0]["ranks"] == most),
                       key=lambda e: e[0]["efficiency"])
            shown.append((f"{mode} efficiency", percent(p["efficiency"]),
                          f"the best on {most} ranks: {c['strategy']}, {c['compressor']}"))
    knee = of["knee"]
    if knee is not None:
        shown.append(("knee of the fastest curve", str(knee["ranks"]) if knee["reached"] else
                      f"none up to {knee['ranks']}", "ranks"))
    cheap = [e for e in places if e[0]["samples_per_dollar"] is not None]
    if cheap:
        p, c = max(cheap, key=lambda e: e[0]["samples_per_dollar"])
        shown.append(("cheapest", big(p["samples_per_dollar"]),
                      f"samples per dollar: {p['ranks']} ranks, {c['strategy']}"))
    return '<dl class="tiles">\n' + "\n".join(
        f'<div{" class=first" if i == 0 else ""}><dt>{escape(name)}</dt><dd>{escape(value)}</dd>'
        f'<dd class="unit">{escape(unit)}</dd></div>'
        for i, (name, value, unit) in enumerate(shown)) + "</dl>\n"


def mode_section(curves, mode, title, explained):
    own = [curve for curve in curves if curve["mode"] == mode]
    if not own:
        return ""
    return section(mode, title, f'<p class="soft">{explained}</p>\n{charts(own, mode)}'
                   + "".join(curve_table(curve) for curve in own))


KNEE_TEXT = (
    f"The knee of a curve is the last number of ranks up to which each step brought at least "
    f"{100 * results.KNEE:.0f} % of the ideal gain: of what the added ranks would bring if each "
    "were worth as much as one of those before. Figures are medians over repeats, whiskers and +- "
    "their range; ideal: as many times the rate of the smallest size as there are ranks. "
    "Efficiency, speed-up and cost are against one rank on the same curve, own efficiency is a "
    "run's scaling_efficiency: against one rank with a rank's rows, measured in the same job. "
    "Dotted lines with a band are projected, from and to, by --project: nothing has run there.")


def text_of(told, curves, comparison, template, has_page, cores):
    """The page. told: sweep.json's object; has_page: whether a run has a report.html."""
    style, script = template_parts(template)
    counts = {}
    for run, status in {p["run"]: p["status"] for p in told["points"]}.items():
        counts[status] = counts.get(status, 0) + 1
    state = ", ".join(f"{count} {status}" for status, count in counts.items())
    steps = f"{told['steps']} steps each" if told["steps"] else "as long as the model says"
    name = escape(told["model"])
    warned = "".join(f"<li>{escape(note.removeprefix('note: '))}</li>"
                     for note in notes(curves, cores))
    body = [
        f'<section class="missing" aria-label="notes"><ul>{warned}</ul></section>\n' if warned
        else "",
        section("summary", "In short", tiles(curves) + f'<p class="soft" '
                f'style="margin-top:1rem">{KNEE_TEXT} Point at a '
                "chart, or give it the focus and press the arrow keys, to read values.</p>\n"),
        section("prices", "Which machine to rent", price_section(comparison)) if comparison
        else "",
        mode_section(curves, "strong", "Strong scaling", "The global batch is the same for all "
                     "numbers of ranks."),
        mode_section(curves, "weak", "Weak scaling", "The rows of a rank are the same: the global "
                     "batch grows with the ranks."),
        target_section(curves),
        section("step", "Where the time of a step goes", step_section(curves)),
        section("runs", "Runs", run_table(told["points"], has_page)),
    ]
    return (HEAD.format(name=name, state=escape(f"{state}; {steps}"), style=style,
                        more=MORE_STYLE)
            + "".join(body) + "</main>\n<footer class=\"soft\"><p>Made by ddp_sweep.</p></footer>\n"
            + script + "</body>\n</html>\n")


HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<!-- Nothing is fetched: all that the page shows is in it. -->
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
<title>Sweep of {name}</title>
{style}{more}</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header>
<h1>Sweep of {name}</h1>
<p>{state}</p>
</header>
<main id="main">
"""
