/*
 * model_place.c - where activations and their gradients lie.
 *
 * Activations are kept from forward to backward, so each value has memory of its own, but where a
 * layer may write over its input. Gradients live shortly: a slot is taken when a gradient is
 * written and given back when it was read, so a chain of layers needs two or three of them.
 */
#include "models/model.h"

#include "base/mem.h"

/* Whether `node` may write its output over its input: nobody else needs the input any more. */
static bool may_overwrite(const struct dp_model *m, const struct dp_node *node)
{
    const struct dp_value *x = &m->values[node->x];

    for (;;) {
        const struct dp_node *writer;
        if (x->writer < 0 || x->readers > 1) {
            return false; /* the input batch, or another layer reads it too */
        }
        writer = &m->nodes[x->writer];
        if (!writer->plan.alias) {
            return !writer->plan.reads_y &&
                   (writer->act == DP_ACT_NONE || writer->plan.mask_from_x);
        }
        x = &m->values[writer->x]; /* the same memory under another shape */
    }
}

static void place_values(struct dp_model *m)
{
    m->values[0].storage = m->storage_count;
    m->storage[m->storage_count++] = m->values[0].count;
    for (int i = 0; i < m->node_count; i++) {
        struct dp_node *node = &m->nodes[i];
        struct dp_value *y = &m->values[node->y];

        if (node->plan.alias || (node->plan.y_in_x && may_overwrite(m, node))) {
            y->storage = m->values[node->x].storage;
        } else {
            y->storage = m->storage_count;
            m->storage[m->storage_count++] = y->count;
        }
        node->saved_at = m->saved_bytes;
        m->saved_bytes += dp_round_up(node->plan.saved_bytes, DP_BLOCK);
        node->local_at = m->local;
        m->local += dp_round_up(node->plan.local, DP_BLOCK);
    }
}

/* The slots while backward is played through: how many gradients lie in each. */
struct slots {
    struct dp_model *model;
    int *users;       /* of each slot; 0: free */
    int *gradient_of; /* slot of each value's gradient; -1: none yet */
};

static int slot_take(struct slots *s, size_t count)
{
    int best = -1;

    for (int i = 0; i < s->model->slot_count; i++) {
        if (s->users[i] == 0 && (best < 0 || s->model->slots[i] > s->model->slots[best])) {
            best = i;
        }
    }
    if (best < 0) {
        best = s->model->slot_count++;
    }
    if (s->model->slots[best] < count) {
        s->model->slots[best] = count;
    }
    s->users[best] = 1;
    return best;
}

/* Value v gets the gradient in `slot`, which counts as its user. If it has one already (two layers
 * read v), the node adds both up. */
static void contribute(struct slots *s, struct dp_node *node, int v, int slot)
{
    const int before = s->gradient_of[v];
    int sum;

    if (before < 0) {
        s->gradient_of[v] = slot;
        return;
    }
    if (s->users[before] == 1) {
        sum = before;
    } else if (s->users[slot] == 1) {
        sum = slot;
    } else {
        sum = slot_take(s, s->model->values[v].count);
        s->users[sum]--; /* counted below */
    }
    node->add_y = sum;
    node->add_a = before;
    node->add_b = slot;
    s->users[sum]++;
    s->users[before]--;
    s->users[slot]--;
    s->gradient_of[v] = sum;
}

/* What backward of this node reads and writes. */
static void place_gradient(struct slots *s, struct dp_node *node)
{
    const struct dp_value *values = s->model->values;
    const size_t count = values[node->y].count;
    int dy = s->gradient_of[node->y];

    node->dy_slot = dy;
    node->mask_slot = node->dx_slot = node->add_y = -1;
    if (node->act != DP_ACT_NONE && !node->plan.mask_from_x) {
        node->mask_slot = s->users[dy] == 1 ? dy : slot_take(s, count);
        if (node->mask_slot != dy) {
            s->users[dy]--;
            dy = node->mask_slot;
        }
    }
    if (node->x2 >= 0) { /* a join hands the same gradient to both branches */
        node->dx_slot = dy;
        s->gradient_of[node->x] = dy;
        if (node->x2 != 0) {
            s->users[dy]++;
            contribute(s, node, node->x2, dy);
        }
        return;
    }
    if (node->x == 0) { /* nobody wants the gradient of the input */
        s->users[dy]--;
        return;
    }
    if (node->plan.alias || (node->plan.dx_in_dy && s->users[dy] == 1)) {
        node->dx_slot = dy;
    } else {
        node->dx_slot = slot_take(s, values[node->x].count);
        s->users[dy]--;
    }
    contribute(s, node, node->x, node->dx_slot);
}

dp_status dp_model_place(struct dp_model *m)
{
    struct slots s = {m, NULL, NULL};
    const int last = m->nodes[m->node_count - 1].y;

    place_values(m);
    s.users = dp_zalloc(2 * (size_t)m->node_count + 2, sizeof(*s.users));
    s.gradient_of = dp_zalloc((size_t)m->value_count, sizeof(*s.gradient_of));
    if (s.users == NULL || s.gradient_of == NULL) {
        dp_free(s.users);
        dp_free(s.gradient_of);
        return DP_FAIL(DP_ERR_NOMEM, "placing %d layers", m->node_count);
    }
    for (int i = 0; i < m->value_count; i++) {
        s.gradient_of[i] = -1;
    }
    s.gradient_of[last] = slot_take(&s, m->values[last].count);
    for (int i = m->node_count - 1; i >= 0; i--) {
        place_gradient(&s, &m->nodes[i]);
    }
    dp_free(s.users);
    dp_free(s.gradient_of);
    return DP_OK;
}

size_t dp_model_activation_bytes(const struct dp_model *m, size_t rows, bool training)
{
    size_t each = 0;

    for (int i = 0; i < m->storage_count; i++) {
        each += m->storage[i];
    }
    for (int i = 0; training && i < m->slot_count; i++) {
        each += m->slots[i];
    }
    return rows * (each * sizeof(float) + (training ? m->saved_bytes : 0));
}
