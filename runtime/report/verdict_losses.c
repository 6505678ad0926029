#include "runtime/report/verdict_losses.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/report/figure_text.h"

static const double nearly_all = 0.75;      /* of waiting: then what is known causes it */
static const double mostly = 0.5;           /* of the step */
static const double whole_bytes = 25 << 20; /* of the buckets that limits.whole_sum_ms is of */

#define WRITE(text, ...) (void)snprintf(text, sizeof(text), __VA_ARGS__)

static double percent(const struct dp_step_terms *t, double ms)
{
    return 100.0 * ms / t->step;
}

/* The loss goes away. */
static void saves(struct dp_loss *l, const struct dp_step_terms *t, double ms)
{
    l->step_ms = t->step - ms;
    WRITE(l->how, "%.3f - %.3f ms", t->step, ms);
}

/* Ranks that mostly wait compute slower than they could: their caches are cold, their clocks low,
 * and a writer works beside them. Without the loss they take what one rank alone does, over the
 * efficiency that is left, and the sum, if that is less. */
static void recovers(struct dp_loss *l, const struct dp_run_summary *s,
                     const struct dp_step_terms *t, double efficiency)
{
    const double rows = (double)s->global_batch / s->rank_count;
    const double alone_ms = 1e3 * rows / s->single_rank_samples_per_second / efficiency;
    const double sum_ms = s->limit_sum > 0.0 ? s->limit_sum : 0.0;

    if (l->ms > mostly * t->step && alone_ms + sum_ms < l->step_ms) {
        l->step_ms = alone_ms + sum_ms;
        l->alone = true;
        WRITE(l->how, "%.3f ms of one rank alone, of %.0f %% efficiency, and %.3f ms for the sum",
              alone_ms, 100.0 * efficiency, sum_ms);
    }
}

/* ---- each loss ---- */

static void judge_input(const struct dp_run_summary *s, const struct dp_step_terms *t,
                        struct dp_loss *l)
{
    const struct dp_run_rank *first = &s->ranks[0];
    const char *stage = first->input_stage;
    const double rest_ms = t->step - t->input;
    const int64_t workers = first->input_workers;
    double each_ms = 1e3 * (double)s->global_batch / s->limit_input; /* of all its threads */
    double used_ms = (double)workers * each_ms + (double)first->threads * rest_ms;

    l->bound = "input";
    l->ms = t->input;
    WRITE(l->evidence, "%.0f %% of the step waits for data%s%s%s", percent(t, t->input),
          stage[0] != '\0' ? ", mostly to " : "", stage, stage[0] != '\0' ? " it" : "");
    if (!(each_ms > 0.0) || workers < 1 || t->crowding > 1.0) {
        WRITE(l->action, "less work a sample: data.cache, or ddp_data pack with --resize");
        saves(l, t, t->input);
        return;
    }
    WRITE(l->action, "--set data.workers=%d", (int)(2 * workers));
    if (t->input_used > 0.0) { /* without the time in which these threads waited for a core */
        each_ms = fmax(t->input_used / (double)workers, each_ms - t->queued);
        used_ms = t->used;
    }
    /* Twice the threads need half the time, where cores are left. */
    l->step_ms = fmax(rest_ms, each_ms / 2);
    l->step_ms = fmax(l->step_ms, used_ms / t->cores);
    WRITE(l->how,
          "the longest of %.3f - %.3f ms, half of %.3f ms for a batch, and %.3f ms of processor "
          "time on %.0f cores",
          t->step, t->input, each_ms, used_ms, t->cores);
}

static void enlarge(const struct dp_run_summary *s, struct dp_loss *l)
{
    WRITE(l->action, "--set train.global_batch=%.0f", l->batch * (double)s->global_batch);
}

/* A batch twice as large: computing doubles, and hides more of the same communication. */
static void share_more_rows(const struct dp_run_summary *s, const struct dp_step_terms *t,
                            struct dp_loss *l)
{
    const double work = t->step - t->exposed - t->optimizer;

    l->batch = 2.0;
    l->step_ms = 2.0 * work + t->optimizer + fmax(t->sending - t->hidden, 0.0) + t->waiting;
    enlarge(s, l);
    WRITE(l->how, "2 x %.3f ms of work, and %.3f ms that is not hidden beside it", work,
          fmax(t->sending - t->hidden, 0.0));
}

/* Jobs take less time. */
static void shorten_jobs(const struct dp_step_terms *t, double become_ms, struct dp_loss *l)
{
    const double jobs = t->sending + t->hidden, saved = fmin(t->sending, jobs - become_ms);

    l->step_ms = t->step - saved;
    WRITE(l->how, "%.3f ms of jobs become %.3f ms, of which %.3f ms were waited for", jobs,
          become_ms, t->sending);
}

/* Codes take the cores and caches of whoever computes: without a compressor, ranks compute as fast
 * as one alone. */
static void drop_compressor(const struct dp_run_summary *s, const struct dp_step_terms *t,
                            struct dp_loss *l)
{
    WRITE(l->action, "--set comm.compressor=none");
    shorten_jobs(t, s->limit_sum, l);
    if (t->contended > 0.0 && t->contended < l->step_ms) {
        const size_t used = strlen(l->how);
        l->step_ms -= t->contended;
        l->alone = true;
        (void)snprintf(l->how + used, sizeof(l->how) - used,
                       ", and %.3f ms less of computing, as one rank alone", t->contended);
    }
}

/* Jobs of buckets of 25 MB: their sums as measured alone, and what each job takes besides. */
static double whole_jobs_ms(const struct dp_run_summary *s, double jobs)
{
    const double besides = fmax(jobs - s->limit_sum, 0.0);
    double bytes = 0.0;

    for (int i = 0; i < s->bucket_count; i++) {
        bytes += (double)s->buckets[i].bytes;
    }
    return s->bucket_count == 0
               ? s->limit_whole + besides
               : s->limit_whole + besides * ceil(bytes / whole_bytes) / s->bucket_count;
}

static bool is_none(const char *compressor)
{
    return compressor == NULL || strcmp(compressor, "none") == 0;
}

static void judge_sending(const struct dp_run_summary *s, const struct dp_step_terms *t,
                          struct dp_loss *l)
{
    const double jobs = t->sending + t->hidden;
    const double gain = 0.8; /* a change that leaves more is not worth it */

    l->bound = "communication";
    l->ms = fmax(t->sending - (t->crowding - 1.0) * t->compute, 0.0); /* not what turns take */
    WRITE(l->evidence, "%.0f %% of the step waits for gradients (%s)", percent(t, t->sending),
          s->strategy != NULL ? s->strategy : "?");
    if (s->wire_bytes_per_step > 0) {
        const double bytes = (double)s->wire_bytes_per_step;
        const size_t used = strlen(l->evidence);
        char amount[DP_FIGURE_BYTES], speed[DP_FIGURE_BYTES];

        (void)snprintf(l->evidence + used, sizeof(l->evidence) - used,
                       ": %s in %.1f ms of jobs, %s", dp_figure_unit(amount, bytes, "B"), jobs,
                       dp_figure_unit(speed, 1e3 * bytes / jobs, "B/s"));
    }
    if (s->slow_link_share < gain) {
        WRITE(l->action,
              "find out why %s are slow (cable, port, other traffic), or leave that host out",
              s->slow_link);
        shorten_jobs(t, s->slow_link_share * jobs, l);
    } else if (!is_none(s->compressor) && s->limit_sum < gain * jobs) {
        drop_compressor(s, t, l);
    } else if (s->limit_whole < gain * s->limit_sum && whole_jobs_ms(s, jobs) < gain * jobs) {
        WRITE(l->action, "--set comm.bucket_mb=25 --set comm.first_bucket_mb=1");
        shorten_jobs(t, whole_jobs_ms(s, jobs), l);
    } else if (t->hosts > 1 && is_none(s->compressor)) {
        WRITE(l->action, "--set comm.compressor=fp16");
        shorten_jobs(t, 0.5 * jobs, l);
    } else {
        share_more_rows(s, t, l);
    }
}

static void judge_late(const struct dp_run_summary *s, const struct dp_step_terms *t,
                       struct dp_loss *l)
{
    static const char *const parts[] = {
#define X(name, key, heading, help) key,
        DP_STEP_PARTS(X)
#undef X
    };
    const struct dp_run_rank *late;
    double waits;

    l->bound = "straggler";
    if (t->late < 0) {
        /* Ranks that share cores, with each other or with other programs: contention. */
        l->ms = t->crowding > 1.0 || t->others > nearly_all * t->waiting ? 0.0 : t->waiting;
        WRITE(l->evidence, "ranks come late in turns; the others wait for them %.0f %% of the step",
              percent(t, l->ms));
        WRITE(l->action, "end other work on the ranks' cores (ddp_top)");
        saves(l, t, l->ms);
        return;
    }
    /* Of the ranks that wait; none of them waits longer than it does for all gradients. */
    waits = fmin(t->waiting * s->rank_count / (s->rank_count - 1), t->exposed_most);
    if (t->late_part == DP_PART_CHECKPOINT || (t->paged == t->late && t->paging > t->waiting) ||
        (t->disturbed == t->late && t->others > nearly_all * waits)) {
        return; /* what a checkpoint delays counts there, and so does all else that is known */
    }
    late = &s->ranks[t->late];
    l->ms = waits;
    WRITE(l->evidence,
          "rank %d on %s comes last, by its %s; the others wait for it %.0f %% of the "
          "step",
          (int)late->rank, late->host, parts[t->late_part], percent(t, l->ms));
    WRITE(l->action, "find out what slows down %s (ddp_top), or leave it out", late->host);
    saves(l, t, l->ms);
    recovers(l, s, t, 1.0);
}

/* Ranks that share cores take turns: a step is as long as what all of them compute. With cores of
 * their own they would take as long as one rank alone, and the sum of gradients. */
static void judge_crowding(const struct dp_run_summary *s, const struct dp_step_terms *t,
                           struct dp_loss *l)
{
    const double rows = (double)s->global_batch / s->rank_count;
    /* Of the fastest piece: where all threads of all ranks are on its core, others take turns with
     * the one rank, too. */
    const double alone =
        s->baseline_fastest > 0.0 ? s->baseline_fastest : s->single_rank_samples_per_second;
    const double alone_ms = 1e3 * rows / alone;
    const double sum_ms = s->limit_sum > 0.0 ? s->limit_sum : 0.0;

    l->ms = fmin((t->crowding - 1.0) * t->compute + t->waiting, t->step - t->compute);
    saves(l, t, l->ms);
    if (alone_ms > 0.0) {
        l->step_ms = alone_ms + sum_ms;
        l->alone = true;
        WRITE(l->how, "%.3f ms of one rank alone and %.3f ms for the sum", alone_ms, sum_ms);
    }
    WRITE(l->evidence, "ranks share cores: %.1f threads compute on each, and take turns",
          t->crowding);
    WRITE(l->action, "a core for each rank (mpirun --bind-to core), or fewer ranks");
}

/* One rank alone was measured beside the same programs. */
static void judge_others(const struct dp_run_summary *s, const struct dp_step_terms *t,
                         struct dp_loss *l)
{
    const struct dp_run_rank *rank = &s->ranks[t->disturbed];

    l->ms = t->others;
    WRITE(
        l->evidence,
        "other programs had %.1f of the %.0f CPU%s of rank %d on %s, which waited for one %.0f %% "
        "of the step",
        t->others_cpus, t->disturbed_cpus, dp_plural((uint64_t)t->disturbed_cpus), (int)rank->rank,
        rank->host, percent(t, t->others));
    WRITE(l->action, "end other work on the CPUs of %s (ddp_top and top show it)", rank->host);
    saves(l, t, t->others);
}

static void judge_contention(const struct dp_run_summary *s, const struct dp_step_terms *t,
                             struct dp_loss *l)
{
    l->bound = "contention";
    if (t->crowding > 1.0 && t->contended < (t->crowding - 1.0) * t->compute) {
        judge_crowding(s, t, l);
        return;
    }
    if (t->others > t->contended) {
        judge_others(s, t, l);
        return;
    }
    l->ms = t->contended;
    WRITE(l->evidence,
          "ranks compute %.0f %% longer together than one does alone (they share memory, caches or "
          "cores)",
          100.0 * t->contended / (t->compute - t->contended));
    WRITE(l->action, "end other work on this host (ddp_top), or use fewer ranks on it");
    saves(l, t, l->ms);
}

/* Forward and backward of layers that were repeated one by one, so that their pages stayed. */
static double layers_ms(const struct dp_run_summary *s)
{
    double sum = 0.0;

    for (int i = 0; i < s->layer_count; i++) {
        sum += s->layers[i].forward_ms + s->layers[i].backward_ms;
    }
    return sum;
}

static double optimizer_limit_ms(const struct dp_run_summary *s)
{
    for (int i = 0; i < s->part_count; i++) {
        if (strcmp(s->parts[i].name, "optimizer") == 0) {
            return s->parts[i].limit_ms;
        }
    }
    return 0.0;
}

static void judge_paging(const struct dp_run_summary *s, const struct dp_step_terms *t,
                         struct dp_loss *l)
{
    const struct dp_run_rank *rank = &s->ranks[t->paged];
    double passes, optimizer;

    l->ms = t->paging;
    WRITE(l->evidence,
          "rank %d on %s waits for pages that had left its memory %.0f %% of the step: %.0f a step "
          "came from a disk",
          (int)rank->rank, rank->host, percent(t, t->paging), rank->major_faults);
    WRITE(l->action, "more memory for %s, or fewer ranks on it, or train.micro_batch", rank->host);
    saves(l, t, t->paging);
    passes = layers_ms(s);
    optimizer = optimizer_limit_ms(s);
    if (passes > 0.0 && optimizer > 0.0 && passes + optimizer < l->step_ms) {
        l->step_ms = passes + optimizer;
        WRITE(l->how, "%.3f ms of all layers, each measured alone, and %.3f ms for the optimizer",
              passes, optimizer);
    }
}

/* Of computing, of the rank that others disturb least; NaN: not known. */
static double best_efficiency(const struct dp_run_summary *s)
{
    double best = (double)NAN;

    for (int i = 0; i < s->rank_count; i++) {
        best = fmax(best, s->ranks[i].compute_efficiency);
    }
    return fmin(best, 1.0);
}

static void judge_memory(const struct dp_run_summary *s, const struct dp_step_terms *t,
                         struct dp_loss *l)
{
    const bool delays = t->late >= 0 && t->late_part == DP_PART_CHECKPOINT;
    const double saving = t->checkpoint + (delays ? t->waiting : 0.0);
    const bool shards = s->strategy != NULL && strncmp(s->strategy, "zero1", 5) == 0;

    l->bound = "memory";
    l->ms = fmax(saving, t->optimizer);
    /* Whatever touches memory that is not there takes long. */
    if (t->paging > fmax(DP_LOSS_LEAST * t->step, l->ms / 2)) {
        judge_paging(s, t, l);
        return;
    }
    if (saving >= t->optimizer) {
        WRITE(l->evidence, "%.0f %% of the step copies and writes checkpoints", percent(t, saving));
        WRITE(l->action, "--set checkpoint.every_steps=500");
        saves(l, t, saving);
        recovers(l, s, t, best_efficiency(s));
        return;
    }
    WRITE(l->evidence, "%.0f %% of the step moves weights and optimizer state through memory",
          percent(t, t->optimizer));
    if (s->rank_count > 1 && !shards) {
        WRITE(l->action, "--set comm.strategy=zero1");
        saves(l, t, t->optimizer * (s->rank_count - 1) / s->rank_count);
        return;
    }
    l->batch = DP_LARGER_BATCH;
    l->step_ms = t->step + t->passes * ((s->limit_larger > 0.0 ? s->limit_larger : l->batch) - 1.0);
    enlarge(s, l);
    WRITE(l->how, "%.3f ms, with %.3f ms of forward and backward in place of %.3f", t->step,
          l->step_ms - t->step + t->passes, t->passes);
}

static void judge_launch(const struct dp_run_summary *s, const struct dp_step_terms *t,
                         struct dp_loss *l)
{
    l->bound = "launch";
    if (!(s->limit_larger > 0.0)) {
        return;
    }
    l->ms = t->launch + t->overhead;
    l->batch = DP_LARGER_BATCH;
    l->step_ms = t->step + t->passes * (s->limit_larger - 1.0);
    WRITE(l->evidence, "%.0f %% of the step goes to calls and bookkeeping, whatever the rows",
          percent(t, l->ms));
    enlarge(s, l);
    WRITE(l->how, "%.3f ms, with %.3f ms of forward and backward in place of %.3f", t->step,
          s->limit_larger * t->passes, t->passes);
}

/* ---- all ---- */

void dp_losses_find(const struct dp_run_summary *s, const struct dp_step_terms *t,
                    struct dp_loss losses[DP_LOSSES])
{
    static void (*const judges[DP_LOSSES])(const struct dp_run_summary *s,
                                           const struct dp_step_terms *t, struct dp_loss *l) = {
        judge_input, judge_sending, judge_late, judge_contention, judge_memory, judge_launch};

    for (int i = 0; i < DP_LOSSES; i++) {
        losses[i] = (struct dp_loss){.batch = 1.0, .step_ms = (double)NAN};
        judges[i](s, t, &losses[i]);
    }
}
