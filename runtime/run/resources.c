#define _GNU_SOURCE /* realpath */

#include "runtime/run/resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/usage.h"

enum { RECENT_NS = 2000000000, SHOW_NS = 100000000, LOOK_NS = 1000000000 };

/* ---- what others see ---- */

/* Ranks of a job without a folder are told apart from those of other jobs by their launcher. */
static void name_job(struct dp_live_who *who)
{
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid",
                                        "SLURM_JOB_ID"};
    const char *value = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && value == NULL; i++) {
        value = getenv(names[i]);
    }
    if (who->folder[0] != '\0') {
        memcpy(who->job, who->folder, sizeof(who->job));
    } else if (value != NULL && *value != '\0') {
        (void)snprintf(who->job, sizeof(who->job), "%s", value);
    } else {
        (void)snprintf(who->job, sizeof(who->job), "process %ld", (long)getpid());
    }
}

void dp_resources_begin(struct dp_resources *r, const struct dp_run_job *job)
{
    const struct dp_group *all = job->world->all;
    struct dp_live_who *who = dp_zalloc(1, sizeof(*who));

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

    atomic_store_explicit(&live->samples_per_second, (double)r->recent.samples / seconds,
                          memory_order_relaxed);
    atomic_store_explicit(&live->rows_per_second, (double)r->recent.rows / seconds,
                          memory_order_relaxed);
    atomic_store_explicit(&live->exposed, (double)r->recent.exposed_ns / (double)r->recent.ns,
                          memory_order_relaxed);
    atomic_store_explicit(&live->batch, (double)job->config->train.global_batch,
                          memory_order_relaxed);
}

void dp_resources_step(struct dp_resources *r, const struct dp_run_job *job,
                       const struct dp_ledger *ledger)
{
    const uint64_t now_ns = dp_now_ns();
    struct dp_usage_brief brief;

    if (r->live.live == NULL) {
        return;
    }
    add_recent(r, job, ledger);
    if (now_ns - r->shown_ns >= SHOW_NS) {
        show(r, job);
        r->shown_ns = now_ns;
    }
    if (now_ns - r->looked_ns >= LOOK_NS) {
        dp_usage_look(&brief);
        atomic_store(&r->live.live->memory, (long long)brief.rss_bytes);
        r->looked_ns = now_ns;
    }
}

void dp_resources_loss(struct dp_resources *r, double loss)
{
    if (r->live.live != NULL) {
        atomic_store_explicit(&r->live.live->loss, loss, memory_order_relaxed);
    }
}

void dp_resources_end(struct dp_resources *r)
{
    dp_live_close(&r->live);
}
