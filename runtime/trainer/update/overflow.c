#include "runtime/trainer/update/overflow.h"

#include <math.h>
#include <stdio.h>

#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/trainer_parts.h"

enum {
    CHUNK = 16384,          /* number of halves that are checked together */
    HALF_INFINITE = 0x7c00, /* exponent of infinities and NaNs */
    FLAGS = 256
};

/* Checks halves in device memory. */
static dp_status are_finite(struct dp_stream *stream, const uint16_t *x, size_t count, bool *finite)
{
    uint16_t seen[CHUNK];

    *finite = true;
    for (size_t begin = 0; *finite && begin < count; begin += CHUNK) {
        const size_t n = count - begin < CHUNK ? count - begin : CHUNK;
        DP_TRY(dp_device_read(stream, seen, x + begin, n * sizeof(*seen)));
        for (size_t i = 0; i < n; i++) {
            *finite = *finite && (seen[i] & HALF_INFINITE) != HALF_INFINITE;
        }
    }
    return DP_OK;
}

/* The nodes among which one overflowed: those after the last one whose output is known to be
 * finite, up to the first one whose output is not. Both -1: unknown. */
struct place {
    int first, last;
};

/* Searches this rank's last pass. */
static dp_status find_place(const struct dp_trainer *t, struct place *out)
{
    const size_t most = (size_t)t->config->train.micro_batch;
    struct place at = {0, -1};

    if (t->compute.pass == NULL) { /* lanes have passes of their own */
        return DP_OK;
    }
    const size_t passes = dp_micro_batch_count(t->input.batch.rows, most);
    const size_t rows = dp_micro_batch_at(t->input.batch.rows, most, passes - 1).rows.count;

    for (int i = 0; at.last < 0 && i < t->model->node_count; i++) {
        const int y = t->model->nodes[i].y;
        const void *kept = dp_pass_kept(t->compute.pass, y);
        bool finite = true;
        if (kept != NULL) {
            const size_t count = rows * t->model->values[y].count;
            DP_TRY(are_finite(t->compute.stream, kept, count, &finite));
            at.first = finite ? i + 1 : at.first;
            at.last = finite ? -1 : i;
        }
    }
    *out = at.last < 0 ? *out : at;
    return DP_OK;
}

/* The lowest number of all ranks; each is below `count`, or -1 for none. */
static dp_status lowest(const struct dp_trainer *t, int count, int *number)
{
    const int mine = *number;

    *number = -1;
    for (int begin = 0; *number < 0 && begin < count; begin += FLAGS) {
        const int n = count - begin < FLAGS ? count - begin : FLAGS;
        float flags[FLAGS] = {0};
        if (mine >= begin && mine < begin + n) {
            flags[mine - begin] = 1;
        }
        DP_TRY(dp_exchange_sum_host(t->exchange, flags, (size_t)n));
        for (int i = n - 1; i >= 0; i--) {
            *number = flags[i] > 0 ? begin + i : *number;
        }
    }
    return DP_OK;
}

/* Describes the place in forward that overflowed first on any rank. */
static dp_status name_place(const struct dp_trainer *t, char *text, size_t size)
{
    struct place at = {-1, -1};
    const struct dp_node *first, *last;

    DP_TRY(find_place(t, &at));
    DP_TRY(lowest(t, t->model->node_count, &at.last));
    DP_TRY(lowest(t, t->model->node_count, &at.first));
    if (at.last < 0) {
        (void)snprintf(text, size, "the output of a layer");
        return DP_OK;
    }
    first = &t->model->nodes[at.first];
    last = &t->model->nodes[at.last];
    if (first == last) {
        (void)snprintf(text, size, "the output of layer %s (%s)", last->path,
                       last->type->plugin.name);
    } else {
        (void)snprintf(text, size, "the output of layers %s (%s) to %s (%s)", first->path,
                       first->type->plugin.name, last->path, last->type->plugin.name);
    }
    return DP_OK;
}

dp_status dp_overflow_find(const struct dp_trainer *t, double loss, char *text, size_t size)
{
    const struct dp_tensor *tensors = t->state.flat.tensors,
                           *mine = dp_grad_norm_overflowed(t->modes.grad_norm);
    const int count = t->state.flat.tensor_count;
    int before = mine == NULL ? -1 : count - 1 - (int)(mine - tensors);

    if (!isfinite(loss)) {
        return name_place(t, text, size);
    }
    DP_TRY(lowest(t, count, &before));
    (void)snprintf(text, size, "%s", before < 0 ? "a gradient" : tensors[count - 1 - before].name);
    return DP_OK;
}
