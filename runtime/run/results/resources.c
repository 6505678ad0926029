#define _GNU_SOURCE /* realpath */

#include "runtime/run/results/resources.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/system/job_name.h"
#include "runtime/report/figure_text.h"

enum { RECENT_NS = 2000000000, SHOW_NS = 100000000, BRIEF_NS = 1000000000, FIRST_LOOKS = 64 };

/* ---- what others see ---- */

/* Ranks of a job without a folder are told apart from those of other jobs by their launcher. */
static void name_job(struct dp_live_who *who)
{
    if (who->folder[0] != '\0') {
        memcpy(who->job, who->folder, sizeof(who->job));
    } else {
        dp_job_name(who->job, sizeof(who->job));
    }
}

/* ---- a GPU's sensors ---- */

static dp_status read_sensors(void *context)
{
    struct dp_resources *r = context;

    dp_gpu_sensors_read(r->gpu.sensors, &r->gpu.reading);
    r->gpu.read_ns = dp_now_ns();
    return DP_OK;
}

static void close_sensors(struct dp_resources *r)
{
    dp_worker_destroy(r->gpu.worker);
    dp_gpu_sensors_close(r->gpu.sensors);
    r->gpu.worker = NULL;
    r->gpu.sensors = NULL;
}

/* A run without sensors trains as well. */
static void open_sensors(struct dp_resources *r, const struct dp_device *device)
{
    const struct dp_worker_config worker = {.name = "dp-sensors",
                                            .task = "reads sensors of the GPU",
                                            .idle = true,
                                            .run = read_sensors,
                                            .context = r};
    struct dp_log_capture capture;
    const char *why_not = "it has no name";
    char bus[DP_UNIT_NAME] = "";

    if (device->host_memory || device->units == NULL) {
        return;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    if (device->units->name(bus) == DP_OK) {
        r->gpu.sensors = dp_gpu_sensors_open("libnvidia-ml.so.1", bus, &why_not);
    }
    if (r->gpu.sensors != NULL && dp_worker_create(&worker, &r->gpu.worker) != DP_OK) {
        close_sensors(r);
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (r->gpu.sensors == NULL) {
        DP_DEBUG("nothing is known of the use of the GPU at %s: %s", bus, why_not);
    }
}

/* Takes the reading that was asked for, if it is there. */
static void take_reading(struct dp_resources *r)
{
    if (r->gpu.asked && !dp_worker_busy(r->gpu.worker)) {
        (void)!dp_worker_wait(r->gpu.worker); /* it never fails */
        dp_gpu_use_add(&r->gpu.use, &r->gpu.reading, r->gpu.read_ns);
        r->gpu.asked = false;
    }
}

static void ask_sensors(struct dp_resources *r)
{
    if (r->gpu.worker == NULL) {
        return;
    }
    take_reading(r);
    if (!dp_worker_busy(r->gpu.worker)) {
        dp_worker_start(r->gpu.worker);
        r->gpu.asked = true;
    }
}

static void pause_sensors(struct dp_resources *r)
{
    if (r->gpu.worker != NULL) {
        take_reading(r);
        r->gpu.asked = false;
        dp_gpu_use_pause(&r->gpu.use);
    }
}

/* ---- begin ---- */

void dp_resources_begin(struct dp_resources *r, const struct dp_run_job *job)
{
    const struct dp_group *all = job->world->all;
    struct dp_live_who *who = dp_zalloc(1, sizeof(*who));

    r->cpus = all->size == dp_trainer_ranks(job->trainer) ? job->place.cpus : NULL;
    r->device = job->device;
    dp_energy_begin(&r->energy, "/sys/class/powercap");
    open_sensors(r, job->device);
    if (who == NULL) {
        return; /* nobody sees this rank, which trains nevertheless */
    }
    (void)snprintf(who->name, sizeof(who->name), "%s", job->config->name);
    (void)snprintf(who->host, sizeof(who->host), "%s", job->world->host);
    if (job->output.shared[0] != '\0' && realpath(job->output.shared, who->folder) == NULL) {
        (void)snprintf(who->folder, sizeof(who->folder), "%s", job->output.shared);
    }
    name_job(who);
    who->process = getpid();
    who->rank = all->rank;
    who->ranks = all->size;
    who->steps = (int64_t)job->total_steps;
    dp_live_open(&r->live, who);
    dp_free(who);
}

/* Times of less than two seconds count whole, older ones less and less. */
static void add_recent(struct dp_resources *r, const struct dp_run_job *job,
                       const struct dp_ledger *ledger)
{
    const struct dp_batch *batch = dp_trainer_batch(job->trainer);

    if (r->recent.ns > RECENT_NS) {
        r->recent.ns /= 2;
        r->recent.exposed_ns /= 2;
        r->recent.rows /= 2;
        r->recent.samples /= 2;
    }
    r->recent.ns += ledger->last_ns;
    r->recent.exposed_ns += ledger->sum_ns[DP_PART_EXPOSED] - r->exposed_ns;
    r->recent.rows += batch->rows;
    r->recent.samples += batch->global_rows;
    r->exposed_ns = ledger->sum_ns[DP_PART_EXPOSED];
}

static void show(struct dp_resources *r, const struct dp_run_job *job)
{
    struct dp_live *live = r->live.live;
    const double seconds = (double)r->recent.ns / 1e9;

    if (live == NULL) {
        return;
    }
    atomic_store_explicit(&live->samples_per_second, (double)r->recent.samples / seconds,
                          memory_order_relaxed);
    atomic_store_explicit(&live->rows_per_second, (double)r->recent.rows / seconds,
                          memory_order_relaxed);
    atomic_store_explicit(&live->exposed, (double)r->recent.exposed_ns / (double)r->recent.ns,
                          memory_order_relaxed);
    atomic_store_explicit(&live->batch, (double)job->config->train.global_batch,
                          memory_order_relaxed);
    atomic_store_explicit(&live->memory, (long long)r->brief.rss_bytes, memory_order_relaxed);
}

void dp_resources_loss(struct dp_resources *r, double loss)
{
    if (r->live.live != NULL) {
        atomic_store_explicit(&r->live.live->loss, loss, memory_order_relaxed);
    }
}

/* ---- memory ---- */

/* What libraries take shows in what is resident: private memory that is not ours. */
static void group_memory(const struct dp_usage_brief *brief, int64_t out[DP_MEMORY_USE_COUNT])
{
    const int64_t theirs = (int64_t)brief->own_bytes - (int64_t)dp_mem_heap();
    size_t bytes[DP_MEM_PURPOSE_COUNT];

    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        bytes[i] = dp_mem_bytes((enum dp_purpose)i);
    }
    dp_memory_group(bytes, out);
    out[DP_MEMORY_LIBRARY] += theirs > 0 ? theirs : 0;
}

static void warn_of_budget(struct dp_resources *r, int budget_mb)
{
    char has[DP_FIGURE_BYTES], most[DP_FIGURE_BYTES];
    int largest = 0;

    for (int i = 1; i < DP_MEMORY_USE_COUNT; i++) {
        largest = r->memory.now[i] > r->memory.now[largest] ? i : largest;
    }
    DP_WARN("%s are resident, more than report.memory_budget_mb=%d allows; most of it: %s, %s",
            dp_figure_bytes(has, (int64_t)r->brief.rss_bytes), budget_mb,
            dp_memory_use_key(largest), dp_figure_bytes(most, r->memory.now[largest]));
    r->over_budget = true;
}

static void warn_of_leak(struct dp_resources *r, const struct dp_memory_leak *leak)
{
    char grown[DP_FIGURE_BYTES], each[DP_FIGURE_BYTES];

    DP_WARN(
        "memory grows while training, which should allocate nothing: %s by %s so far, %s a step",
        dp_memory_use_key(leak->kind), dp_figure_bytes(grown, leak->bytes),
        dp_figure_bytes(each, (int64_t)leak->bytes_per_step));
    r->leaks = true;
}

static void look_at_memory(struct dp_resources *r, const struct dp_run_job *job, bool steady)
{
    const uint64_t budget = (uint64_t)job->config->report.memory_budget_mb << 20;
    int64_t bytes[DP_MEMORY_USE_COUNT];

    group_memory(&r->brief, bytes);
    dp_memory_use_look(&r->memory, dp_trainer_steps(job->trainer), steady, bytes,
                       (int64_t)dp_mem_bytes(DP_MEM_KEPT), (int64_t)r->brief.peak_bytes);
    if (budget > 0 && r->brief.rss_bytes > budget && !r->over_budget) {
        warn_of_budget(r, job->config->report.memory_budget_mb);
    }
    if (steady && !r->leaks) {
        const struct dp_memory_leak leak = dp_memory_use_leak(&r->memory);
        if (leak.kind >= 0) {
            warn_of_leak(r, &leak);
        }
    }
}

/* ---- stretches of steady steps ---- */

static int64_t busy_ns(const struct dp_resources *r)
{
    return r->cpus != NULL ? dp_cpus_busy_ns(r->cpus) : -1;
}

static void add_busy(struct dp_resources *r)
{
    const int64_t now_ns = busy_ns(r);
    const bool known = r->used.busy_ns >= 0 && r->used.from_busy_ns >= 0 && now_ns >= 0;

    r->used.busy_ns = known ? r->used.busy_ns + now_ns - r->used.from_busy_ns : -1;
}

static void read_copies(const struct dp_resources *r, uint64_t bytes[DP_COPY_DIRECTIONS])
{
    memset(bytes, 0, sizeof(*bytes) * DP_COPY_DIRECTIONS);
    if (r->device != NULL && r->device->copied != NULL) {
        r->device->copied(bytes);
    }
}

static void add_copies(struct dp_resources *r)
{
    uint64_t now[DP_COPY_DIRECTIONS];

    read_copies(r, now);
    for (int i = 0; i < DP_COPY_DIRECTIONS; i++) {
        r->used.copied[i] += now[i] - r->used.copied_from[i];
    }
}

static void begin_stretch(struct dp_resources *r, uint64_t now_ns)
{
    dp_usage_read(&r->used.from);
    read_copies(r, r->used.copied_from);
    r->used.from_ns = now_ns;
    r->used.from_busy_ns = busy_ns(r);
    dp_energy_add(&r->energy);
    r->used.from_joules = r->energy.joules;
    r->used.on = true;
    r->brief_ns = 0;
}

void dp_resources_pause(struct dp_resources *r)
{
    struct dp_usage now;

    if (!r->used.on) {
        return;
    }
    dp_usage_read(&now);
    dp_usage_add(&r->used.sum, &r->used.from, &now);
    r->used.ns += dp_now_ns() - r->used.from_ns;
    add_busy(r);
    add_copies(r);
    dp_energy_add(&r->energy);
    r->used.joules += r->energy.joules - r->used.from_joules;
    pause_sensors(r);
    r->used.on = false;
}

/* Once a second, and at the beginning of a stretch: what may explain a change of the rate. */
static void look_for_causes(struct dp_resources *r, const struct dp_usage_brief *before,
                            uint64_t now_ns)
{
    const double mhz = r->gpu.worker != NULL && r->gpu.use.readings > 0 ? r->gpu.use.last_mhz
                                                                        : 1e3 * dp_clock_ghz();
    const double ghz = isfinite(mhz) ? mhz / 1e3 : 0.0;
    struct dp_stability_causes causes = {.ghz_sum = ghz, .looks = ghz > 0.0};

    if (r->brief_ns > 0) {
        causes.over_ns = now_ns - r->brief_ns;
        causes.queued_ns = r->brief.queued_ns - before->queued_ns;
        causes.stolen_ns = r->brief.stolen_ns - before->stolen_ns;
        causes.major_faults = r->brief.major_faults - before->major_faults;
    }
    ask_sensors(r);
    dp_stability_note(&r->stability, &causes);
    dp_energy_add(&r->energy);
    r->brief_ns = now_ns;
}

static void look(struct dp_resources *r, const struct dp_run_job *job, bool steady, uint64_t now_ns)
{
    const struct dp_usage_brief before = r->brief_at;
    const bool causes = steady && (r->brief_ns == 0 || now_ns - r->brief_ns >= BRIEF_NS);

    dp_usage_look(&r->brief, causes);
    look_at_memory(r, job, steady);
    if (causes) {
        look_for_causes(r, &before, now_ns);
        r->brief_at = r->brief;
    }
    show(r, job);
    r->shown_ns = now_ns;
}

void dp_resources_step(struct dp_resources *r, const struct dp_run_job *job,
                       const struct dp_ledger *ledger)
{
    const uint64_t now_ns = dp_now_ns();
    const bool steady = ledger->unsteady == 0;
    const size_t samples = dp_trainer_batch(job->trainer)->global_rows;

    if (!job->config->report.resources) {
        return;
    }
    add_recent(r, job, ledger);
    if (r->used.on) {
        dp_stability_add(&r->stability, ledger->last_ns, samples);
        r->used.steps++;
        r->used.samples += samples;
    } else if (steady) {
        begin_stretch(r, now_ns);
    }
    if (now_ns - r->shown_ns >= SHOW_NS || r->memory_looks < FIRST_LOOKS) {
        look(r, job, steady, now_ns);
        r->memory_looks++;
        r->look_ns += dp_now_ns() - now_ns;
    }
}

void dp_resources_evaluated(struct dp_resources *r, const struct dp_run_job *job, double accuracy)
{
    if (r->target_s == 0.0 && accuracy >= job->config->report.target_accuracy) {
        r->target_s = dp_process_age_s();
    }
}

void dp_resources_end(struct dp_resources *r)
{
    close_sensors(r);
    dp_live_close(&r->live);
}
