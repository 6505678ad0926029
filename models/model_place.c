/*
 * model_place.c - cuts a model into segments, and places activations and their gradients in memory.
 *
 * Activations that backward reads are kept, so each has memory of its own, unless a layer may
 * overwrite its input. Gradients are short-lived: a slot is taken when a gradient is written and
 * freed when it has been read. Slots that are taken one after the other share memory, so a chain of
 * layers needs two or three memories. A value that is written and read inside one tiled segment,
 * and not kept, has memory of a tile's size. Without tiles only what is written where is decided
 * here; where all of that lies, by model_lifetimes.c.
 */
#include "models/model.h"

#include <string.h>

#include "base/mem.h"

double dp_node_flops(const struct dp_node *node)
{
    const bool product = node->plan.param_count > 0 && node->plan.params[0].dims >= 2;
    const double gradients =
        node->dy_slot < 0 ? 0.0 : (double)(product || node->dx_slot < 0) + (node->dx_slot >= 0);

    return node->plan.flops * (1.0 + gradients + (node->again ? 1.0 : 0.0));
}

/* Consecutive row-local layers form a tiled segment; a single one would gain nothing. */
static void cut_segments(struct dp_model *m)
{
    m->segment_count = 0;
    for (int i = 0; i < m->node_count; i++) {
        struct dp_node *node = &m->nodes[i];
        struct dp_segment *s = &m->segments[m->segment_count - (m->segment_count > 0)];

        if (m->segment_count == 0 || !s->tiled || !node->plan.row_local ||
            m->nodes[s->last].plan.gathers) {
            s = &m->segments[m->segment_count++];
            s->first = i;
            s->tiled = s->row_local = node->plan.row_local;
            s->row = m->values[node->x].count;
        }
        s->last = i;
        s->row += node->plan.alias ? 0 : m->values[node->y].count;
        node->segment = m->segment_count - 1;
    }
    for (int i = 0; i < m->segment_count; i++) {
        m->segments[i].tiled = m->segments[i].tiled && m->segments[i].last > m->segments[i].first;
    }
}

/* Ends segments where parts end. Their tiles stay as they are, and so do sums over them. */
static void end_at_parts(struct dp_model *m)
{
    for (int i = 1; i < m->node_count; i++) {
        const int s = m->nodes[i].segment;
        if (m->nodes[i].part == m->nodes[i - 1].part || m->nodes[i - 1].segment != s) {
            continue;
        }
        memmove(&m->segments[s + 1], &m->segments[s],
                (size_t)(m->segment_count - s) * sizeof(*m->segments));
        m->segment_count++;
        m->segments[s].last = i - 1;
        m->segments[s + 1].first = i;
        for (int k = i; k < m->node_count; k++) {
            m->nodes[k].segment++;
        }
    }
    for (int i = 0; i < m->segment_count; i++) {
        m->segments[i].part = m->nodes[m->segments[i].first].part;
    }
}

/* Finds the last reader of each value, and whether backward reads it. */
static void note_readers(struct dp_model *m)
{
    for (int v = 0; v < m->value_count; v++) {
        m->values[v].last_reader = -1;
    }
    for (int i = 0; i < m->node_count; i++) {
        const struct dp_node *node = &m->nodes[i];

        m->values[node->x].last_reader = i;
        m->values[node->x].kept = m->values[node->x].kept || !node->plan.skips_x;
        if (node->x2 >= 0) {
            m->values[node->x2].last_reader = i;
        }
        m->values[node->y].kept = m->values[node->y].kept || dp_node_reads_y(node);
        m->values[node->y].wanted = node->plan.param_count > 0 || m->values[node->x].wanted ||
                                    (node->x2 >= 0 && m->values[node->x2].wanted);
    }
}

/* The tiled segment that holds all readers of a value; -1: none does. An alias (flatten) is in a
 * segment only if all its names are. */
static int home_of(const struct dp_model *m, const struct dp_value *value)
{
    for (;;) {
        const struct dp_node *writer = value->writer < 0 ? NULL : &m->nodes[value->writer];

        if (writer == NULL || value->last_reader < 0 || !m->segments[writer->segment].tiled ||
            m->nodes[value->last_reader].segment != writer->segment) {
            return -1;
        }
        if (!writer->plan.alias) {
            return writer->segment;
        }
        value = &m->values[writer->x];
    }
}

/* The same for the gradient of a value, which layers with passes_dy pass on unchanged. */
static int gradient_home_of(const struct dp_model *m, const struct dp_value *value)
{
    while (value->writer >= 0 && m->nodes[value->writer].plan.passes_dy) {
        const struct dp_value *x = &m->values[m->nodes[value->writer].x];
        if (home_of(m, value) != home_of(m, x)) {
            return -1;
        }
        value = x;
    }
    return home_of(m, value);
}

/* The part in which a value is written and read; 0: it is needed outside of it, or the last one,
 * which others than layers read. */
static int part_inside(const struct dp_model *m, const struct dp_value *value)
{
    const int part = m->nodes[value->writer].part;

    return value->last_reader >= 0 && m->nodes[value->last_reader].part == part ? part : 0;
}

/* Whether `node` may overwrite its input with its output: no other node needs the input any
 * more. */
static bool may_overwrite(const struct dp_model *m, const struct dp_node *node)
{
    const struct dp_value *x = &m->values[node->x];

    for (;;) {
        const struct dp_node *writer;
        if (x->writer < 0 || x->readers > 1) {
            return false; /* the input batch, or another layer reads it too */
        }
        writer = &m->nodes[x->writer];
        if (writer->part != node->part) {
            return false; /* from which this part is computed again */
        }
        if (!writer->plan.alias) {
            return !dp_node_reads_y(writer);
        }
        x = &m->values[writer->x]; /* the same memory with another shape */
    }
}

/* New memory for a value that shares none. */
static int new_storage(struct dp_model *m, const struct dp_value *value, int home, int part)
{
    m->storage[m->storage_count] = (struct dp_storage){value->count, home >= 0, part};
    return m->storage_count++;
}

/* What a layer keeps beside its values; parts have the same memory for it. */
static void place_saved(struct dp_model *m, struct dp_node *node, size_t *saved_at)
{
    node->saved_at = *saved_at;
    *saved_at += dp_round_up(node->plan.saved_bytes, DP_BLOCK);
    m->saved_bytes = *saved_at > m->saved_bytes ? *saved_at : m->saved_bytes;
    node->local_at = m->local;
    m->local += dp_round_up(node->plan.local, DP_BLOCK);
}

static void place_values(struct dp_model *m)
{
    size_t saved_at = 0;

    m->storage_count = 0;
    m->saved_bytes = m->local = 0;
    m->values[0].storage = new_storage(m, &m->values[0], -1, 0);
    for (int i = 0; i < m->node_count; i++) {
        struct dp_node *node = &m->nodes[i];
        struct dp_value *y = &m->values[node->y];
        const int home = y->kept ? -1 : home_of(m, y), part = part_inside(m, y);

        if (node->plan.alias || (node->plan.y_in_x && may_overwrite(m, node))) {
            /* A value that leaves the segment or is kept needs all rows of its memory. */
            y->storage = m->values[node->x].storage;
            if (home < 0) {
                m->storage[y->storage].tile = false;
            }
            if (part == 0) {
                m->storage[y->storage].part = 0;
            }
        } else {
            y->storage = new_storage(m, y, home, part);
        }
        if (i > 0 && node->part != node[-1].part) {
            saved_at = 0;
        }
        place_saved(m, node, &saved_at);
    }
}

/* The slots during a simulated backward: how many gradients are in each. */
struct slots {
    struct dp_model *model;
    int *users;       /* of each slot; 0: free */
    int *gradient_of; /* slot of each value's gradient; -1: none yet */
    int *taken_in;    /* segment that wrote the gradient in a slot of a tile */
    int *freed_in;    /* segment in which a slot lost its last user; -1: none */
    int *newest;      /* of the slots that share a memory, the last one that was taken */
};

/* Returns memory for the gradient of value v that no slot uses. One of all rows that was read in a
 * segment of independent rows cannot be used there: it still holds rows of other tiles. */
static int find_memory(const struct slots *s, int v, int segment)
{
    struct dp_model *m = s->model;
    const int home = gradient_home_of(m, &m->values[v]);
    const size_t count = m->values[v].count;
    int best = -1;

    for (int i = 0; i < m->slot_memory_count; i++) {
        const int slot = s->newest[i];
        const bool stale =
            home < 0 && m->segments[segment].row_local && s->freed_in[slot] == segment;
        if (s->users[slot] == 0 && m->slot_memory[i].tile == (home >= 0) && !stale &&
            (best < 0 || m->slot_memory[i].count > m->slot_memory[best].count)) {
            best = i;
        }
    }
    if (best < 0) {
        best = m->slot_memory_count++;
        m->slot_memory[best] = (struct dp_storage){0, home >= 0, 0};
    }
    if (m->slot_memory[best].count < count) {
        m->slot_memory[best].count = count;
    }
    return best;
}

/* Returns a new slot for the gradient of value v. */
static int slot_take(struct slots *s, int v, int segment)
{
    struct dp_model *m = s->model;
    const int slot = m->slot_count++, memory = find_memory(s, v, segment);

    m->slots[slot] =
        (struct dp_gradient_slot){m->values[v].count, m->slot_memory[memory].tile, memory};
    s->newest[memory] = slot;
    s->users[slot] = 1;
    s->taken_in[slot] = segment;
    s->freed_in[slot] = -1;
    return slot;
}

static void slot_drop(struct slots *s, int slot, int segment)
{
    if (--s->users[slot] == 0) {
        s->freed_in[slot] = segment;
    }
}

/* Whether a gradient of value v may be in this slot. */
static bool slot_suits(const struct slots *s, int slot, int v)
{
    return !s->model->slots[slot].tile ||
           s->taken_in[slot] == gradient_home_of(s->model, &s->model->values[v]);
}

/* Whether this slot is of the kind that slot_take() would choose for value v. Overwriting it then
 * costs nothing, while memory for all rows would have to be written back. */
static bool is_home(const struct slots *s, int slot, int v)
{
    const int home = gradient_home_of(s->model, &s->model->values[v]);

    return s->model->slots[slot].tile == (home >= 0) && slot_suits(s, slot, v);
}

/* Value v gets the gradient in `slot`, which counts as its user. If v already has one (two layers
 * read v), the node adds both. */
static void contribute(struct slots *s, struct dp_node *node, int v, int slot)
{
    const int before = s->gradient_of[v];
    int sum;

    if (before < 0) {
        s->gradient_of[v] = slot;
        return;
    }
    if (s->users[before] == 1 && slot_suits(s, before, v)) {
        sum = before;
    } else if (s->users[slot] == 1 && slot_suits(s, slot, v)) {
        sum = slot;
    } else {
        sum = slot_take(s, v, node->segment);
        s->users[sum]--; /* counted below */
    }
    node->add_y = sum;
    node->add_a = before;
    node->add_b = slot;
    s->users[sum]++;
    slot_drop(s, before, node->segment);
    slot_drop(s, slot, node->segment);
    s->gradient_of[v] = sum;
}

/* A join passes the same gradient to both branches, in a slot that suits both. */
static void place_join(struct slots *s, struct dp_node *node, int dy)
{
    const struct dp_value *values = s->model->values;
    int slot = dy;

    if (!slot_suits(s, dy, node->x)) {
        slot = slot_take(s, node->x, node->segment);
    } else if (!slot_suits(s, dy, node->x2)) {
        slot = slot_take(s, node->x2, node->segment);
    }
    if (slot != dy) {
        slot_drop(s, dy, node->segment);
        node->mask_slot = node->mask_slot >= 0 ? slot : -1;
    }
    node->dx_slot = slot;
    if (values[node->x].wanted) {
        s->gradient_of[node->x] = slot;
        s->users[slot] += values[node->x2].wanted;
    }
    if (values[node->x2].wanted) {
        contribute(s, node, node->x2, slot);
    }
}

/* Places what backward of this node reads and writes. */
static void place_gradient(struct slots *s, struct dp_node *node)
{
    int dy = s->gradient_of[node->y];

    node->dy_slot = dy;
    node->mask_slot = node->dx_slot = node->add_y = -1;
    if (dy < 0) {
        return;
    }
    if (node->act != DP_ACT_NONE && !node->plan.mask_from_x) {
        node->mask_slot = s->users[dy] == 1 ? dy : slot_take(s, node->y, node->segment);
        if (node->mask_slot != dy) {
            slot_drop(s, dy, node->segment);
            dy = node->mask_slot;
        }
    }
    if (node->x2 >= 0) {
        place_join(s, node, dy);
        return;
    }
    if (!s->model->values[node->x].wanted) {
        slot_drop(s, dy, node->segment);
        return;
    }
    if (node->plan.passes_dy ||
        (node->plan.dx_in_dy && s->users[dy] == 1 && is_home(s, dy, node->x))) {
        node->dx_slot = dy;
    } else {
        node->dx_slot = slot_take(s, node->x, node->segment);
        slot_drop(s, dy, node->segment);
    }
    contribute(s, node, node->x, node->dx_slot);
}

/* Where the gradient of a join's output is complete just before the join gets it. */
static void note_sums(struct dp_model *m)
{
    for (int i = 0; i + 1 < m->node_count; i++) {
        const struct dp_node *next = &m->nodes[i + 1];
        const int added = next->x2 >= 0 ? next->x2 : next->x;

        m->nodes[i].sum_after =
            m->nodes[i].type->backward_whole != NULL && next->add_y >= 0 && added == m->nodes[i].y;
    }
}

static void place_gradients(struct slots *s)
{
    struct dp_model *m = s->model;
    const int last = m->nodes[m->node_count - 1].y;

    for (int i = 0; i < m->value_count; i++) {
        s->gradient_of[i] = -1;
    }
    m->slot_count = m->slot_memory_count = 0;
    s->gradient_of[last] = slot_take(s, last, m->segment_count - 1);
    for (int i = m->node_count - 1; i >= 0; i--) {
        place_gradient(s, &m->nodes[i]);
    }
    note_sums(m);
}

dp_status dp_model_place(struct dp_model *m)
{
    const size_t most = DP_SLOTS_MOST((size_t)m->node_count);
    struct slots s = {.model = m};
    dp_status status = DP_OK;

    cut_segments(m);
    end_at_parts(m);
    note_readers(m);
    place_values(m);
    s.users = dp_zalloc(most, sizeof(*s.users));
    s.taken_in = dp_zalloc(most, sizeof(*s.taken_in));
    s.freed_in = dp_zalloc(most, sizeof(*s.freed_in));
    s.newest = dp_zalloc(most, sizeof(*s.newest));
    s.gradient_of = dp_zalloc((size_t)m->value_count, sizeof(*s.gradient_of));
    if (s.users == NULL || s.taken_in == NULL || s.freed_in == NULL || s.newest == NULL ||
        s.gradient_of == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "placing %d layers", m->node_count);
    } else {
        place_gradients(&s);
    }
    dp_free(s.users);
    dp_free(s.taken_in);
    dp_free(s.freed_in);
    dp_free(s.newest);
    dp_free(s.gradient_of);
    return status;
}

/* A value is a part of its segment's row, so its tile never exceeds the bytes of a thread, or
 * DP_TILE_ROWS_MIN rows: see dp_segment_tile(). */
size_t dp_storage_stride(const struct dp_storage *storage, size_t rows, struct dp_tiles tiles)
{
    const size_t all = storage->count * ((rows + tiles.threads - 1) / tiles.threads);
    const size_t least = storage->count * DP_TILE_ROWS_MIN, most = tiles.bytes / sizeof(float);
    const size_t elements = least > most ? least : most;

    return dp_round_up(elements < all ? elements : all, DP_BLOCK);
}

size_t dp_storage_elements(const struct dp_storage *storage, size_t rows, struct dp_tiles tiles)
{
    return storage->tile && tiles.bytes > 0
               ? dp_storage_stride(storage, rows, tiles) * tiles.threads
               : dp_round_up(storage->count * rows, DP_BLOCK);
}

/* Memory for the whole pass comes first; after it, all from the same place, that of each part.
 * Parts are numbered in the order of memories. */
size_t dp_storage_layout(const struct dp_storage *storage, int count, size_t rows,
                         struct dp_tiles tiles, size_t *begin)
{
    size_t kept = 0, most, at;

    for (int i = 0; i < count; i++) {
        if (storage[i].part == 0) {
            if (begin != NULL) {
                begin[i] = kept;
            }
            kept += dp_storage_elements(&storage[i], rows, tiles);
        }
    }
    most = at = kept;
    for (int i = 0, part = 0; i < count; i++) {
        if (storage[i].part != 0) {
            at = storage[i].part == part ? at : kept;
            part = storage[i].part;
            if (begin != NULL) {
                begin[i] = at;
            }
            at += dp_storage_elements(&storage[i], rows, tiles);
            most = at > most ? at : most;
        }
    }
    return most;
}
