#include "runtime/report/page/chart.h"

#include <math.h>
#include <stdio.h>

#include "runtime/report/figure_text.h"

/* Of the drawing, in its own units; the page scales it. */
enum { WIDTH = 340, HEIGHT = 200, LEFT = 50, RIGHT = 12, TOP = 10, BOTTOM = 34 };
enum { PIECES_X = 5, PIECES_Y = 5, FEW_POINTS = 1 };

struct frame {
    double x0, x1, y0, y1;
};

double dp_chart_step(double range, int most)
{
    const double rough = range / most, power = pow(10.0, floor(log10(rough)));
    const double digit = rough / power;

    return power * (digit <= 1.0 ? 1.0 : digit <= 2.0 ? 2.0 : digit <= 5.0 ? 5.0 : 10.0);
}

/* A number of the drawing. */
static double place_x(const struct frame *f, double x)
{
    return LEFT + (x - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct frame *f, double y)
{
    return HEIGHT - BOTTOM - (y - f->y0) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

static bool is_drawn(const struct dp_chart_series *s, int i)
{
    return isfinite(s->x[i]) && isfinite(s->y[i]) && fabs(s->y[i]) < 1e15;
}

/* Makes the axes begin and end at round numbers. False: there is nothing to draw. */
static bool find_frame(const struct dp_chart *chart, struct frame *f)
{
    double step;

    *f = (struct frame){(double)INFINITY, -(double)INFINITY, (double)INFINITY, -(double)INFINITY};
    for (int s = 0; s < chart->series_count; s++) {
        const struct dp_chart_series *series = &chart->series[s];
        for (int i = 0; i < series->count; i++) {
            if (is_drawn(series, i)) {
                f->x0 = fmin(f->x0, series->x[i]);
                f->x1 = fmax(f->x1, series->x[i]);
                f->y0 = fmin(f->y0, series->y[i]);
                f->y1 = fmax(f->y1, series->y[i]);
            }
        }
    }
    if (!(f->x1 >= f->x0)) {
        return false;
    }
    if (chart->to > chart->from) {
        f->x0 = fmin(f->x0, chart->from);
        f->x1 = fmax(f->x1, chart->to);
    }
    f->x1 = f->x1 > f->x0 ? f->x1 : f->x0 + 1.0;
    f->y0 = chart->from_zero ? fmin(0.0, f->y0) : f->y0;
    if (!(f->y1 > f->y0)) {
        const double around = fmax(fabs(f->y0) * 0.05, 1e-6);
        f->y1 = f->y0 + around;
        f->y0 -= chart->from_zero ? 0.0 : around;
    }
    step = dp_chart_step(f->y1 - f->y0, PIECES_Y);
    f->y0 = floor(f->y0 / step) * step;
    f->y1 = ceil(f->y1 / step) * step;
    return true;
}

static const char *counted(const struct dp_chart *chart)
{
    return chart->at != NULL ? chart->at : "step";
}

/* What the labels of an axis are printed in, so that they fit beside it. */
struct scale {
    double unit;
    const char *prefix;
};

/* Of numbers up to `largest`; below `plain` they stay as they are. */
static struct scale scale_of(double largest, double plain)
{
    static const struct scale scales[] = {
        {1.0, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}};
    size_t i = largest < plain ? 0 : 1;

    while (i > 0 && largest / scales[i].unit >= 1e4 && i + 1 < sizeof(scales) / sizeof(scales[0])) {
        i++;
    }
    return scales[i];
}

/* A label of an axis whose labels are so far apart. */
static const char *label_text(char text[DP_FIGURE_BYTES], double value, double apart,
                              const struct scale *scale)
{
    const double step = apart / scale->unit;
    const int decimals = step < 1.0 ? (int)ceil(-log10(step) - 1e-9) : 0;

    return decimals == 0 && scale->unit == 1.0 && fabs(value) >= 1000.0
               ? dp_figure_short(text, value)
               : dp_figure_fixed(text, value / scale->unit, decimals, scale->prefix);
}

static void add_grid(struct dp_html *h, const struct dp_chart *chart, const struct frame *f)
{
    const double step_y = dp_chart_step(f->y1 - f->y0, PIECES_Y);
    const double step_x =
        fmax(dp_chart_step(f->x1 - f->x0, PIECES_X), chart->at == NULL ? 1.0 : 0.0);
    const struct scale of_x = scale_of(fmax(fabs(f->x0), fabs(f->x1)), 1e4);
    const struct scale of_y = scale_of(fmax(fabs(f->y0), fabs(f->y1)), 1e5);
    const int rows = (int)lround((f->y1 - f->y0) / step_y);
    char text[DP_FIGURE_BYTES];
    double x = ceil(f->x0 / step_x) * step_x;

    for (int i = 0; i <= rows && i <= 2 * PIECES_Y; i++) {
        const double value = f->y0 + i * step_y, y = place_y(f, value);
        dp_html_print(h, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, WIDTH - RIGHT);
        dp_html_print(h, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s%s</text>", LEFT - 6,
                      y + 4.0, label_text(text, value, step_y, &of_y), chart->unit);
    }
    for (int i = 0; x <= f->x1 && i <= 2 * PIECES_X; i++, x += step_x) {
        dp_html_print(h, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                      place_x(f, x), HEIGHT - BOTTOM + 16, label_text(text, x, step_x, &of_x));
    }
    dp_html_print(h, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", WIDTH - RIGHT,
                  HEIGHT - 4, counted(chart));
    dp_html_print(h, "<path class=\"axis\" d=\"M%d %dH%d\"/>", LEFT, HEIGHT - BOTTOM,
                  WIDTH - RIGHT);
}

static void add_line(struct dp_html *h, const struct dp_chart_series *s, const struct frame *f,
                     int number)
{
    bool open = false;

    dp_html_print(h, "<path class=\"line s%d\" d=\"", number);
    for (int i = 0; i < s->count; i++) {
        if (is_drawn(s, i)) {
            dp_html_print(h, "%c%.1f %.1f", open ? 'L' : 'M', place_x(f, s->x[i]),
                          place_y(f, s->y[i]));
        }
        open = is_drawn(s, i);
    }
    dp_html_add(h, "\"/>");
    for (int i = 0; i < s->count; i++) {
        if (is_drawn(s, i) && (s->dots || s->count <= FEW_POINTS)) {
            dp_html_print(h, "<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", number,
                          place_x(f, s->x[i]), place_y(f, s->y[i]));
        }
    }
}

/* For the script: [[name, [x ...], [y ...]] ...] in an attribute; our own texts and numbers. */
static void add_values(struct dp_html *h, const struct dp_chart *chart)
{
    dp_html_add(h, " data-series='[");
    for (int n = 0; n < chart->series_count; n++) {
        const struct dp_chart_series *s = &chart->series[n];
        const char *comma = "";
        dp_html_print(h, "%s[\"%s\",[", n > 0 ? "," : "", s->name);
        for (int i = 0; i < s->count; i++) {
            if (is_drawn(s, i)) {
                dp_html_print(h, "%s%.9g", comma, s->x[i]);
                comma = ",";
            }
        }
        dp_html_add(h, "],[");
        comma = "";
        for (int i = 0; i < s->count; i++) {
            if (is_drawn(s, i)) {
                dp_html_print(h, "%s%.6g", comma, s->y[i]);
                comma = ",";
            }
        }
        dp_html_add(h, "]]");
    }
    dp_html_add(h, "]'");
}

static void add_legend(struct dp_html *h, const struct dp_chart *chart)
{
    dp_html_print(h, "<figcaption id=\"%s-title\"><b>%s</b>", chart->id, chart->title);
    for (int n = 0; n < chart->series_count; n++) {
        if (chart->series[n].count > 0 && chart->series_count > 1) {
            dp_html_print(h, " <span class=\"key\"><i class=\"s%d\"></i>%s</span>", n,
                          chart->series[n].name);
        }
    }
    dp_html_add(h, "</figcaption>");
}

void dp_chart_add(struct dp_html *html, const struct dp_chart *chart)
{
    struct frame f;

    dp_html_add(html, "<figure class=\"chart\">");
    add_legend(html, chart);
    if (!find_frame(chart, &f)) {
        dp_html_add(html, "<p class=\"none\">no values yet</p></figure>\n");
        return;
    }
    dp_html_print(html,
                  "<svg id=\"%s\" viewBox=\"0 0 %d %d\" role=\"img\" tabindex=\"0\" "
                  "aria-labelledby=\"%s-title\" aria-describedby=\"%s-text\"",
                  chart->id, WIDTH, HEIGHT, chart->id, chart->id);
    dp_html_print(html, " data-box=\"%d %d %d %d\" data-range=\"%.9g %.9g %.9g %.9g\"", LEFT, TOP,
                  WIDTH - RIGHT, HEIGHT - BOTTOM, f.x0, f.x1, f.y0, f.y1);
    dp_html_print(html, " data-unit=\"%s\" data-at=\"%s\"", chart->unit, counted(chart));
    add_values(html, chart);
    dp_html_add(html, ">");
    add_grid(html, chart, &f);
    for (int n = 0; n < chart->series_count; n++) {
        add_line(html, &chart->series[n], &f, n);
    }
    dp_html_print(html,
                  "</svg><p class=\"values\" aria-live=\"polite\"></p>"
                  "<p id=\"%s-text\" class=\"unseen\">%s</p></figure>\n",
                  chart->id, chart->summary);
}
