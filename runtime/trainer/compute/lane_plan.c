#include "runtime/trainer/compute/lane_plan.h"

bool dp_lanes_synchronised(const struct dp_model *model)
{
    bool any = false;

    for (int i = 0; i < model->node_count; i++) {
        any = any || model->nodes[i].plan.synchronised;
    }
    return any;
}

int dp_lanes_workers(const struct dp_model *model, int count, int threads)
{
    const bool all = dp_lanes_synchronised(model);
    int workers = 1;

    while (workers < count && (all || 2 * workers <= threads)) {
        workers *= 2;
    }
    return workers;
}

int dp_lanes_extra_gradients(int count, int workers)
{
    int levels = 1;

    for (int block = count / workers; block > 1; block /= 2) {
        levels++;
    }
    return workers * levels - 1;
}

int dp_lane_depth(int lane)
{
    int depth = 0;

    for (; lane > 0; lane &= lane - 1) {
        depth++;
    }
    return depth;
}

int dp_lane_merges(int lane)
{
    int merges = 0;

    for (; (lane & 1) != 0; lane >>= 1) {
        merges++;
    }
    return merges;
}
