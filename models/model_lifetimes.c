/*
 * model_lifetimes.c - when the memory of values and gradients is in use, and where it lies, on
 * devices without tiles: in one arena, where memory that is not in use at the same time overlaps.
 *
 * Time is the order in which a pass calls nodes (pass.c): forward, the loss and backward, before
 * each part of which (model_parts.h) those nodes run once more that compute it again.
 *
 *   conv   |x w-------------r---|   w: the node writes its output; r: it is read last
 *   norm   | r w-----------r----|   in backward, which reads x and y as its plan says
 *   add    |   r w              |   not read in backward: free once forward has read it
 *   dense  |     r w-r          |
 *          +----------loss------> time
 *
 * In use is memory from what first writes it to what last reads it. Where it is written from anew
 * when it is computed again, it is free from the last read before that. The input is in use always:
 * passes may run again on the same rows. So are the outputs of the model, which evaluation and
 * predictions read after the pass.
 */
#include <assert.h>

#include "base/mem.h"
#include "models/arena_plan.h"
#include "models/model.h"

/* A pass, while its nodes are gone through. */
struct walk {
    const struct dp_model *model;
    struct dp_arena_block *blocks; /* of each storage, then of each slot */
    int now;
};

/* Memory that is written from anew. */
static void write_anew(const struct walk *w, int block)
{
    struct dp_arena_block *b = &w->blocks[block];

    assert(b->use_count < DP_BLOCK_USES);
    b->uses[b->use_count++] = (struct dp_period){w->now, w->now};
}

/* Memory that is read, or written over element by element. */
static void use(const struct walk *w, int block)
{
    struct dp_arena_block *b = &w->blocks[block];

    assert(b->use_count > 0);
    b->uses[b->use_count - 1].last = w->now;
}

static void use_value(const struct walk *w, int value)
{
    if (value >= 0) {
        use(w, w->model->values[value].storage);
    }
}

/* A slot is written before it is read, and then never anew. */
static void use_slot(const struct walk *w, int slot)
{
    const int block = w->model->storage_count + slot;

    if (slot >= 0 && w->blocks[block].use_count == 0) {
        write_anew(w, block);
    } else if (slot >= 0) {
        use(w, block);
    }
}

static void walk_forward(struct walk *w, const struct dp_node *node)
{
    const struct dp_value *values = w->model->values;
    const int x = values[node->x].storage, y = values[node->y].storage;

    w->now++;
    use_value(w, node->x);
    use_value(w, node->x2);
    if (y != x) {
        write_anew(w, y);
    }
}

static void walk_loss(struct walk *w)
{
    const struct dp_node *last = &w->model->nodes[w->model->node_count - 1];

    w->now++;
    use_value(w, last->y);
    use_slot(w, last->dy_slot);
}

static void walk_backward(struct walk *w, const struct dp_node *node)
{
    w->now++;
    if (node->dy_slot < 0) {
        return;
    }
    /* A join in place of its body's batch norm may read x, too: which that one reads later. */
    if (!node->plan.skips_x) {
        use_value(w, node->x);
    }
    if (dp_node_reads_y(node)) {
        use_value(w, node->y);
    }
    use_slot(w, node->dy_slot);
    use_slot(w, node->mask_slot);
    w->now += node->type->backward_data != NULL; /* which reads neither x nor y */
    use_slot(w, node->mask_slot >= 0 ? node->mask_slot : node->dy_slot);
    use_slot(w, node->dx_slot);
    if (node->add_y >= 0) {
        use_slot(w, node->add_y);
        use_slot(w, node->add_a);
        use_slot(w, node->add_b);
    }
    if (node->sum_after) { /* it may read what the next node would have added up */
        use_slot(w, node[1].add_a);
        use_slot(w, node[1].add_b);
    }
}

/* As compute_again() in pass.c, before backward of segment `last`. */
static void walk_again(struct walk *w, int last)
{
    const struct dp_model *m = w->model;
    const struct dp_segment *segments = m->segments;

    if (last + 1 == m->segment_count || segments[last + 1].part == segments[last].part) {
        return;
    }
    for (int n = 0; n <= segments[last].last; n++) {
        if (m->nodes[n].part == segments[last].part && m->nodes[n].again) {
            walk_forward(w, &m->nodes[n]);
        }
    }
}

/* To the end of the pass. */
static void keep(const struct walk *w, const struct dp_value *value)
{
    use(w, value->storage);
}

static void walk_pass(struct walk *w, enum dp_pass_use what)
{
    const struct dp_model *m = w->model;

    write_anew(w, m->values[0].storage);
    for (int n = 0; n < m->node_count; n++) {
        walk_forward(w, &m->nodes[n]);
    }
    if (what != DP_PASS_EVALUATES) {
        walk_loss(w);
        for (int i = m->segment_count - 1; i >= 0; i--) {
            walk_again(w, i);
            for (int n = m->segments[i].last; n >= m->segments[i].first; n--) {
                walk_backward(w, &m->nodes[n]);
            }
        }
    }
    keep(w, &m->values[0]);
    keep(w, &m->values[m->nodes[m->node_count - 1].y]);
    for (int v = 0; what == DP_PASS_TRAINS_KEPT && v < m->value_count; v++) {
        if (m->values[v].kept && m->storage[m->values[v].storage].part == 0) {
            keep(w, &m->values[v]);
        }
    }
}

static dp_status lay_out(struct dp_model *m, enum dp_pass_use what, struct dp_arena_block *blocks)
{
    struct walk w = {.model = m, .blocks = blocks, .now = 0};
    const int count = m->storage_count + m->slot_count;
    struct dp_arena *arena = &m->arenas[what];

    for (int i = 0; i < count; i++) {
        const size_t elements =
            i < m->storage_count ? m->storage[i].count : m->slots[i - m->storage_count].count;
        blocks[i] = (struct dp_arena_block){.size = dp_round_up(elements, DP_BLOCK)};
    }
    walk_pass(&w, what);
    DP_TRY(dp_arena_place(blocks, count, &arena->size, &arena->least));
    for (int i = 0; i < count; i++) {
        arena->begin[i] = blocks[i].begin;
    }
    return DP_OK;
}

dp_status dp_model_lay_out(struct dp_model *m)
{
    const int count = m->storage_count + m->slot_count;
    struct dp_arena_block *blocks = dp_zalloc((size_t)count, sizeof(*blocks));
    dp_status status = DP_OK;

    if (blocks == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "memory of %d layers", m->node_count);
    }
    for (int i = 0; status == DP_OK && i < DP_PASS_USES; i++) {
        status = lay_out(m, (enum dp_pass_use)i, blocks);
    }
    dp_free(blocks);
    return status;
}

size_t dp_model_activation_bytes(const struct dp_model *m, enum dp_type type, size_t rows,
                                 struct dp_tiles tiles, bool training)
{
    const size_t saved = training ? rows * m->saved_bytes : 0;
    size_t elements = rows * m->arenas[dp_pass_use_of(type, training)].size;

    if (tiles.bytes > 0) {
        elements = dp_storage_layout(m->storage, m->storage_count, rows, tiles, NULL);
        elements += training
                        ? dp_storage_layout(m->slot_memory, m->slot_memory_count, rows, tiles, NULL)
                        : 0;
    }
    return elements * dp_type_bytes(type) + saved;
}
