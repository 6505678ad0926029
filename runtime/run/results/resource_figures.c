/*
 * resource_figures.c - what a run has used, as figures of its report.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/gpu/gpu_peers.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/page/page_step.h"
#include "runtime/report/summary_read.h"
#include "runtime/run/results/resources.h"

static const double megabyte = 1048576.0, unknown = (double)NAN;

/* A GPU that is used less is an alarm, in a run that is long enough to tell. */
static const double gpu_use_least = 0.8;
static const uint64_t alarm_ns = 10000000000;

/* ---- one rank ---- */

static void describe_memory(struct dp_resources *r, const struct dp_run_job *job,
                            struct dp_run_rank *rank)
{
    const struct dp_memory_leak leak = dp_memory_use_leak(&r->memory);
    size_t counted[DP_MEM_PURPOSE_COUNT];
    int64_t bytes[DP_MEMORY_USE_COUNT], sum = 0;
    struct dp_memory_parts parts;

    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        counted[i] = dp_mem_bytes((enum dp_purpose)i);
        sum += (int64_t)counted[i];
    }
    dp_memory_group(counted, bytes);
    dp_memory_parts_read(&parts);
    bytes[DP_MEMORY_LIBRARY] +=
        dp_memory_libraries(&parts, (int64_t)dp_mem_heap(), sum, &rank->memory_unexplained);
#define X(name, key) rank->memory_##key = bytes[DP_MEMORY_##name];
    DP_MEMORY_USES(X)
#undef X
    rank->memory_predicted = job->predicted_memory > 0 ? job->predicted_memory : -1;
    rank->memory_peak_step = r->memory.peak > 0 ? (int64_t)r->memory.peak_step : -1;
    rank->memory_growing[0] = '\0';
    rank->memory_grown = -1;
    if (leak.kind >= 0) {
        (void)snprintf(rank->memory_growing, sizeof(rank->memory_growing), "%s",
                       dp_memory_use_key(leak.kind));
        rank->memory_grown = (int64_t)leak.bytes_per_step;
    }
}

/* A value over a stretch, in cores or per second. */
static double per_ns(uint64_t value, uint64_t ns)
{
    return ns > 0 ? (double)value / (double)ns : unknown;
}

static double per_step(uint64_t value, uint64_t steps)
{
    return steps > 0 ? (double)value / (double)steps : unknown;
}

static double megabytes_per_second(int64_t bytes, uint64_t ns)
{
    return bytes < 0 ? unknown : 1e9 * per_ns((uint64_t)bytes, ns) / megabyte;
}

/* Where pages came from a disk: the time in which this thread neither computed nor waited for
 * others. While threads of the kernel get pages it may have to wait for its core, too; that counts
 * as far as the rest does, since other programs may have been the cause of more. Less than one such
 * page a step delays nothing. */
static double paging_ms(const struct dp_resources *r, const double step_ms[DP_STEP_PART_COUNT])
{
    const struct dp_usage *sum = &r->used.sum;
    const double steps = (double)r->used.steps;
    const double queued_ms = (double)sum->own_queued_ns / 1e6 / steps;
    double idle_ms = step_ms[DP_PART_OTHER] + dp_compute_ms(step_ms);

    if (r->used.steps == 0 || (double)sum->major_faults < steps) {
        return r->used.steps == 0 ? unknown : 0.0;
    }
    idle_ms -= (double)sum->own_user_ns / 1e6 / steps;
    return fmax(fmin(idle_ms, 2.0 * (idle_ms - queued_ms)), 0.0);
}

static void describe_use(const struct dp_resources *r, const struct dp_rank_place *place,
                         struct dp_run_rank *rank)
{
    const struct dp_usage *sum = &r->used.sum;
    const uint64_t ns = r->used.ns, steps = r->used.steps;

    rank->cpu_use = per_ns(sum->cpu_ns, ns) / (place->cores > 0 ? place->cores : place->threads);
    rank->compute_cores = per_ns(sum->thread_ns[DP_THREAD_COMPUTE], ns);
    rank->communication_cores = per_ns(sum->thread_ns[DP_THREAD_COMMUNICATION], ns);
    rank->input_cores = per_ns(sum->thread_ns[DP_THREAD_INPUT], ns);
    rank->writer_cores = per_ns(sum->thread_ns[DP_THREAD_WRITER], ns);
    rank->other_cores = per_ns(sum->thread_ns[DP_THREAD_OTHER], ns);
    rank->queued = per_ns(sum->queued_ns, ns);
    rank->queued_ms = per_ns(sum->own_queued_ns, ns) * dp_step_total_ms(rank->step_ms);
    rank->busy_cores = r->used.busy_ns >= 0 ? per_ns((uint64_t)r->used.busy_ns, ns) : unknown;
    rank->minor_faults = per_step(sum->minor_faults, steps);
    rank->major_faults = per_step(sum->major_faults, steps);
    rank->paging_ms = paging_ms(r, rank->step_ms);
    rank->waits = per_step(sum->waits, steps);
    rank->preempted = per_step(sum->preempted, steps);
    rank->net_mb_s = megabytes_per_second(sum->net_bytes, ns);
    rank->disk_mb_s = megabytes_per_second(sum->disk_bytes, ns);
    rank->joules = r->energy.packages > 0 && ns > 0 ? r->used.joules : unknown;
}

/* Ranks that share a GPU divide its energy, so that theirs can be added. */
static void describe_gpu(const struct dp_gpu_use *use, const struct dp_group *group,
                         struct dp_run_rank *rank)
{
    const double readings = (double)use->readings;

    rank->gpu_use = dp_gpu_use_utilisation(use);
    rank->gpu_mhz = dp_gpu_use_mhz(use);
    rank->gpu_watts = dp_gpu_use_watts(use);
    rank->gpu_throttled = use->readings > 0 ? (double)use->throttled / readings : unknown;
    rank->gpu_joules =
        dp_gpu_use_joules(use) / (group->gpus != NULL ? (double)group->gpus->here : 1.0);
    rank->gpu_memory = use->readings > 0 ? use->memory : -1;
    dp_gpu_throttle_text(use->throttles, rank->gpu_throttle, sizeof(rank->gpu_throttle));
}

/* A step, in the steady ones. */
static void describe_copies(const struct dp_resources *r, struct dp_run_rank *rank)
{
    const bool known = r->used.steps > 0 && r->device != NULL && r->device->copied != NULL;

    rank->copied_to_device =
        known ? (int64_t)(r->used.copied[DP_COPY_TO_DEVICE] / r->used.steps) : -1;
    rank->copied_from_device =
        known ? (int64_t)(r->used.copied[DP_COPY_FROM_DEVICE] / r->used.steps) : -1;
}

void dp_resources_describe(struct dp_resources *r, const struct dp_run_job *job,
                           const struct dp_ledger *ledger, struct dp_run_rank *rank)
{
    const struct dp_rank_place *place = &job->place;
    const size_t sample =
        dp_model_sample_bytes(job->model) + dp_model_label_words(job->model) * sizeof(int32_t);

    dp_resources_pause(r);
    DP_DEBUG("%llu looks at resources took %.6f s of the %.3f s of steady steps",
             (unsigned long long)r->memory_looks, (double)r->look_ns / 1e9,
             (double)r->used.ns / 1e9);
    describe_memory(r, job, rank);
    describe_use(r, place, rank);
    describe_gpu(&r->gpu.use, job->world->all, rank);
    describe_copies(r, rank);
    rank->copied_input = ledger->steps > 0 ? (int64_t)(ledger->rows * sample / ledger->steps) : -1;
}

/* ---- the whole run ---- */

static const struct dp_run_rank *largest_rank(const struct dp_run_summary *s)
{
    const struct dp_run_rank *found = NULL;

    for (int i = 0; i < s->rank_count; i++) {
        if (found == NULL || s->ranks[i].peak_rss_bytes > found->peak_rss_bytes) {
            found = &s->ranks[i];
        }
    }
    return found;
}

static void summarize_memory(struct dp_run_summary *s)
{
    const struct dp_run_rank *rank = largest_rank(s);

    if (rank == NULL) {
        return;
    }
#define X(name, key) s->memory_##key = rank->memory_##key;
    DP_MEMORY_USES(X)
#undef X
    s->memory_unexplained = rank->memory_unexplained;
    s->memory_predicted = rank->memory_predicted;
    s->memory_peak = rank->peak_device_bytes > 0 ? rank->peak_device_bytes : rank->peak_rss_bytes;
    s->memory_peak_step = rank->memory_peak_step;
    for (int i = 0; i < s->rank_count && s->memory_growing == NULL; i++) {
        s->memory_growing =
            s->ranks[i].memory_growing[0] != '\0' ? s->ranks[i].memory_growing : NULL;
    }
}

/* Whether a rank is the first of its host, whose network and energy it stands for. */
static bool is_first_there(const struct dp_group *group, int rank)
{
    for (int i = 0; i < rank; i++) {
        if (group->node_of[i] == group->node_of[rank]) {
            return false;
        }
    }
    return true;
}

static void add_known(double *sum, double value)
{
    if (isfinite(value)) {
        *sum = (isfinite(*sum) ? *sum : 0.0) + value;
    }
}

static void summarize_use(const struct dp_resources *r, const struct dp_group *group,
                          struct dp_run_summary *s)
{
    double cpu = unknown, joules = unknown;
    int gpus = 0;

    for (int i = 0; i < s->rank_count; i++) {
        add_known(&cpu, s->ranks[i].cpu_use);
        add_known(&s->disk_mb_s, s->ranks[i].disk_mb_s);
        add_known(&s->gpu_use, s->ranks[i].gpu_use);
        add_known(&joules, s->ranks[i].gpu_joules);
        gpus += isfinite(s->ranks[i].gpu_use);
        if (is_first_there(group, i)) {
            add_known(&s->net_mb_s, s->ranks[i].net_mb_s);
            add_known(&joules, s->ranks[i].joules);
        }
    }
    s->cpu_use = cpu / s->rank_count;
    s->gpu_use = gpus > 0 ? s->gpu_use / gpus : unknown;
    if (s->gpu_use < gpu_use_least && r->used.ns > alarm_ns) {
        DP_WARN("GPUs ran kernels in %.0f %% of the time, less than %.0f %%: see the verdict for "
                "what they wait for",
                100.0 * s->gpu_use, 100.0 * gpu_use_least);
    }
    s->joules_per_sample = r->used.samples > 0 ? joules / (double)r->used.samples : unknown;
}

static dp_status summarize_stability(const struct dp_stability *stability, struct dp_run_summary *s)
{
    const struct dp_stability_found found = dp_stability_find(stability);
    char cause[256];

    DP_TRY(dp_series_resize(&s->window_rates, found.count));
    for (int i = 0; i < found.count; i++) {
        s->window_rates.at[i] = dp_stability_rate(stability, i);
    }
    s->window_s = found.window_s;
    s->rate_cv = found.cv;
    s->rate_drift = found.drift;
    if (found.drifts) {
        dp_stability_cause(stability, cause, sizeof(cause));
        DP_WARN("samples/s %s by %.0f %% from the beginning of the run to its end; likely cause: "
                "%s",
                found.drift < 0.0 ? "fell" : "rose", 100.0 * fabs(found.drift), cause);
    }
    return DP_OK;
}

void dp_resources_cost(const struct dp_resources *r, const struct dp_run_job *job,
                       struct dp_run_summary *s)
{
    const struct dp_report_config *config = &job->config->report;
    const struct dp_group *all = job->world->all;
    const int units = config->price_per == DP_PRICE_PER_NODE ? all->nodes : all->size;
    const double per_second = config->price_per_hour * units / 3600.0;

    s->price_per_hour = config->price_per_hour * units;
    s->dollars = per_second * s->seconds;
    s->samples_per_dollar = s->cost_samples_per_dollar = s->samples_per_second / per_second;
    s->seconds_to_target = r->target_s > 0.0 ? r->target_s : unknown;
    s->dollars_to_target = per_second * s->seconds_to_target;
}

dp_status dp_resources_summarize(const struct dp_resources *r, const struct dp_run_job *job,
                                 struct dp_run_summary *s)
{
    summarize_memory(s);
    summarize_use(r, job->world->train, s);
    return summarize_stability(&r->stability, s);
}
