#include "runtime/report/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "runtime/report/figure_text.h"
#include "runtime/report/paragraph.h"
#include "runtime/report/step_terms.h"

static const double least = 0.1;            /* of the step: a smaller loss bounds nothing */
static const double whole_bytes = 25 << 20; /* of the buckets that limits.whole_sum_ms is of */

/* A loss of time, and what can be done about it. */
struct loss {
    const char *bound;
    double ms;
    double step_ms; /* predicted with the action; NaN: not known */
    double batch;   /* then, as a multiple of the present one */
    char evidence[256], action[192];
    char how[160]; /* how step_ms is computed, for dp_verdict_explain() */
};

enum { LOSSES = 6 };

#define WRITE(text, ...) (void)snprintf(text, sizeof(text), __VA_ARGS__)

static double percent(const struct dp_step_terms *t, double ms)
{
    return 100.0 * ms / t->step;
}

/* The loss goes away. */
static void saves(struct loss *l, const struct dp_step_terms *t, double ms)
{
    l->step_ms = t->step - ms;
    WRITE(l->how, "%.3f - %.3f ms", t->step, ms);
}

/* ---- each loss ---- */

static void judge_input(const struct dp_run_summary *s, const struct dp_step_terms *t,
                        struct loss *l)
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

static void enlarge(const struct dp_run_summary *s, struct loss *l)
{
    WRITE(l->action, "--set train.global_batch=%.0f", l->batch * (double)s->global_batch);
}

/* A batch twice as large: computing doubles, and hides more of the same communication. */
static void share_more_rows(const struct dp_run_summary *s, const struct dp_step_terms *t,
                            struct loss *l)
{
    const double work = t->step - t->exposed - t->optimizer;

    l->batch = 2.0;
    l->step_ms = 2.0 * work + t->optimizer + fmax(t->sending - t->hidden, 0.0) + t->waiting;
    enlarge(s, l);
    WRITE(l->how, "2 x %.3f ms of work, and %.3f ms that is not hidden beside it", work,
          fmax(t->sending - t->hidden, 0.0));
}

/* Jobs take less time. */
static void shorten_jobs(const struct dp_step_terms *t, double become_ms, struct loss *l)
{
    const double jobs = t->sending + t->hidden, saved = fmin(t->sending, jobs - become_ms);

    l->step_ms = t->step - saved;
    WRITE(l->how, "%.3f ms of jobs become %.3f ms, of which %.3f ms were waited for", jobs,
          become_ms, t->sending);
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
                          struct loss *l)
{
    const double jobs = t->sending + t->hidden;
    const double gain = 0.8; /* a change that leaves more is not worth it */

    l->bound = "communication";
    l->ms = fmax(t->sending - (t->crowding - 1.0) * t->compute, 0.0); /* not what turns take */
    WRITE(l->evidence, "%.0f %% of the step waits for gradients (%s)", percent(t, t->sending),
          s->strategy != NULL ? s->strategy : "?");
    if (s->wire_bytes_per_step > 0) {
        const size_t used = strlen(l->evidence);
        (void)snprintf(l->evidence + used, sizeof(l->evidence) - used,
                       ": %.1f MB in %.1f ms of jobs, %.0f MB/s",
                       (double)s->wire_bytes_per_step / 1e6, jobs,
                       (double)s->wire_bytes_per_step / 1e3 / jobs);
    }
    if (!is_none(s->compressor) && s->limit_sum < gain * jobs) {
        WRITE(l->action, "--set comm.compressor=none");
        shorten_jobs(t, s->limit_sum, l);
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
                       struct loss *l)
{
    static const char *const parts[] = {
#define X(name, key, heading, help) key,
        DP_STEP_PARTS(X)
#undef X
    };
    const struct dp_run_rank *late;

    l->bound = "straggler";
    if (t->late < 0) {
        l->ms = t->crowding > 1.0 ? 0.0 : t->waiting; /* there it is contention */
        WRITE(l->evidence, "ranks come late in turns; the others wait for them %.0f %% of the step",
              percent(t, l->ms));
        WRITE(l->action, "end other work on the ranks' cores (ddp_top)");
        saves(l, t, l->ms);
        return;
    }
    if (t->late_part == DP_PART_CHECKPOINT || (t->paged == t->late && t->paging > t->waiting)) {
        return; /* what a checkpoint delays counts there, and so do pages that are waited for */
    }
    late = &s->ranks[t->late];
    /* Of the ranks that wait; none of them waits longer than it does for all gradients. */
    l->ms = fmin(t->waiting * s->rank_count / (s->rank_count - 1), t->exposed_most);
    WRITE(l->evidence,
          "rank %d on %s comes last, by its %s; the others wait for it %.0f %% of the "
          "step",
          (int)late->rank, late->host, parts[t->late_part], percent(t, l->ms));
    WRITE(l->action, "find out what slows down %s (ddp_top), or leave it out", late->host);
    saves(l, t, l->ms);
}

/* Ranks that share cores take turns: a step is as long as what all of them compute. With cores of
 * their own they would take as long as one rank alone, and the sum of gradients. */
static void judge_crowding(const struct dp_run_summary *s, const struct dp_step_terms *t,
                           struct loss *l)
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
        WRITE(l->how, "%.3f ms of one rank alone and %.3f ms for the sum", alone_ms, sum_ms);
    }
    WRITE(l->evidence, "ranks share cores: %.1f threads compute on each, and take turns",
          t->crowding);
    WRITE(l->action, "a core for each rank (mpirun --bind-to core), or fewer ranks");
}

static void judge_contention(const struct dp_run_summary *s, const struct dp_step_terms *t,
                             struct loss *l)
{
    l->bound = "contention";
    if (t->crowding > 1.0 && t->contended < (t->crowding - 1.0) * t->compute) {
        judge_crowding(s, t, l);
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

static void judge_paging(const struct dp_run_summary *s, const struct dp_step_terms *t,
                         struct loss *l)
{
    const struct dp_run_rank *rank = &s->ranks[t->paged];

    l->ms = t->paging;
    WRITE(l->evidence,
          "rank %d on %s waits for pages that had left its memory %.0f %% of the step: %.0f a step "
          "came from a disk",
          (int)rank->rank, rank->host, percent(t, t->paging), rank->major_faults);
    WRITE(l->action, "more memory for %s, or fewer ranks on it, or train.micro_batch", rank->host);
    saves(l, t, t->paging);
}

static void judge_memory(const struct dp_run_summary *s, const struct dp_step_terms *t,
                         struct loss *l)
{
    const bool delays = t->late >= 0 && t->late_part == DP_PART_CHECKPOINT;
    const double saving = t->checkpoint + (delays ? t->waiting : 0.0);
    const bool shards = s->strategy != NULL && strncmp(s->strategy, "zero1", 5) == 0;

    l->bound = "memory";
    l->ms = fmax(saving, t->optimizer);
    /* Whatever touches memory that is not there takes long. */
    if (t->paging > fmax(least * t->step, l->ms / 2)) {
        judge_paging(s, t, l);
        return;
    }
    if (saving >= t->optimizer) {
        WRITE(l->evidence, "%.0f %% of the step copies and writes checkpoints", percent(t, saving));
        WRITE(l->action, "--set checkpoint.every_steps=500");
        saves(l, t, saving);
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
                         struct loss *l)
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

/* ---- the verdict ---- */

static void judge_all(const struct dp_run_summary *s, const struct dp_step_terms *t,
                      struct loss losses[LOSSES])
{
    static void (*const judges[LOSSES])(const struct dp_run_summary *s,
                                        const struct dp_step_terms *t, struct loss *l) = {
        judge_input, judge_sending, judge_late, judge_contention, judge_memory, judge_launch};

    for (int i = 0; i < LOSSES; i++) {
        losses[i] = (struct loss){.batch = 1.0, .step_ms = (double)NAN};
        judges[i](s, t, &losses[i]);
    }
}

static const struct loss *largest(const struct loss losses[LOSSES])
{
    const struct loss *most = &losses[0];

    for (int i = 1; i < LOSSES; i++) {
        most = losses[i].ms > most->ms ? &losses[i] : most;
    }
    return most;
}

/* Samples/s where a loss' action is taken. */
static double rate_with(const struct dp_run_summary *s, const struct dp_step_terms *t,
                        const struct loss *l)
{
    return s->samples_per_second * l->batch * t->step / l->step_ms;
}

/* The same where it is more than now; else NaN: many ranks on few cores may well be faster than one
 * core for each would make them, on so few rows. */
static double gain_with(const struct dp_run_summary *s, const struct dp_step_terms *t,
                        const struct loss *l)
{
    const double rate = rate_with(s, t, l);

    return rate > s->samples_per_second ? rate : (double)NAN;
}

/* The layer that takes most, for those who want computing to be faster. */
static void describe_compute(const struct dp_run_summary *s, const struct dp_step_terms *t,
                             struct dp_verdict *v)
{
    const struct dp_run_layer *most = s->layer_count > 0 ? &s->layers[0] : NULL;
    size_t used;

    v->bound = "compute";
    v->share = t->compute / t->step;
    WRITE(v->evidence, "%.1f %% of the step computes, %.1f %% waits for gradients",
          100.0 * v->share, percent(t, t->exposed));
    for (int i = 1; i < s->layer_count; i++) {
        most = s->layers[i].share > most->share ? &s->layers[i] : most;
    }
    used = strlen(v->evidence);
    if (s->mfu > 0.0 && most != NULL) {
        (void)snprintf(v->evidence + used, sizeof(v->evidence) - used,
                       "; %.0f %% of the measured peak, most of the time in layer %s (%s)",
                       100.0 * s->mfu, most->name, most->kind);
    }
}

static const char *adjective(const char *bound)
{
    return strcmp(bound, "straggler") == 0 || strcmp(bound, "contention") == 0 ? "" : "-bound";
}

static void write_text(const struct dp_run_summary *s, struct dp_verdict *v)
{
    char rate[DP_FIGURE_BYTES], gives[DP_FIGURE_BYTES + 64] = "";

    if (isfinite(v->rate)) {
        (void)snprintf(gives, sizeof(gives), " would give %s samples/s (%+.0f %%)",
                       dp_figure_number(rate, DP_REPORT_RATE, v->rate),
                       100.0 * (v->rate / s->samples_per_second - 1.0));
    }
    WRITE(v->text, "%s%s: %s%s%s%s", v->bound, adjective(v->bound), v->evidence,
          v->action[0] != '\0' ? "; " : "", v->action, gives);
}

void dp_verdict_find(const struct dp_run_summary *s, struct dp_verdict *out)
{
    struct dp_step_terms t;
    struct loss losses[LOSSES];
    const struct loss *most;

    *out = (struct dp_verdict){.share = (double)NAN, .rate = (double)NAN};
    if (s->rank_count == 0) {
        return;
    }
    if (!dp_step_terms_find(s, &t)) {
        WRITE(out->text, "too few steps to know what bounds this run");
        return;
    }
    judge_all(s, &t, losses);
    most = largest(losses);
    if (most->ms > least * t.step) {
        out->bound = most->bound;
        out->share = most->ms / t.step;
        out->rate = gain_with(s, &t, most);
        memcpy(out->evidence, most->evidence, sizeof(out->evidence));
        memcpy(out->action, most->action, sizeof(out->action));
    } else {
        describe_compute(s, &t, out);
    }
    write_text(s, out);
}

void dp_verdict_put(const struct dp_verdict *v, struct dp_run_summary *s)
{
    s->verdict = v->text[0] != '\0' ? v->text : NULL;
    s->verdict_bound = v->bound;
    s->verdict_share = v->share;
    s->verdict_evidence = v->evidence[0] != '\0' ? v->evidence : NULL;
    s->verdict_action = v->action[0] != '\0' ? v->action : NULL;
    s->verdict_rate = v->rate;
}

/* ---- how it was found ---- */

static void print_terms(const struct dp_run_summary *s, const struct dp_step_terms *t, FILE *out)
{
    const struct {
        const char *name;
        double ms;
    } terms[] = {
        {"forward and backward", t->passes},
        {"optimizer", t->optimizer},
        {"copies of batches", t->compute - t->passes - t->optimizer},
        {"waiting for batches", t->input},
        {"communication that nothing hides", t->sending},
        {"waiting for ranks that are late", t->waiting},
        {"checkpoints", t->checkpoint},
        {"all else", t->step - t->compute - t->input - t->exposed - t->checkpoint},
    };

    (void)fprintf(out, "a steady step of %.3f ms; parts are means of %d rank%s\n", t->step,
                  s->rank_count, s->rank_count == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof(terms) / sizeof(terms[0]); i++) {
        (void)fprintf(out, "  %10.3f ms %5.1f %%  %s\n", terms[i].ms, percent(t, terms[i].ms),
                      terms[i].name);
    }
    (void)fprintf(out,
                  "beside it or in it\n  %10.3f ms          communication that computing hid\n",
                  t->hidden);
    (void)fprintf(out, "  %10.3f ms          computing beyond that of one rank alone\n",
                  t->contended);
    (void)fprintf(out, "  %10.3f ms          of forward and backward: calls, whatever the rows\n",
                  t->launch);
    (void)fprintf(out, "  %10.3f ms          waiting for pages from a disk\n", t->paging);
    (void)fprintf(out, "  %10.3f ms          processor time of a rank, %.3f of it for batches\n",
                  t->used, t->input_used);
}

static void print_loss(const struct dp_run_summary *s, const struct dp_step_terms *t,
                       const struct loss *l, FILE *out)
{
    char rate[DP_FIGURE_BYTES];

    (void)fprintf(out, "  %-14s %10.3f ms %5.1f %%\n", l->bound, l->ms, percent(t, l->ms));
    if (l->ms > least * t->step) {
        dp_paragraph(out, 6, "      %s", l->evidence);
        dp_paragraph(out, 6, "      %s: %s = %.3f ms a step%s", l->action, l->how, l->step_ms,
                     l->batch > 1.0 ? " of a larger batch" : "");
        dp_paragraph(out, 6, "      %s samples/s",
                     dp_figure_number(rate, DP_REPORT_RATE, rate_with(s, t, l)));
    }
}

void dp_verdict_explain(const struct dp_run_summary *s, FILE *out)
{
    struct dp_verdict verdict;
    struct dp_step_terms t;
    struct loss losses[LOSSES];

    dp_verdict_find(s, &verdict);
    if (s->rank_count > 0 && dp_step_terms_find(s, &t)) {
        judge_all(s, &t, losses);
        print_terms(s, &t, out);
        (void)fprintf(out,
                      "losses; the largest bounds the run, if it is over %.0f %% of the step\n",
                      100.0 * least);
        for (int i = 0; i < LOSSES; i++) {
            print_loss(s, &t, &losses[i], out);
        }
    }
    dp_paragraph(out, 4, "verdict: %s", verdict.text[0] != '\0' ? verdict.text : "none");
}
