#include "runtime/report/step_terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/report/ledger.h"

/* A rank that is last at so many buckets is late by itself, not by chance. */
static const double nearly_all = 0.75;

static double known(double ms)
{
    return isfinite(ms) ? ms : 0.0;
}

/* The parts of a rank's step; one that a damaged file lacks is 0. */
static void read_parts(const struct dp_run_rank *rank, double ms[DP_STEP_PART_COUNT])
{
    for (int p = 0; p < DP_STEP_PART_COUNT; p++) {
        ms[p] = known(rank->step_ms[p]);
    }
}

static double step_of(const struct dp_run_rank *rank)
{
    double sum = 0.0;

    for (int p = 0; p < DP_STEP_PART_COUNT; p++) {
        sum += known(rank->step_ms[p]);
    }
    return sum;
}

static void add_means(const struct dp_run_summary *s, struct dp_step_terms *t)
{
    for (int i = 0; i < s->rank_count; i++) {
        const double n = s->rank_count;
        double ms[DP_STEP_PART_COUNT];
        read_parts(&s->ranks[i], ms);
        t->step = fmax(t->step, step_of(&s->ranks[i]));
        t->input += ms[DP_PART_INPUT] / n;
        t->compute += dp_compute_ms(ms) / n;
        t->passes += (ms[DP_PART_FORWARD] + ms[DP_PART_BACKWARD]) / n;
        t->optimizer += ms[DP_PART_OPTIMIZER] / n;
        t->checkpoint += ms[DP_PART_CHECKPOINT] / n;
        t->exposed += ms[DP_PART_EXPOSED] / n;
        t->exposed_most = fmax(t->exposed_most, ms[DP_PART_EXPOSED]);
        t->hidden += known(s->ranks[i].hidden_comm_ms) / n;
    }
}

/* What threads did. Of a run that does not know it, all is 0. */
static void add_use(const struct dp_run_summary *s, struct dp_step_terms *t)
{
    for (int i = 0; i < s->rank_count; i++) {
        const struct dp_run_rank *rank = &s->ranks[i];
        const double each_ms = step_of(rank) / s->rank_count;
        t->input_used += fmax(rank->input_cores, 0.0) * each_ms; /* of NaN: 0 */
        t->used += (fmax(rank->input_cores, 0.0) + fmax(rank->compute_cores, 0.0) +
                    fmax(rank->communication_cores, 0.0)) *
                   each_ms;
        t->queued += fmax(rank->queued, 0.0) * each_ms;
        if (rank->paging_ms > t->paging) {
            t->paging = rank->paging_ms;
            t->paged = i;
        }
    }
}

/* What a rank alone would not need, and what no rank is without. */
static void add_least(const struct dp_run_summary *s, struct dp_step_terms *t)
{
    t->contended = t->overhead = (double)INFINITY;
    for (int i = 0; i < s->rank_count; i++) {
        const struct dp_run_rank *rank = &s->ranks[i];
        const double lost = dp_compute_ms(rank->step_ms) * (1.0 - rank->compute_efficiency) -
                            fmax(rank->paging_ms, 0.0);
        t->contended = isnan(lost) || lost < t->contended ? lost : t->contended;
        t->overhead = fmin(t->overhead, rank->step_ms[DP_PART_OTHER]);
    }
    t->contended = fmax(t->contended, 0.0); /* of NaN: 0 */
}

/* ---- who comes last ---- */

/* By arrival at buckets, where that was measured. */
static int last_by_arrival(const struct dp_run_summary *s)
{
    for (int i = 0; i < s->straggler_count && i < s->rank_count; i++) {
        if (s->stragglers[i].last_at >= nearly_all) {
            return i;
        }
    }
    return -1;
}

/* Else it is the one that waits least. */
static int last_by_waiting(const struct dp_run_summary *s)
{
    int last = 0;

    for (int i = 1; i < s->rank_count; i++) {
        last = s->ranks[i].step_ms[DP_PART_EXPOSED] < s->ranks[last].step_ms[DP_PART_EXPOSED]
                   ? i
                   : last;
    }
    return s->rank_count > 1 ? last : -1;
}

/* The part that exceeds the mean of the other ranks by most. */
static enum dp_step_part longest_excess(const struct dp_run_summary *s, int rank)
{
    enum dp_step_part part = DP_PART_OTHER;
    double most = -(double)INFINITY;

    for (int p = 0; p < DP_STEP_PART_COUNT; p++) {
        double others = 0.0;
        for (int i = 0; i < s->rank_count; i++) {
            others += i == rank ? 0.0 : s->ranks[i].step_ms[p] / (s->rank_count - 1);
        }
        if (p != DP_PART_EXPOSED && s->ranks[rank].step_ms[p] - others > most) {
            most = s->ranks[rank].step_ms[p] - others;
            part = (enum dp_step_part)p;
        }
    }
    return part;
}

/* Waiting, as it makes the efficiency smaller (efficiency.h): from both factors follows the step
 * before them, and from that each. */
static double waiting_by_efficiency(const struct dp_run_summary *s, double exposed)
{
    const double both = s->efficiency_exposed * s->efficiency_waiting;
    const double before = exposed * both / (1.0 - both);

    return exposed - (before / s->efficiency_exposed - before);
}

/* Arrivals also see ranks that are late in turns; the means of what ranks wait also see what one of
 * them does before or after its gradients. */
static void add_waiting(const struct dp_run_summary *s, struct dp_step_terms *t)
{
    const int least = last_by_waiting(s);
    const double by_means = least < 0 ? 0.0 : t->exposed - s->ranks[least].step_ms[DP_PART_EXPOSED];
    const double by_arrival =
        s->straggler_count > 0 ? fmax(waiting_by_efficiency(s, t->exposed), 0.0) : 0.0;

    t->late = by_means > by_arrival ? least : last_by_arrival(s);
    t->late_part = t->late < 0 ? DP_PART_OTHER : longest_excess(s, t->late);
    t->waiting = fmin(fmax(by_means, by_arrival), t->exposed);
    t->sending = t->exposed - t->waiting;
}

/* ---- where ranks are ---- */

/* The number of cores in a list such as "0-3,8". */
static int cores_in(const char *cpus)
{
    int count = 0;

    while (*cpus != '\0') {
        char *end;
        const long first = strtol(cpus, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (end == cpus) {
            break;
        }
        count += (int)(last - first) + 1;
        cpus = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* Ranks with the same list on the same host, and their threads, against its cores. */
static void add_places(const struct dp_run_summary *s, struct dp_step_terms *t)
{
    for (int i = 0; i < s->rank_count; i++) {
        const struct dp_run_rank *mine = &s->ranks[i];
        int64_t threads = 0;
        int sharers = 0;
        bool first = true;
        for (int k = 0; k < s->rank_count; k++) {
            const struct dp_run_rank *other = &s->ranks[k];
            const bool together = strcmp(mine->host, other->host) == 0;
            first = first && !(together && k < i);
            if (together && strcmp(mine->cpus, other->cpus) == 0) {
                threads += other->threads;
                sharers++;
            }
        }
        t->cores = i == 0 ? (double)cores_in(mine->cpus) / sharers : t->cores;
        t->hosts += first;
        if (cores_in(mine->cpus) > 0) {
            t->crowding = fmax(t->crowding, (double)threads / cores_in(mine->cpus));
        }
    }
}

/* CPUs that threads of a rank kept busy. */
static double own_cpus(const struct dp_run_rank *rank)
{
    return rank->compute_cores + rank->communication_cores + rank->input_cores +
           rank->writer_cores + rank->other_cores;
}

/* What is busy on a rank's CPUs and not of the ranks there is of other programs. A rank loses time
 * to them as far as its main thread waited for a core. */
static void add_others(const struct dp_run_summary *s, struct dp_step_terms *t)
{
    for (int i = 0; i < s->rank_count; i++) {
        const struct dp_run_rank *mine = &s->ranks[i];
        double others = mine->busy_cores, lost;

        /* The kernel may count time late, so more of it in a short run than there was. */
        others = others > cores_in(mine->cpus) ? cores_in(mine->cpus) : others;
        for (int k = 0; k < s->rank_count; k++) {
            const struct dp_run_rank *rank = &s->ranks[k];
            const bool there =
                strcmp(mine->host, rank->host) == 0 && strcmp(mine->cpus, rank->cpus) == 0;
            others -= there ? own_cpus(rank) : 0.0;
        }
        lost = fmin(others * step_of(mine), mine->queued_ms);
        if (lost > t->others && isfinite(others)) {
            t->others = lost;
            t->disturbed = i;
            t->others_cpus = others;
            t->disturbed_cpus = cores_in(mine->cpus);
        }
    }
}

bool dp_step_terms_find(const struct dp_run_summary *s, struct dp_step_terms *out)
{
    struct dp_step_terms t = {.late = -1, .crowding = 1.0};

    add_means(s, &t);
    if (s->rank_count == 0 || !(t.step > 0.0) || !(t.compute > 0.0)) {
        return false;
    }
    add_use(s, &t);
    add_least(s, &t);
    add_waiting(s, &t);
    add_places(s, &t);
    add_others(s, &t);
    if (s->limit_larger > 0.0) {
        t.launch = t.passes * fmax(1.0 - s->limit_larger / DP_LARGER_BATCH, 0.0);
    }
    *out = t;
    return true;
}
