#include "runtime/run/topology.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { LINE_BYTES = 512 };

static void draw_rank(const struct dp_run_job *job, struct dp_progress *progress, int rank)
{
    const struct dp_rank_place *p = &job->places[rank];

    dp_progress_line(progress, "    rank %d: host %s, cpus %s%s%s, %d thread%s%s%s", rank, p->host,
                     p->cpus, p->numa[0] == '\0' ? "" : ", NUMA node ", p->numa, p->threads,
                     dp_plural(p->threads), p->gpu[0] == '\0' ? "" : ", ", p->gpu);
}

static void draw_node(const struct dp_run_job *job, struct dp_progress *progress, int node)
{
    const struct dp_group *group = job->world->all;
    const struct dp_rank_place *first = &job->places[dp_group_leader(group, node)];
    int ranks = 0;

    for (int r = 0; r < group->size; r++) {
        ranks += group->node_of[r] == node ? 1 : 0;
    }
    dp_progress_line(progress, "  node %s: %d rank%s, %.0f GiB, %s", first->host, ranks,
                     dp_plural(ranks), (double)first->memory / 1073741824.0, first->isa);
    for (int r = 0; r < group->size; r++) {
        if (group->node_of[r] == node) {
            draw_rank(job, progress, r);
        }
    }
}

/* "0 2 | 1 3": node after node, as the ring strategy goes (strategy_ring.c). */
static void draw_ring(const struct dp_group *group, struct dp_progress *progress)
{
    char line[LINE_BYTES] = "";
    size_t used = 0;

    for (int node = 0; node < group->nodes; node++) {
        for (int r = 0; r < group->size && used + 16 < sizeof(line); r++) {
            if (group->node_of[r] == node) {
                used += (size_t)snprintf(line + used, sizeof(line) - used, " %d", r);
            }
        }
        if (node + 1 < group->nodes && used + 16 < sizeof(line)) {
            used += (size_t)snprintf(line + used, sizeof(line) - used, " |");
        }
    }
    dp_progress_line(progress, "  ring:%s%s; %d of its links are between nodes", line,
                     used + 16 < sizeof(line) ? "" : " ...", group->nodes);
}

void dp_run_draw_topology(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_group *group = job->world->all;

    for (int node = 0; node < group->nodes; node++) {
        draw_node(job, progress, node);
    }
    if (group->nodes > 1) {
        draw_ring(group, progress);
    }
}
