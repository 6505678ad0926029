#include "kernels/cpu/amx/conv_grid.h"

#include "kernels/tensor.h"

enum { SIDE = 32 };

bool dp_conv_grid_can(const struct dp_window *w)
{
    return dp_window_groups(w) == 1 && w->stride <= DP_CONV_STRIDE &&
           w->kernel_h * w->kernel_w <= DP_CONV_TAPS;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* One pass whose taps read what forward reads. */
static void set_forward(struct dp_conv_grid *g, const struct dp_window *w)
{
    struct dp_conv_pass *pass = &g->pass[0];

    g->from_h = w->in_h, g->from_w = w->in_w;
    g->to_h = w->out_h, g->to_w = w->out_w;
    g->stride = w->stride;
    g->pad_y = g->pad_x = w->padding;
    g->across = dp_smaller(w->stride, w->kernel_w);
    g->planes = g->across * dp_smaller(w->stride, w->kernel_h);
    g->width = w->out_w + (w->kernel_w - 1) / w->stride;
    g->step = 1;
    g->passes = 1;
    *pass = (struct dp_conv_pass){.height = w->out_h, .width = w->out_w};
    for (size_t y = 0; y < w->kernel_h; y++) {
        for (size_t x = 0; x < w->kernel_w; x++) {
            pass->tap[pass->count++] = (struct dp_conv_tap){
                .plane = y % w->stride * g->across + x % w->stride,
                .row = y / w->stride * g->width + x / w->stride,
                .at = y * w->kernel_w + x,
            };
        }
    }
}

/* The first input at one of `stride` places, how many there are, and the output that kernel
 * position 0 of them would read. */
struct line {
    size_t first, count, source;
};

static struct line line_of(size_t place, size_t in, const struct dp_window *w)
{
    const size_t first = (place + w->stride - w->padding % w->stride) % w->stride;

    return (struct line){first, first < in ? dp_div_up(in - first, w->stride) : 0,
                         (first + w->padding) / w->stride};
}

/* How far before an image of dy kernel positions reach along one direction: the last ones do, for
 * the first inputs. */
static size_t reach_before(size_t kernel, const struct dp_window *w)
{
    return kernel > w->padding ? (kernel - 1 - w->padding) / w->stride : 0;
}

static void add_taps(struct dp_conv_grid *g, const struct dp_window *w, struct dp_conv_pass *pass,
                     size_t place_y, size_t place_x)
{
    const struct line down = line_of(place_y, w->in_h, w), right = line_of(place_x, w->in_w, w);

    for (size_t y = place_y; y < w->kernel_h; y += w->stride) {
        for (size_t x = place_x; x < w->kernel_w; x += w->stride) {
            const size_t row = down.source + g->pad_y - y / w->stride;
            const size_t column = right.source + g->pad_x - x / w->stride;
            pass->tap[pass->count++] =
                (struct dp_conv_tap){0, row * g->width + column, y * w->kernel_w + x};
        }
    }
}

static void set_back(struct dp_conv_grid *g, const struct dp_window *w)
{
    g->from_h = w->out_h, g->from_w = w->out_w;
    g->to_h = w->in_h, g->to_w = w->in_w;
    g->stride = 1;
    g->pad_y = reach_before(w->kernel_h, w);
    g->pad_x = reach_before(w->kernel_w, w);
    g->across = g->planes = 1;
    /* The first kernel positions reach farthest, for the last inputs. */
    g->width = g->pad_x + (w->in_w - 1 + w->padding) / w->stride + 1;
    g->step = w->stride;
    for (size_t y = 0; y < w->stride; y++) {
        for (size_t x = 0; x < w->stride; x++) {
            const struct line down = line_of(y, w->in_h, w), right = line_of(x, w->in_w, w);
            struct dp_conv_pass *pass = &g->pass[g->passes];
            if (down.count == 0 || right.count == 0) {
                continue;
            }
            *pass =
                (struct dp_conv_pass){down.first, right.first, down.count, right.count, 0, {{0}}};
            add_taps(g, w, pass, y, x);
            g->passes++;
        }
    }
}

void dp_conv_grid_set(struct dp_conv_grid *g, const struct dp_window *w, bool back)
{
    *g = (struct dp_conv_grid){0};
    if (back) {
        set_back(g, w);
    } else {
        set_forward(g, w);
    }
    size_t last = 0;

    for (size_t i = 0; i < g->passes; i++) {
        const struct dp_conv_pass *pass = &g->pass[i];
        g->panels = larger(g->panels, dp_div_up((pass->height - 1) * g->width + pass->width, SIDE));
        for (size_t k = 0; k < pass->count; k++) {
            last = larger(last, pass->tap[k].row);
        }
    }
    g->rows = g->panels * SIDE + last;
}

size_t dp_conv_grid_bytes(const struct dp_conv_grid *g)
{
    return dp_round_up(g->planes * g->rows * sizeof(int), 64);
}

void dp_conv_grid_places(const struct dp_conv_grid *g, int *where)
{
    for (size_t plane = 0; plane < g->planes; plane++) {
        for (size_t row = 0; row < g->rows; row++, where++) {
            const size_t y = row / g->width * g->stride + plane / g->across - g->pad_y;
            const size_t x = row % g->width * g->stride + plane % g->across - g->pad_x;
            /* Places before the image are large numbers here. */
            *where = y < g->from_h && x < g->from_w ? (int)(y * g->from_w + x) : -1;
        }
    }
}
