#include "models/model_parts.h"

#include <string.h>

#include "base/mem.h"

/* What the cuts are found from, for each node. */
struct cuts {
    int *handed;   /* values and other links from nodes before it to it or later ones */
    bool *whole;   /* one of these values has memory for all rows anyway */
    size_t *bytes; /* per sample, of what it alone writes and backward reads; float32 */
};

/* Of two nodes that cannot be on two sides of a cut, or that one value joins. */
static void link_nodes(struct cuts *c, int from, int to, bool whole)
{
    for (int n = from + 1; n <= to; n++) {
        c->handed[n]++;
        c->whole[n] = whole;
    }
}

static void note_links(const struct dp_model *m, struct cuts *c)
{
    for (int v = 0; v < m->value_count; v++) {
        const struct dp_value *value = &m->values[v];
        link_nodes(c, value->writer < 0 ? 0 : value->writer, value->last_reader,
                   !m->storage[value->storage].tile);
    }
    for (int i = 0; i < m->node_count; i++) { /* to the one whose `local` it uses */
        const int owner = m->nodes[i].owner;
        link_nodes(c, i < owner ? i : owner, i < owner ? owner : i, false);
    }
}

static void note_bytes(const struct dp_model *m, struct cuts *c)
{
    int seen = 1; /* memories; the first is the input's */

    for (int i = 0; i < m->node_count; i++) {
        const int storage = m->values[m->nodes[i].y].storage;
        if (storage == seen) {
            c->bytes[i] += m->storage[storage].tile ? 0 : m->storage[storage].count * sizeof(float);
            seen++;
        }
        c->bytes[i] += m->nodes[i].plan.saved_bytes;
    }
}

static void cuts_release(struct cuts *c)
{
    dp_free(c->handed);
    dp_free(c->whole);
    dp_free(c->bytes);
}

/* Of a model in one part. */
static dp_status cuts_find(const struct dp_model *m, struct cuts *c)
{
    const size_t n = (size_t)m->node_count;

    c->handed = dp_zalloc(n, sizeof(*c->handed));
    c->whole = dp_zalloc(n, sizeof(*c->whole));
    c->bytes = dp_zalloc(n, sizeof(*c->bytes));
    if (c->handed == NULL || c->whole == NULL || c->bytes == NULL) {
        cuts_release(c);
        return DP_FAIL(DP_ERR_NOMEM, "parts of %d layers", m->node_count);
    }
    note_links(m, c);
    note_bytes(m, c);
    return DP_OK;
}

static bool may_cut(const struct cuts *c, int node)
{
    return node > 0 && c->handed[node] == 1 && c->whole[node];
}

static int count_parts(const struct dp_model *m, const struct cuts *c)
{
    int most = 1;

    for (int n = 1; n < m->node_count; n++) {
        most += may_cut(c, n);
    }
    return most;
}

/* What is written from a cut to the next one. */
static size_t bytes_to_cut(const struct dp_model *m, const struct cuts *c, int node)
{
    size_t bytes = c->bytes[node];

    for (int n = node + 1; n < m->node_count && !may_cut(c, n); n++) {
        bytes += c->bytes[n];
    }
    return bytes;
}

/* Numbers the nodes' parts: as many as `parts`, none of which writes more than `bytes`. false: so
 * many do not do. */
static bool fill(struct dp_model *m, const struct cuts *c, int parts, size_t bytes)
{
    int part = 1, left = count_parts(m, c) - 1; /* cuts that are left */
    size_t filled = 0;

    for (int n = 0; n < m->node_count; n++) {
        if (n == 0 || may_cut(c, n)) {
            const size_t next = bytes_to_cut(m, c, n);
            const bool must = parts - part == left; /* to have as many parts at all */
            const bool begins = n > 0 && (must || filled + next > bytes);
            part += begins;
            filled = begins ? next : filled + next;
            left -= n > 0;
            if (part > parts || next > bytes) {
                return false;
            }
        }
        m->nodes[n].part = part;
    }
    return true;
}

static void cut_evenly(struct dp_model *m, const struct cuts *c, int parts)
{
    size_t least = 0, most = 0;

    for (int n = 0; n < m->node_count; n++) {
        most += c->bytes[n];
    }
    while (least < most) {
        const size_t middle = least + (most - least) / 2;
        if (fill(m, c, parts, middle)) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    (void)fill(m, c, parts, most); /* all in one part fits, too, and `must` makes more */
}

/* Whether a value must be written again before backward of its part: layers of the part read it in
 * backward, or in what is computed again, and it is not there any more. */
static bool is_missing(const struct dp_model *m, const int *writers, int value)
{
    const int storage = m->values[value].storage;

    return m->storage[storage].part != 0 || writers[storage] > 1;
}

/* Marks what is computed again: from the last layer of a part to its first. */
static void mark_again(struct dp_model *m, const int *writers, bool *needed)
{
    const int last = m->nodes[m->node_count - 1].part;

    for (int i = m->node_count - 1; i >= 0; i--) {
        struct dp_node *node = &m->nodes[i];
        const int part = node->part;
        const struct dp_value *y = &m->values[node->y];
        const bool leaves = y->last_reader >= 0 && m->nodes[y->last_reader].part != part &&
                            writers[y->storage] > 1; /* its memory is written over meanwhile */
        const bool writes =
            (is_missing(m, writers, node->y) && (y->kept || needed[node->y] || leaves)) ||
            node->plan.saved_bytes > 0;
        if (part == last || !writes) {
            continue;
        }
        node->again = !node->plan.alias;
        needed[node->x] = true;
        if (node->x2 >= 0) {
            needed[node->x2] = true;
        }
    }
}

static dp_status find_again(struct dp_model *m)
{
    int *writers = dp_zalloc((size_t)m->storage_count, sizeof(*writers));
    bool *needed = dp_zalloc((size_t)m->value_count, sizeof(*needed));
    dp_status status = DP_OK;

    if (writers == NULL || needed == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "parts of %d layers", m->node_count);
    } else {
        for (int i = 0; i < m->node_count; i++) {
            writers[m->values[m->nodes[i].y].storage] += !m->nodes[i].plan.alias;
        }
        mark_again(m, writers, needed);
    }
    dp_free(writers);
    dp_free(needed);
    return status;
}

/* In one part. */
static dp_status make_whole(struct dp_model *m)
{
    for (int i = 0; i < m->node_count; i++) {
        m->nodes[i].part = 0;
        m->nodes[i].again = false;
    }
    return dp_model_place(m);
}

dp_status dp_model_cut(struct dp_model *m, int parts)
{
    struct cuts c;

    DP_TRY(make_whole(m));
    if (parts == 1) {
        return dp_model_lay_out(m);
    }
    DP_TRY(cuts_find(m, &c));
    cut_evenly(m, &c, parts);
    cuts_release(&c);
    DP_TRY(dp_model_place(m));
    DP_TRY(find_again(m));
    return dp_model_lay_out(m);
}

dp_status dp_model_parts_most(struct dp_model *m, int *most)
{
    struct cuts c;

    DP_TRY(make_whole(m));
    DP_TRY(cuts_find(m, &c));
    *most = count_parts(m, &c);
    cuts_release(&c);
    return dp_model_lay_out(m);
}

int dp_model_parts(const struct dp_model *m)
{
    const int last = m->nodes[m->node_count - 1].part;

    return last > 0 ? last : 1;
}

double dp_model_again(const struct dp_model *m)
{
    double again = 0.0, all = 0.0;

    for (int i = 0; i < m->node_count; i++) {
        const struct dp_node *node = &m->nodes[i];
        again += node->again ? node->plan.flops : 0.0;
        all += dp_node_flops(node);
    }
    return all > again ? again / (all - again) : 0.0;
}
