"""A line chart as SVG, like those of runtime/report/page/chart.c, with its values for the page's
script to show. Ranks may stand on a logarithmic axis, and then rates do, too: ideal scaling is a
straight line either way.
"""
import dataclasses
import html
import json
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 340, 200, 50, 12, 10, 34  # in units of the drawing
PIECES = 5
MOST_COLOURS = 8


@dataclasses.dataclass
class Series:
    """Points from left to right. colour: 0 to MOST_COLOURS - 1; None: an ideal, without dots.
    low, high: whiskers, or None. projected: not measured; whiskers are then a band."""
    name: str
    xs: list
    ys: list
    colour: int
    low: list = None
    high: list = None
    projected: bool = False

    @property
    def style(self):
        return "ideal" if self.colour is None else f"s{self.colour}" + (
            " projected" if self.projected else "")


@dataclasses.dataclass
class Chart:
    """log_x, log_y: axes in powers of two, and of ten."""
    id: str
    title: str
    unit: str
    summary: str
    series: list
    log_x: bool = False
    log_y: bool = False
    at: str = "ranks"


def round_step(span, most):
    """The distance of round numbers that cut a span into at most so many pieces."""
    power = 10.0 ** math.floor(math.log10(span / most))
    digit = span / most / power
    return power * next(d for d in (1.0, 2.0, 5.0, 10.0) if digit <= d * (1 + 1e-12) or d == 10.0)


def short(value):
    """A number on an axis: 12k, 0.05."""
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{sign}"
    return f"{value:.3g}"


class Frame:
    """Where the axes begin and end, and what stands on them."""

    def __init__(self, chart):
        xs = [x for s in chart.series for x in s.xs]
        ys = [y for s in chart.series for row in (s.ys, s.low or (), s.high or ()) for y in row]
        self.log_x, self.log_y = chart.log_x, chart.log_y and min(ys) > 0.0
        self.x0, self.x1 = min(xs), max(xs)
        if self.x1 == self.x0:
            self.x1 = 2 * self.x0
        if self.log_y:
            self.y0, self.y1 = min(ys) / 1.15, max(ys) * 1.15
            self.rows = self.log_rows()
        else:
            low, high = min(0.0, *ys), max(ys)
            high = high if high > low else low + 1.0
            step = round_step(high - low, PIECES)
            self.y0, self.y1 = math.floor(low / step) * step, math.ceil(high / step) * step
            count = round((self.y1 - self.y0) / step)
            self.rows = [round(self.y0 + i * step, 12) for i in range(count + 1)]
        self.columns = self.places_of_ranks(sorted(set(xs)))

    def log_rows(self):
        decades = range(math.floor(math.log10(self.y0)), math.ceil(math.log10(self.y1)) + 1)
        for digits in ((1, 2, 5), (1, 3), (1,)):
            rows = [d * 10.0 ** k for k in decades for d in digits]
            rows = [row for row in rows if self.y0 <= row <= self.y1]
            if len(rows) <= PIECES + 2:
                break
        return rows

    def places_of_ranks(self, xs):
        """Those that have room for their number."""
        kept = []
        for x in reversed(xs):
            if not kept or self.x(kept[-1]) - self.x(x) >= 22:
                kept.append(x)
        return kept

    def x(self, value):
        scale = math.log2 if self.log_x else float
        share = (scale(value) - scale(self.x0)) / (scale(self.x1) - scale(self.x0))
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        scale = math.log10 if self.log_y else float
        share = (scale(value) - scale(self.y0)) / (scale(self.y1) - scale(self.y0))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def grid(chart, frame):
    out = []
    for value in frame.rows:
        y = frame.y(value)
        out.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/><text x="{LEFT - 6}" '
                   f'y="{y + 4:.1f}" text-anchor="end">{short(value)}{chart.unit}</text>')
    for value in frame.columns:
        out.append(f'<text x="{frame.x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" '
                   f'text-anchor="middle">{short(value)}</text>')
    out.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{chart.at}</text>'
               f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    return "".join(out)


def band(series, frame):
    """Between low and high, along the line."""
    edge = [*zip(series.xs, series.low), *reversed([*zip(series.xs, series.high)])]
    path = "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in edge)
    return f'<path class="band s{series.colour}" d="M{path}Z"/>'


def line(series, frame):
    places = [(frame.x(x), frame.y(y)) for x, y in zip(series.xs, series.ys)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    out = [f'<path class="line {series.style}" d="M{path}"/>']
    if series.colour is None:
        return out[0]
    if series.projected:
        return band(series, frame) + out[0]
    for x, low, high in zip(series.xs, series.low or (), series.high or ()):
        if high > low:
            out.append(f'<path class="line {series.style}" d="M{frame.x(x):.1f} '
                       f'{frame.y(low):.1f}V{frame.y(high):.1f}"/>')
    out += [f'<circle class="dot {series.style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
            for x, y in places]
    return "".join(out)


def caption(chart):
    keys = "".join(f' <span class="key"><i class="{s.style}"></i>{html.escape(s.name)}</span>'
                   for s in chart.series) if len(chart.series) > 1 else ""
    return f'<figcaption id="{chart.id}-title"><b>{html.escape(chart.title)}</b>{keys}</figcaption>'


def drawn(chart):
    """A <figure>. Where no series has a point it says so."""
    chart.series = [series for series in chart.series if series.xs]
    if not any(series.colour is not None for series in chart.series):
        return f'<figure class="chart">{caption(chart)}<p class="none">no values</p></figure>\n'
    frame = Frame(chart)
    values = html.escape(json.dumps([[s.name, s.xs, [float(f"{y:.6g}") for y in s.ys]]
                                     for s in chart.series]), quote=True)
    return (f'<figure class="chart">{caption(chart)}<svg id="{chart.id}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" '
            f'aria-labelledby="{chart.id}-title" aria-describedby="{chart.id}-text" '
            f'data-box="{LEFT} {TOP} {WIDTH - RIGHT} {HEIGHT - BOTTOM}" '
            f'data-range="{frame.x0} {frame.x1} {frame.y0:.9g} {frame.y1:.9g}" '
            f'data-unit="{chart.unit}" data-at="{chart.at}"'
            f'{" data-scale=log" if frame.log_x else ""} data-series="{values}">'
            f'{grid(chart, frame)}{"".join(line(s, frame) for s in chart.series)}</svg>'
            f'<p class="values" aria-live="polite"></p>'
            f'<p id="{chart.id}-text" class="unseen">{html.escape(chart.summary)}</p></figure>\n')
