#include "runtime/report/layers/layers_table.h"

#include <math.h>

#include "base/text.h"
#include "runtime/report/colour.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/layers/layer_order.h"
#include "runtime/report/paragraph.h"

enum { NAME_WIDTH = 12, KIND_WIDTH = 10, PATH_WIDTH = 22 };

static const char *speed(const struct dp_run_layer *layer, char text[DP_FIGURE_BYTES])
{
    static const double least = 0.1; /* less tells nothing, and would take the whole column */

    if (!(layer->gflops > 0.0)) {
        return "-";
    }
    return layer->gflops < least ? "< 0.1" : dp_figure_short(text, layer->gflops);
}

static void print_layer(const struct dp_run_layer *layer, FILE *out)
{
    char name[NAME_WIDTH + 1], kind[KIND_WIDTH + 1], path[PATH_WIDTH + 1];
    char ms[DP_FIGURE_BYTES], share[DP_FIGURE_BYTES], rate[DP_FIGURE_BYTES], of[DP_FIGURE_BYTES];

    (void)dp_text_clean(layer->name, name, sizeof(name));
    (void)dp_text_clean(layer->kind, kind, sizeof(kind));
    (void)dp_text_clean(layer->implementation, path, sizeof(path));
    (void)fprintf(out, "%-*s %-*s %7s %7s %8s %7s  %s\n", NAME_WIDTH, name, KIND_WIDTH, kind,
                  dp_figure_ms(ms, dp_layer_ms(layer)),
                  dp_figure_number(share, DP_REPORT_FRACTION, layer->share), speed(layer, rate),
                  dp_figure_number(of, DP_REPORT_FRACTION, dp_layer_of_limit(layer)), path);
}

static void print_slow(const struct dp_run_summary *s, FILE *out)
{
    char mine[DP_FIGURE_BYTES], theirs[DP_FIGURE_BYTES];
    int other;

    for (int i = 0; i < s->layer_count; i++) {
        if (!dp_layer_is_slow(s, i, &other)) {
            continue;
        }
        const struct dp_run_layer *layer = &s->layers[i], *better = &s->layers[other];
        (void)fputs(dp_colour(DP_COLOUR_NOTICE), out);
        dp_paragraph(out, 4,
                     "slow path: layer %s (%s) reaches %s of its limit by %s, "
                     "but layer %s %s by %s",
                     layer->name, layer->kind,
                     dp_figure_number(mine, DP_REPORT_FRACTION, dp_layer_of_limit(layer)),
                     layer->implementation, better->name,
                     dp_figure_number(theirs, DP_REPORT_FRACTION, dp_layer_of_limit(better)),
                     better->implementation);
        (void)fputs(dp_colour(DP_COLOUR_PLAIN), out);
    }
}

void dp_layers_print(const struct dp_run_summary *s, FILE *out)
{
    int order[DP_LAYERS_SHOWN];
    const int count = dp_layers_longest(s, order);

    if (count == 0) {
        return;
    }
    (void)fprintf(out, "\n%-*s %-*s %7s %7s %8s %7s  %s\n", NAME_WIDTH, "layer", KIND_WIDTH, "kind",
                  "ms", "share", "GFLOP/s", "limit", "library path");
    for (int i = 0; i < count; i++) {
        print_layer(&s->layers[order[i]], out);
    }
    if (count < s->layer_count) {
        (void)fprintf(out, "... and %d shorter ones: see run.json\n", s->layer_count - count);
    }
    print_slow(s, out);
}
