"""The table on the terminal: a block for each curve, at most 100 columns."""
import textwrap

from sweep import results

COLUMNS = 100
BUSY = 0.1  # share of the time that a rank waits for its core
HEADINGS = (("ranks", 6), ("batch", 8), ("runs", 5), ("samples/s", 11), ("+-", 7), ("speed-up", 9),
            ("eff.", 8), ("own eff.", 9), ("exposed", 8), ("spread", 8), ("samples/$", 11))


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def rate(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def big(value):
    """Samples per dollar: 5,938 M."""
    return "-" if value is None else f"{value / 1e6:,.3g} M" if value < 1e9 else \
        f"{value / 1e6:,.0f} M"


def times(value):
    return "-" if value is None else f"{value:.2f} x"


def noise(value):
    """Half of (highest - lowest), as a share of the median."""
    return "" if value is None else f"{50 * value:.1f} %"


def title_of(curve):
    """Of a block, and of a line in a chart."""
    batch = (f"global batch {curve['batch']:,}" if curve["mode"] == "strong"
             else f"{curve['batch']:,} rows a rank")
    return ", ".join([f"{curve['mode']} scaling, {batch}", f"strategy {curve['strategy']}",
                      f"compressor {curve['compressor']}",
                      *(f"{key}={value}" for key, value in curve["set"])])


def wrapped(text, indent="  "):
    """Its lines; `indent` is that of all but the first."""
    return textwrap.wrap(text, COLUMNS, subsequent_indent=indent, break_long_words=True,
                         drop_whitespace=True) or [""]


def cells(place):
    runs = (str(place["finished"]) if place["finished"] == place["runs"]
            else f"{place['finished']}/{place['runs']}")
    return [str(place["ranks"]), f"{place['global_batch']:,}", runs,
            rate(place["samples_per_second"]), noise(place["noise"]), times(place["speedup"]),
            percent(place["efficiency"]), percent(place["scaling_efficiency"]),
            percent(place["exposed_share"]), percent(place["rank_spread"]),
            big(place["samples_per_dollar"])]


def failure_of(place):
    return (f"{place['failed']} of {place['runs']} runs failed" if place["runs"] > 1 else
            "failed") + f" with exit code {place['exit_code']}: {place['error']}"


def knee_text(curve):
    """How far scaling is worth it, in a sentence, or None."""
    knee, least = curve["knee"], f"{100 * results.KNEE:.0f} %"
    if knee is None:
        return None
    if knee["reached"]:
        if knee["gain"] <= 0.0:
            return (f"knee: {knee['ranks']} rank{'s' if knee['ranks'] > 1 else ''}; with "
                    f"{knee['next']} it is no faster")
        return (f"knee: {knee['ranks']} rank{'s' if knee['ranks'] > 1 else ''}; going on to "
                f"{knee['next']} brings {percent(knee['gain'])} of the ideal gain (less than "
                f"{least})")
    return (f"no knee up to {knee['ranks']} ranks: each step brings at least {least} of the ideal "
            "gain")


def projected_lines(curve):
    """What --project says of it."""
    told = curve.get("projection")
    if told is None:
        return []
    if told["rows"] is None:
        return wrapped(f"not projected: {told['problem']}")
    lines = wrapped(f"projected from {told['from'].rpartition('/')[2]} (docs/projection.md), "
                    "samples/s, from and to:")
    for row in told["rows"]:
        middle, low, high = (rate(row["samples_per_second"] * row["step_ms"] / row[key])
                             for key in ("step_ms", "high_ms", "low_ms"))
        lines.append(f"{row['ranks']:6,} {middle:>11} {low:>11} {high:>11} {row['strategy']}"
                     [:COLUMNS])
    return lines


def block(curve):
    places = curve["places"]
    rows = [cells(place) for place in places]
    widths = [max(width - 1, *(len(row[i]) for row in rows))
              for i, (_, width) in enumerate(HEADINGS)]
    lines = [*wrapped(title_of(curve)),
             " ".join(name.rjust(width) for (name, _), width in zip(HEADINGS, widths)).rstrip()]
    for place, row in zip(places, rows):
        if place["finished"] > 0:
            lines.append(" ".join(cell.rjust(w) for cell, w in zip(row, widths)).rstrip())
        if place["failed"] > 0:
            lines += wrapped(f"{row[0].rjust(widths[0])} {failure_of(place)}",
                             " " * (widths[0] + 1))
        elif place["finished"] == 0:
            lines.append(f"{row[0].rjust(widths[0])} not run yet")
    sentence = knee_text(curve)
    return [*lines, *(wrapped(sentence) if sentence else []), *projected_lines(curve)]


def notes(curves, cores):
    """What a reader must know of the figures."""
    places = [place for curve in curves for place in curve["places"] if place["finished"] > 0]
    found = []
    crowded = sorted({p["ranks"] for p in places if cores and p["ranks"] > cores})
    if crowded:
        found.append(f"note: with more than {cores} rank{'s' if cores > 1 else ''} they share the "
                     f"{cores} core{'s' if cores > 1 else ''} of this machine: such figures are "
                     "not those of a larger machine")
    alone = [p["queued"] for p in places if p["queued"] is not None
             and (not cores or p["ranks"] <= cores)]
    if alone and max(alone) > BUSY:
        found.append(f"note: ranks with a core each waited up to {percent(min(max(alone), 1.0))} "
                     "of the time for it: something else runs on this machine, and the figures "
                     "suffer")
    threads = {p["threads"] for p in places if p["threads"]}
    if len(threads) > 1:
        found.append(f"note: ranks have {min(threads)} to {max(threads)} threads: efficiencies "
                     "compare different shares of the machine")
    return found


LEGEND = (
    "eff.: samples/s / (ranks x samples/s of one rank on this curve)",
    "own eff.: the run's scaling_efficiency, against one rank with a rank's rows in the same job",
    "exposed: waiting for gradients; spread: (slowest - fastest rank) / mean, of computing",
)


def lines_of(curves, cores):
    lines = []
    for curve in curves:
        lines += [*block(curve), ""]
    for text in (*LEGEND, *notes(curves, cores)):
        lines += wrapped(text)
    return lines
