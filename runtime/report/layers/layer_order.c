#include "runtime/report/layers/layer_order.h"

#include <math.h>
#include <string.h>

static const double least_share = 0.01, slower = 4.0;

double dp_layer_ms(const struct dp_run_layer *layer)
{
    return layer->forward_ms + layer->backward_ms;
}

double dp_layer_of_limit(const struct dp_run_layer *layer)
{
    return layer->limit > 0.0 ? layer->gflops / layer->limit : (double)NAN;
}

int dp_layers_longest(const struct dp_run_summary *s, int order[DP_LAYERS_SHOWN])
{
    int count = 0;

    for (int i = 0; i < s->layer_count; i++) {
        const double ms = dp_layer_ms(&s->layers[i]);
        int at = count < DP_LAYERS_SHOWN ? count : DP_LAYERS_SHOWN;

        if (!isfinite(ms)) {
            continue;
        }
        for (; at > 0 && dp_layer_ms(&s->layers[order[at - 1]]) < ms; at--) {
            if (at < DP_LAYERS_SHOWN) {
                order[at] = order[at - 1];
            }
        }
        if (at < DP_LAYERS_SHOWN) {
            order[at] = i;
            count += count < DP_LAYERS_SHOWN;
        }
    }
    return count;
}

/* The next part of "cuDNN engine 70; cublas", without numbers that stand alone; 0: none is left. */
static size_t next_part(const char **text, char part[DP_REPORT_NAME_BYTES])
{
    size_t used = 0;

    for (; **text == ';' || **text == ' '; (*text)++) {
    }
    for (const char *from = *text; **text != '\0' && **text != ';'; (*text)++) {
        const bool begins = *text == from || (*text)[-1] == ' ';
        const size_t digits = begins ? strspn(*text, "0123456789") : 0;
        if (digits > 0 && strchr("; ", (*text)[digits]) != NULL) {
            *text += digits - 1;
        } else if (used + 1 < DP_REPORT_NAME_BYTES) {
            part[used++] = **text;
        }
    }
    part[used] = '\0';
    return used;
}

/* Whether each part of `a` is one of `b`. */
static bool parts_are_among(const char *a, const char *b)
{
    char mine[DP_REPORT_NAME_BYTES], theirs[DP_REPORT_NAME_BYTES];

    while (next_part(&a, mine) > 0) {
        const char *rest = b;
        bool found = false;
        while (!found && next_part(&rest, theirs) > 0) {
            found = strcmp(mine, theirs) == 0;
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

static bool is_same_path(const char *a, const char *b)
{
    return parts_are_among(a, b) && parts_are_among(b, a);
}

/* Layers are timed one after the other: what other programs take of the cores meanwhile differs by
 * more than paths do. */
static bool is_contended(const struct dp_run_summary *s)
{
    return s->verdict_bound != NULL && strcmp(s->verdict_bound, "contention") == 0;
}

bool dp_layer_is_slow(const struct dp_run_summary *s, int index, int *other)
{
    const struct dp_run_layer *layer = &s->layers[index];
    const double mine = dp_layer_of_limit(layer);
    int found = -1;

    if (!(mine >= 0.0) || !(layer->share >= least_share) || is_contended(s)) {
        return false;
    }
    for (int i = 0; i < s->layer_count; i++) {
        const struct dp_run_layer *l = &s->layers[i];
        const bool same_path = is_same_path(l->implementation, layer->implementation);
        if (i == index || strcmp(l->kind, layer->kind) != 0) {
            continue;
        }
        if ((dp_layer_of_limit(l) > slower * mine) == same_path) {
            return false; /* a path that serves others well, or another one that is no better */
        }
        found = same_path ? found : i;
    }
    *other = found;
    return found >= 0;
}
