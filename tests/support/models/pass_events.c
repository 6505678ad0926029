#include "tests/support/models/pass_events.h"

#include "tests/support/arrays.h"

/* What backward reads, by the name of the type, besides dy; y after a fused relu comes on top. */
static bool backward_reads_x(const struct dp_node *node)
{
    static const char *const names[] = {"dense",      "conv2d",    "batchnorm",
                                        "statistics", "groupnorm", "layernorm",
                                        "gelu",       "silu",      "leaky_relu"};

    for (size_t i = 0; i < DP_COUNT(names); i++) {
        if (strcmp(node->type->plugin.name, names[i]) == 0) {
            return true;
        }
    }
    return node->owner >= 0 &&
           node->type->is_whole != NULL; /* a join with its batch norm's state */
}

static bool backward_reads_y(const struct dp_node *node)
{
    const char *name = node->type->plugin.name;

    return strcmp(name, "relu") == 0 ||
           (node->act != DP_ACT_NONE && strcmp(name, "batchnorm") != 0);
}

static int of_value(const struct dp_model *m, int value)
{
    return m->values[value].storage;
}

static int of_slot(const struct dp_model *m, int slot)
{
    return m->storage_count + slot;
}

static void reads(struct pass_event *e, int memory)
{
    assert_true(e->read_count < EVENT_READS);
    e->reads[e->read_count++] = memory;
}

static void writes(struct pass_event *e, int memory)
{
    assert_true(e->write_count < EVENT_WRITES);
    e->writes[e->write_count++] = memory;
}

static struct pass_event *add(struct pass_events *all, enum event_kind kind, int node)
{
    struct pass_event *e = &all->events[all->count++];

    *e = (struct pass_event){.kind = kind, .node = node};
    return e;
}

static void add_forward(struct pass_events *all, enum event_kind kind, int n)
{
    const struct dp_model *m = all->model;
    const struct dp_node *node = &m->nodes[n];
    struct pass_event *e = add(all, kind, n);

    reads(e, of_value(m, node->x));
    if (node->x2 >= 0) {
        reads(e, of_value(m, node->x2));
    }
    if (of_value(m, node->x) == of_value(m, node->y)) {
        assert_true(node->plan.alias || node->plan.y_in_x);
    } else {
        writes(e, of_value(m, node->y));
    }
}

/* The sum of branches, which the node before may do instead, reading the same later. */
static void add_sum(const struct dp_model *m, const struct dp_node *node, struct pass_event *e)
{
    if (node->add_y >= 0) {
        reads(e, of_slot(m, node->add_a));
        reads(e, of_slot(m, node->add_b));
        if (node->add_y != node->add_a && node->add_y != node->add_b) {
            writes(e, of_slot(m, node->add_y));
        }
    }
}

static void add_backward(struct pass_events *all, int n)
{
    const struct dp_model *m = all->model;
    const struct dp_node *node = &m->nodes[n];
    struct pass_event *e;
    int dy = node->dy_slot;

    if (dy < 0) {
        return;
    }
    e = add(all, EVENT_BACKWARD, n);
    reads(e, of_slot(m, dy));
    if (backward_reads_x(node)) {
        reads(e, of_value(m, node->x));
    }
    if (backward_reads_y(node)) {
        reads(e, of_value(m, node->y));
    }
    if (node->sum_after) {
        reads(e, of_slot(m, node[1].add_a));
        reads(e, of_slot(m, node[1].add_b));
    }
    if (node->mask_slot >= 0 && node->mask_slot != dy) {
        writes(e, of_slot(m, node->mask_slot));
    }
    dy = node->mask_slot >= 0 ? node->mask_slot : dy;
    if (node->type->backward_data != NULL && node->dx_slot >= 0) {
        e = add(all, EVENT_BACKWARD_DATA, n);
        reads(e, of_slot(m, dy));
    }
    if (node->dx_slot >= 0 && node->dx_slot != dy) {
        writes(e, of_slot(m, node->dx_slot));
    }
    add_sum(m, node, e);
}

static void add_again(struct pass_events *all, int part)
{
    const struct dp_model *m = all->model;

    for (int n = 0; n < m->node_count; n++) {
        if (m->nodes[n].part == part && m->nodes[n].again) {
            add_forward(all, EVENT_AGAIN, n);
        }
    }
}

static void add_pass(struct pass_events *all, enum dp_pass_use use)
{
    const struct dp_model *m = all->model;
    const int last = m->node_count - 1;

    for (int n = 0; n <= last; n++) {
        add_forward(all, EVENT_FORWARD, n);
    }
    struct pass_event *e = add(all, EVENT_LOSS, last);
    reads(e, of_value(m, m->nodes[last].y));
    if (use != DP_PASS_EVALUATES) {
        writes(e, of_slot(m, m->nodes[last].dy_slot));
        for (int n = last; n >= 0; n--) {
            if (n < last && m->nodes[n].part != m->nodes[n + 1].part) {
                add_again(all, m->nodes[n].part);
            }
            add_backward(all, n);
        }
    }
}

/* From the last event to the first: memory is in use until it is written from anew. */
static void find_used(struct pass_events *all, enum dp_pass_use use)
{
    const struct dp_model *m = all->model;
    bool *now = dp_zalloc((size_t)all->memories, sizeof(*now));

    assert_non_null(now);
    now[of_value(m, 0)] = now[of_value(m, m->nodes[m->node_count - 1].y)] = true;
    for (int v = 0; use == DP_PASS_TRAINS_KEPT && v < m->value_count; v++) {
        const bool kept = m->values[v].kept && m->storage[of_value(m, v)].part == 0;
        now[of_value(m, v)] = now[of_value(m, v)] || kept;
    }
    for (int i = all->count - 1; i >= 0; i--) {
        const struct pass_event *e = &all->events[i];
        for (int k = 0; k < e->read_count; k++) {
            now[e->reads[k]] = true;
        }
        for (int k = 0; k < e->write_count; k++) {
            now[e->writes[k]] = true;
        }
        memcpy(all->used + (size_t)i * (size_t)all->memories, now,
               (size_t)all->memories * sizeof(*now));
        for (int k = 0; k < e->write_count; k++) {
            now[e->writes[k]] = false;
        }
    }
    for (int k = 0; k < all->memories; k++) {
        assert_true(!now[k] || k == of_value(m, 0)); /* nothing is read before it is written */
    }
    dp_free(now);
}

struct pass_events pass_events_of(const struct dp_model *model, enum dp_pass_use use)
{
    struct pass_events all = {.model = model, .memories = model->storage_count + model->slot_count};
    const size_t most = 4 * (size_t)model->node_count + 1;

    all.events = dp_zalloc(most, sizeof(*all.events));
    all.used = dp_zalloc(most * (size_t)all.memories, sizeof(*all.used));
    assert_non_null(all.events);
    assert_non_null(all.used);
    add_pass(&all, use);
    find_used(&all, use);
    return all;
}

void pass_events_release(struct pass_events *events)
{
    dp_free(events->events);
    dp_free(events->used);
}

int pass_event_find(const struct pass_events *events, enum event_kind kind, int node)
{
    for (int i = 0; i < events->count; i++) {
        if (events->events[i].kind == kind && events->events[i].node == node) {
            return i;
        }
    }
    fail_msg("no event %d of node %d", (int)kind, node);
    return -1;
}

size_t memory_count(const struct dp_model *m, int memory)
{
    return memory < m->storage_count ? m->storage[memory].count
                                     : m->slots[memory - m->storage_count].count;
}
