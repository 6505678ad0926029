/*
 * chart.h - a line chart as SVG, with its values for the page's script to show.
 *
 * The SVG is our own: libraries that draw charts are ten times the page and draw nothing without a
 * script (d3, Plotly) or on a canvas, which no screen reader reads (uPlot, Chart.js), and gnuplot
 * would be a process that starts while a run trains.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_CHART_H
#define DP_RUNTIME_REPORT_PAGE_CHART_H

#include <stdbool.h>

#include "runtime/report/page/html.h"

enum { DP_CHART_SERIES = 3 };

/* Points from left to right. y may be NaN: the line has a gap there. */
struct dp_chart_series {
    const char *name;    /* our own text */
    const double *x, *y; /* [count]; borrowed */
    int count;
    bool dots; /* a dot at each point: of few that stand apart */
};

struct dp_chart {
    const char *id, *title, *unit; /* our own texts; unit: " %", "" */
    const char *summary;           /* our own text: what a screen reader says of it */
    bool from_zero;                /* the y axis begins at 0 */
    struct dp_chart_series series[DP_CHART_SERIES];
    int series_count;
    const char *at;  /* our own text: what x counts; NULL: "step" */
    double from, to; /* that the x axis has at least; both 0: the points say */
};

/* Adds a <figure>. Where no series has a point it says so. */
void dp_chart_add(struct dp_html *html, const struct dp_chart *chart);

/* The distance of round numbers (1, 2 or 5 times a power of ten) that cut `range`, above 0, into
 * at most `most` pieces. */
double dp_chart_step(double range, int most);

#endif
