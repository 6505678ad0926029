#include "collectives/strategies/cost.h"

#include "collectives/strategies/segmented.h"

struct dp_curve *dp_cost_curve(struct dp_cost *cost, int i, const char **name)
{
    static const char *const names[] = {"node", "wire", "add", "whole", "sum", "copy", "peer"};
    struct dp_curve *const curves[] = {&cost->exchange[DP_LINK_NODE],
                                       &cost->exchange[DP_LINK_WIRE],
                                       &cost->add,
                                       &cost->whole,
                                       &cost->sum,
                                       &cost->copy,
                                       &cost->peer};

    if (i < 0 || (size_t)i >= sizeof(curves) / sizeof(curves[0])) {
        return NULL;
    }
    *name = names[i];
    return curves[i];
}

double dp_curve_at(const struct dp_curve *curve, double bytes)
{
    const int last = curve->count - 1;
    int i = 1;

    if (curve->count == 0) {
        return 0.0;
    }
    if (bytes <= curve->bytes[0]) {
        return curve->seconds[0];
    }
    if (bytes >= curve->bytes[last]) { /* a fixed latency counts once, at any size */
        const double start = last > 0 ? curve->seconds[0] : 0.0;
        const double rest = curve->seconds[last] > start ? curve->seconds[last] - start : 0.0;
        return curve->seconds[last] + rest * (bytes / curve->bytes[last] - 1.0);
    }
    while (curve->bytes[i] < bytes) {
        i++;
    }
    const double part = (bytes - curve->bytes[i - 1]) / (curve->bytes[i] - curve->bytes[i - 1]);
    return curve->seconds[i - 1] + part * (curve->seconds[i] - curve->seconds[i - 1]);
}

void dp_curve_fit(const struct dp_curve *curve, double *alpha, double *beta)
{
    double w = 0.0, wx = 0.0, wy = 0.0, wxx = 0.0, wxy = 0.0, determinant;

    /* Least squares with weights 1 / seconds^2: a microsecond matters for short messages. */
    for (int i = 0; i < curve->count; i++) {
        if (curve->seconds[i] <= 0.0) { /* shorter than the clock's resolution */
            continue;
        }
        const double weight = 1.0 / (curve->seconds[i] * curve->seconds[i]);
        w += weight;
        wx += weight * curve->bytes[i];
        wy += weight * curve->seconds[i];
        wxx += weight * curve->bytes[i] * curve->bytes[i];
        wxy += weight * curve->bytes[i] * curve->seconds[i];
    }
    determinant = w * wxx - wx * wx;
    *alpha = determinant > 0.0 ? (wxx * wy - wx * wxy) / determinant : 0.0;
    *alpha = *alpha > 0.0 ? *alpha : 0.0;
    *beta = wxx > 0.0 ? (wxy - *alpha * wx) / wxx : 0.0;
    if (*beta < 0.0) {
        *alpha = wy / w;
        *beta = 0.0;
    }
}

void dp_cost_fit(struct dp_cost *cost)
{
    double start; /* initial value of a sum: not in the model */

    for (int i = 0; i < DP_LINK_COUNT; i++) {
        dp_curve_fit(&cost->exchange[i], &cost->alpha[i], &cost->beta[i]);
    }
    dp_curve_fit(&cost->sum, &start, &cost->gamma);
}

/* Whether ranks at this distance are on one node. */
static bool near(const struct dp_group *group, int distance)
{
    return dp_group_one_node(group) || distance < group->local_size;
}

double dp_cost_exchange(const struct dp_cost *cost, const struct dp_group *group, int distance,
                        double bytes)
{
    if (near(group, distance)) {
        return dp_curve_at(&cost->exchange[DP_LINK_NODE], bytes);
    }
    return dp_curve_at(&cost->exchange[DP_LINK_WIRE], bytes * group->local_size);
}

double dp_cost_neighbour(const struct dp_cost *cost, const struct dp_group *group, double bytes)
{
    const enum dp_link link = dp_group_one_node(group) ? DP_LINK_NODE : DP_LINK_WIRE;

    return dp_curve_at(&cost->exchange[link], bytes);
}

double dp_cost_exchange_add(const struct dp_cost *cost, const struct dp_group *group, int distance,
                            double bytes)
{
    if (near(group, distance) && cost->add.count > 0) {
        return dp_curve_at(&cost->add, bytes);
    }
    return dp_cost_exchange(cost, group, distance, bytes) + dp_curve_at(&cost->sum, bytes);
}

double dp_cost_neighbour_add(const struct dp_cost *cost, const struct dp_group *group, double bytes)
{
    if (dp_group_one_node(group) && cost->add.count > 0) {
        return dp_curve_at(&cost->add, bytes);
    }
    return dp_cost_neighbour(cost, group, bytes) + dp_curve_at(&cost->sum, bytes);
}

double dp_cost_ring(const struct dp_cost *cost, const struct dp_group *group, double bytes)
{
    const double chunk = bytes / group->size;

    return (group->size - 1) *
           (dp_cost_neighbour_add(cost, group, chunk) + dp_cost_neighbour(cost, group, chunk));
}

double dp_cost_doubling(const struct dp_cost *cost, const struct dp_group *group, double bytes)
{
    const int power = dp_segmented_core(group->size);
    double seconds = 0.0;

    for (int distance = 1; distance < power; distance *= 2) {
        seconds += dp_cost_exchange_add(cost, group, distance, bytes);
    }
    if (power < group->size) {
        seconds +=
            dp_cost_exchange_add(cost, group, 1, bytes) + dp_cost_exchange(cost, group, 1, bytes);
    }
    return seconds;
}

double dp_cost_rabenseifner(const struct dp_cost *cost, const struct dp_group *group, double bytes)
{
    const int power = dp_segmented_core(group->size);
    double seconds = 0.0, part = bytes / 2.0;

    if (power < group->size) { /* fold: swap and add halves, return one; at the end send the
                                * whole */
        seconds = dp_cost_exchange_add(cost, group, 1, part) +
                  dp_cost_exchange(cost, group, 1, part) + dp_cost_exchange(cost, group, 1, bytes);
    }
    for (int distance = 1; distance < power; distance *= 2, part /= 2.0) {
        seconds += dp_cost_exchange_add(cost, group, distance, part) +
                   dp_cost_exchange(cost, group, distance, part);
    }
    return seconds;
}
