#include "runtime/report/layers/page_layers.h"

#include <math.h>
#include <string.h>

#include "runtime/report/figure_text.h"
#include "runtime/report/layers/layer_order.h"

/* Of the drawing, in its own units; the page scales it. */
enum { WIDTH = 560, HEIGHT = 280, LEFT = 76, RIGHT = 24, TOP = 12, BOTTOM = 40 };

static const double named = 0.05; /* share of the time of a layer whose dot has its name */
static const double letter = 6.6, line_height = 13.0; /* of these names, about */

/* Where a name stands: its middle, and its base line. */
struct place {
    double x, y, half;
};

/* Both axes are logarithms to base ten. */
struct frame {
    double x0, x1, y0, y1;
};

static double place_x(const struct frame *f, double x)
{
    return LEFT + (log10(x) - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct frame *f, double y)
{
    return HEIGHT - BOTTOM - (log10(y) - f->y0) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

/* Operations for each byte of memory; NaN: the layer is not drawn. */
static double intensity(const struct dp_run_layer *l)
{
    return l->gflops > 0.0 && l->gbs > 0.0 && isfinite(l->gflops / l->gbs) ? l->gflops / l->gbs
                                                                           : (double)NAN;
}

/* From the layers and the peak, in whole powers of ten. False: there is nothing to draw. */
static bool find_frame(const struct dp_run_summary *s, double peak, double copy, struct frame *f)
{
    double least_x = peak / copy, most_x = least_x, least_y = peak;
    bool any = false;

    for (int i = 0; i < s->layer_count; i++) {
        const double x = intensity(&s->layers[i]);
        if (isfinite(x)) {
            least_x = fmin(least_x, x);
            most_x = fmax(most_x, x);
            least_y = fmin(least_y, s->layers[i].gflops);
            any = true;
        }
    }
    f->x0 = floor(log10(least_x));
    f->x1 = ceil(log10(most_x) + 1e-9);
    f->y0 = floor(log10(least_y));
    f->y1 = ceil(log10(peak) + 1e-9);
    f->x1 += f->x1 == f->x0 ? 1.0 : 0.0;
    return any && f->x1 - f->x0 < 20.0 && f->y1 - f->y0 < 20.0;
}

/* A power of ten, as people write it: 0.01, 1, 1,000. */
static const char *power_text(char text[DP_FIGURE_BYTES], int power)
{
    const double value = pow(10.0, power);

    return power < 3 ? dp_figure_fixed(text, value, power < 0 ? -power : 0, "")
                     : dp_figure_short(text, value);
}

static void add_axes(struct dp_html *h, const struct frame *f)
{
    char text[DP_FIGURE_BYTES];

    for (int power = (int)f->y0; power <= (int)f->y1; power++) {
        const double place = place_y(f, pow(10.0, power));
        dp_html_print(h,
                      "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                      "text-anchor=\"end\">%s</text>",
                      LEFT, place, WIDTH - RIGHT, LEFT - 6, place + 4.0, power_text(text, power));
    }
    for (int power = (int)f->x0; power <= (int)f->x1; power++) {
        const double place = place_x(f, pow(10.0, power));
        dp_html_print(h,
                      "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                      "text-anchor=\"middle\">%s</text>",
                      place, TOP, HEIGHT - BOTTOM, place, HEIGHT - BOTTOM + 16,
                      power_text(text, power));
    }
    dp_html_print(h,
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">FLOP for each byte</text>"
                  "<text x=\"%d\" y=\"%d\">GFLOP/s</text>",
                  WIDTH - RIGHT, HEIGHT - 6, LEFT + 6, TOP + 12);
}

/* What memory allows, up to the peak. */
static void add_roof(struct dp_html *h, const struct frame *f, double peak, double copy)
{
    const double ridge = peak / copy, least = pow(10.0, f->x0);
    const double from = fmax(least, pow(10.0, f->y0) / copy);

    dp_html_print(h, "<path class=\"line s1\" d=\"M%.1f %.1fL%.1f %.1fH%d\"/>", place_x(f, from),
                  place_y(f, from * copy), place_x(f, ridge), place_y(f, peak), WIDTH - RIGHT);
}

static double radius_of(const struct dp_run_layer *l)
{
    return 3.0 + 9.0 * sqrt(fmin(fmax(l->share, 0.0), 1.0));
}

static bool is_free(const struct place *taken, int count, const struct place *p)
{
    for (int i = 0; i < count; i++) {
        if (fabs(taken[i].x - p->x) < taken[i].half + p->half &&
            fabs(taken[i].y - p->y) < line_height) {
            return false;
        }
    }
    return p->y < HEIGHT - BOTTOM;
}

/* Above the dot, or below it; a name that would cover another one is left to the dot's title. */
static bool add_name(struct dp_html *h, const struct dp_run_layer *l, const struct frame *f,
                     const struct place *taken, int count, struct place *p)
{
    const double y = place_y(f, l->gflops), radius = radius_of(l);

    p->half = letter * (double)(strlen(l->kind) + 1 + strlen(l->name)) / 2.0;
    p->x = fmax(fmin(place_x(f, intensity(l)), WIDTH - p->half), LEFT + p->half);
    p->y = y - radius - 4.0;
    if (!is_free(taken, count, p)) {
        p->y = y + radius + line_height - 1.0;
        if (!is_free(taken, count, p)) {
            return false;
        }
    }
    dp_html_print(h, "<text class=\"over\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", p->x,
                  p->y);
    dp_html_text(h, l->kind);
    dp_html_add(h, " ");
    dp_html_text(h, l->name);
    dp_html_add(h, "</text>");
    return true;
}

/* Of the longest layers, the longest first. */
static void add_names(struct dp_html *h, const struct dp_run_summary *s, const struct frame *f)
{
    int order[DP_LAYERS_SHOWN], taken_count = 0;
    struct place taken[DP_LAYERS_SHOWN];
    const int count = dp_layers_longest(s, order);

    for (int i = 0; i < count; i++) {
        const struct dp_run_layer *l = &s->layers[order[i]];
        if (l->share >= named && isfinite(intensity(l))) {
            taken_count += add_name(h, l, f, taken, taken_count, &taken[taken_count]) ? 1 : 0;
        }
    }
}

static void add_dots(struct dp_html *h, const struct dp_run_summary *s, const struct frame *f)
{
    char rate[DP_FIGURE_BYTES], of[DP_FIGURE_BYTES];

    for (int i = 0; i < s->layer_count; i++) {
        const struct dp_run_layer *l = &s->layers[i];
        if (!isfinite(intensity(l))) {
            continue;
        }
        dp_html_print(h, "<circle class=\"dot s0\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>",
                      place_x(f, intensity(l)), place_y(f, l->gflops), radius_of(l));
        dp_html_text(h, l->name);
        dp_html_add(h, " (");
        dp_html_text(h, l->kind);
        dp_html_print(h, "): %s GFLOP/s, %s of its limit</title></circle>",
                      dp_figure_short(rate, l->gflops),
                      dp_figure_number(of, DP_REPORT_FRACTION, dp_layer_of_limit(l)));
    }
}

static void add_roofline(struct dp_html *h, const struct dp_run_summary *s)
{
    const double peak = s->rank_count > 0 ? s->ranks[0].peak_gflops : (double)NAN;
    const double copy = s->rank_count > 0 ? s->ranks[0].copy_gbs : (double)NAN;
    char of[2][DP_FIGURE_BYTES];
    struct frame f;

    if (!(peak > 0.0) || !(copy > 0.0) || !isfinite(peak / copy) ||
        !find_frame(s, peak, copy, &f)) {
        return;
    }
    dp_html_print(h,
                  "<h3 id=\"roofline-title\">Roofline</h3><p id=\"roofline-text\">Each dot is a "
                  "layer, larger where it takes more of the time. The line is what rank 0's "
                  "machine allows: %s GFLOP/s, and %s GB/s of memory; layers above it work in "
                  "caches.</p>\n",
                  dp_figure_short(of[0], peak), dp_figure_short(of[1], copy));
    dp_html_print(h,
                  "<figure class=\"chart roofline\" tabindex=\"0\" "
                  "aria-labelledby=\"roofline-title\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                  "aria-labelledby=\"roofline-title\" aria-describedby=\"roofline-text\">",
                  WIDTH, HEIGHT);
    add_axes(h, &f);
    add_roof(h, &f, peak, copy);
    add_dots(h, s, &f);
    add_names(h, s, &f);
    dp_html_add(h, "</svg></figure>\n");
}

static void add_row(struct dp_html *h, const struct dp_run_layer *l, bool slow)
{
    char text[DP_FIGURE_BYTES];

    dp_html_add(h, "<tr><th scope=\"row\" class=\"text name\">");
    dp_html_text(h, l->name);
    dp_html_add(h, "</th><td class=\"text name\">");
    dp_html_text(h, l->kind);
    dp_html_print(h, "</td><td>%s</td>", dp_figure_ms(text, l->forward_ms));
    dp_html_print(h, "<td>%s</td>", dp_figure_ms(text, l->backward_ms));
    dp_html_print(h, "<td>%s</td>", dp_figure_number(text, DP_REPORT_FRACTION, l->share));
    dp_html_print(h, "<td>%s</td>", l->gflops > 0.0 ? dp_figure_short(text, l->gflops) : "-");
    dp_html_print(h, "<td>%s</td>", dp_figure_short(text, l->gbs));
    dp_html_print(h, "<td>%s</td>",
                  dp_figure_number(text, DP_REPORT_FRACTION, dp_layer_of_limit(l)));
    dp_html_print(h, "<td class=\"text name%s\">%s", slow ? " worse" : "",
                  slow ? "slow path: " : "");
    dp_html_text(h, l->implementation);
    dp_html_add(h, "</td></tr>\n");
}

void dp_page_layers(struct dp_html *html, const struct dp_run_summary *summary)
{
    int order[DP_LAYERS_SHOWN], other;
    const int count = dp_layers_longest(summary, order);

    if (count == 0) {
        dp_html_add(html,
                    "<p class=\"none\">known when layers were timed, after the first steps of "
                    "a run that measures itself</p>\n");
        return;
    }
    if (count < summary->layer_count) {
        dp_html_print(html, "<p>The %d layers that take longest, of %d", count,
                      summary->layer_count);
    } else {
        dp_html_print(html, "<p>All %d layers, the longest first", count);
    }
    dp_html_add(html, ", in ms of a step on rank 0. Each was timed by itself, in its fastest pass. "
                      "Of limit: what a layer reaches of what its arithmetic, or the memory that "
                      "it needs, allows on this machine.</p>\n");
    dp_html_add(
        html,
        "<div class=\"scroll whole\" tabindex=\"0\" role=\"region\" aria-label=\"table of "
        "layers\"><table><caption>Layers, their work, and what computed them</caption><thead><tr>"
        "<th scope=\"col\" class=\"text\">layer</th>"
        "<th scope=\"col\" class=\"text\">kind</th><th scope=\"col\">forward</th>"
        "<th scope=\"col\">backward</th><th scope=\"col\">share</th>"
        "<th scope=\"col\">GFLOP/s</th><th scope=\"col\">GB/s</th>"
        "<th scope=\"col\">of limit</th><th scope=\"col\" class=\"text\">library path"
        "</th></tr></thead><tbody>\n");
    for (int i = 0; i < count; i++) {
        add_row(html, &summary->layers[order[i]], dp_layer_is_slow(summary, order[i], &other));
    }
    dp_html_add(html, "</tbody></table></div>\n");
    add_roofline(html, summary);
}
