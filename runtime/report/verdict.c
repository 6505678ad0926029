#include "runtime/report/verdict.h"

#include <math.h>
#include <string.h>

#include "runtime/report/figure_text.h"
#include "runtime/report/paragraph.h"
#include "runtime/report/step_terms.h"
#include "runtime/report/verdict_losses.h"

#define WRITE(text, ...) (void)snprintf(text, sizeof(text), __VA_ARGS__)

static const double uncertain = 0.05; /* of a prediction: more is said */
static const double useless = 1.0;    /* may be off by more: none is printed */

static double percent(const struct dp_step_terms *t, double ms)
{
    return 100.0 * ms / t->step;
}

/* ---- the verdict ---- */

static const struct dp_loss *largest(const struct dp_loss losses[DP_LOSSES])
{
    const struct dp_loss *most = &losses[0];

    for (int i = 1; i < DP_LOSSES; i++) {
        most = losses[i].ms > most->ms ? &losses[i] : most;
    }
    return most;
}

/* Samples/s where a loss' action is taken. */
static double rate_with(const struct dp_run_summary *s, const struct dp_step_terms *t,
                        const struct dp_loss *l)
{
    return s->samples_per_second * l->batch * t->step / l->step_ms;
}

/* The same where it is more than now; else NaN: many ranks on few cores may well be faster than one
 * core for each would make them, on so few rows. */
static double gain_with(const struct dp_run_summary *s, const struct dp_step_terms *t,
                        const struct dp_loss *l)
{
    const double rate = rate_with(s, t, l);

    return rate > s->samples_per_second ? rate : (double)NAN;
}

/* Another run on the same machine varies as this one did, and as one rank alone did where that is
 * what the prediction rests on. */
static double error_of(const struct dp_run_summary *s, const struct dp_loss *l)
{
    const double alone = l->alone && s->baseline_spread > 0.0 ? s->baseline_spread / 2.0 : 0.0;

    return isfinite(s->rate_cv) ? hypot(s->rate_cv, alone) : (double)NAN;
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

const char *dp_verdict_gain(const struct dp_run_summary *s, char text[DP_VERDICT_GAIN])
{
    char rate[DP_FIGURE_BYTES];
    int used;

    text[0] = '\0';
    if (!isfinite(s->verdict_rate) || s->verdict_error > useless) {
        return text;
    }
    /* "--set a=1 would give", "end other work, which would give" */
    used = snprintf(text, DP_VERDICT_GAIN, "%s would give %s samples/s",
                    s->verdict_action != NULL && s->verdict_action[0] != '-' ? ", which" : "",
                    dp_figure_number(rate, DP_REPORT_RATE, s->verdict_rate));
    if (s->samples_per_second > 0.0) {
        used += snprintf(text + used, DP_VERDICT_GAIN - (size_t)used, " (%+.0f %%",
                         100.0 * (s->verdict_rate / s->samples_per_second - 1.0));
        if (s->verdict_error > uncertain) {
            used += snprintf(text + used, DP_VERDICT_GAIN - (size_t)used, ", give or take %.0f %%",
                             100.0 * s->verdict_error);
        }
        (void)snprintf(text + used, DP_VERDICT_GAIN - (size_t)used, ")");
    }
    return text;
}

static void write_text(const struct dp_run_summary *s, struct dp_verdict *v)
{
    const struct dp_run_summary told = {.samples_per_second = s->samples_per_second,
                                        .verdict_rate = v->rate,
                                        .verdict_action = v->action,
                                        .verdict_error = v->error};
    char gives[DP_VERDICT_GAIN];

    WRITE(v->text, "%s%s: %s%s%s%s", v->bound, adjective(v->bound), v->evidence,
          v->action[0] != '\0' ? "; " : "", v->action, dp_verdict_gain(&told, gives));
}

void dp_verdict_find(const struct dp_run_summary *s, struct dp_verdict *out)
{
    struct dp_step_terms t;
    struct dp_loss losses[DP_LOSSES];
    const struct dp_loss *most;

    *out = (struct dp_verdict){.share = (double)NAN, .rate = (double)NAN, .error = (double)NAN};
    if (s->rank_count == 0) {
        return;
    }
    if (!dp_step_terms_find(s, &t)) {
        WRITE(out->text, "too few steps to know what bounds this run");
        return;
    }
    dp_losses_find(s, &t, losses);
    most = largest(losses);
    if (most->ms > DP_LOSS_LEAST * t.step) {
        out->bound = most->bound;
        out->share = most->ms / t.step;
        out->rate = gain_with(s, &t, most);
        out->error = isfinite(out->rate) ? error_of(s, most) : (double)NAN;
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
    s->verdict_error = v->error;
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
    (void)fprintf(out, "  %10.3f ms          waiting for a core that other programs had\n",
                  t->others);
    (void)fprintf(out, "  %10.3f ms          processor time of a rank, %.3f of it for batches\n",
                  t->used, t->input_used);
}

static void print_loss(const struct dp_run_summary *s, const struct dp_step_terms *t,
                       const struct dp_loss *l, FILE *out)
{
    const double off = error_of(s, l);
    char rate[DP_FIGURE_BYTES], error[DP_FIGURE_BYTES];

    (void)fprintf(out, "  %-14s %10.3f ms %5.1f %%\n", l->bound, l->ms, percent(t, l->ms));
    if (l->ms > DP_LOSS_LEAST * t->step) {
        dp_paragraph(out, 6, "      %s", l->evidence);
        dp_paragraph(out, 6, "      %s: %s = %.3f ms a step%s", l->action, l->how, l->step_ms,
                     l->batch > 1.0 ? " of a larger batch" : "");
        (void)dp_figure_number(error, DP_REPORT_FRACTION, off);
        if (off > useless) {
            dp_paragraph(out, 6, "      no prediction of samples/s: it may be off by %s", error);
        } else {
            dp_paragraph(out, 6, "      %s samples/s, give or take %s",
                         dp_figure_number(rate, DP_REPORT_RATE, rate_with(s, t, l)), error);
        }
    }
}

void dp_verdict_explain(const struct dp_run_summary *s, bool printed, FILE *out)
{
    struct dp_verdict verdict;
    struct dp_step_terms t;
    struct dp_loss losses[DP_LOSSES];

    dp_verdict_find(s, &verdict);
    if (s->rank_count > 0 && dp_step_terms_find(s, &t)) {
        dp_losses_find(s, &t, losses);
        print_terms(s, &t, out);
        (void)fprintf(out,
                      "losses; the largest bounds the run, if it is over %.0f %% of the step\n",
                      100.0 * DP_LOSS_LEAST);
        for (int i = 0; i < DP_LOSSES; i++) {
            print_loss(s, &t, &losses[i], out);
        }
    }
    if (!printed || s->verdict == NULL || strcmp(s->verdict, verdict.text) != 0) {
        dp_paragraph(out, 4, "verdict: %s", verdict.text[0] != '\0' ? verdict.text : "none");
    }
}
