#include "runtime/report/files/prometheus.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/files/folder.h"

/* A label has room for a name of which each byte is escaped. */
enum { LABEL_BYTES = 2 * DP_HISTORY_NAME, LINE_BYTES = 512, TEXT_BYTES = 16 * 1024 };

/* A text as the value of a label. */
static void escape(const char *text, char out[LABEL_BYTES])
{
    size_t used = 0;

    for (const char *at = text; *at != '\0' && used + 2 < LABEL_BYTES; at++) {
        if (*at == '\\' || *at == '"' || *at == '\n') {
            out[used++] = '\\';
        }
        out[used++] = (char)(*at == '\n' ? 'n' : *at);
    }
    out[used] = '\0';
}

struct figure {
    const char *name, *type, *help;
    double value;
};

static double step_seconds(const struct dp_history_point *recent)
{
    return recent->ms > 0.0 ? recent->ms / 1000.0 / (double)recent->steps : (double)NAN;
}

static double known(int64_t value)
{
    return value >= 0 ? (double)value : (double)NAN;
}

dp_status dp_prometheus_write(const struct dp_run_record *r, const char *path)
{
    const struct dp_history *h = &r->history;
    const struct dp_history_point recent = dp_history_recent(h);
    const struct dp_history_eval *eval = h->eval_count > 0 ? &h->evals[h->eval_count - 1] : NULL;
    const double none = (double)NAN;
    const struct figure figures[] = {
        {"lockstep_running", "gauge", "1 while the run goes on.",
         r->state == DP_RUN_STATE_GOING ? 1.0 : 0.0},
        {"lockstep_steps_total", "counter", "Steps done, from the beginning of training.",
         (double)h->last_step},
        {"lockstep_steps_planned", "gauge", "The last step.", known(h->start.steps)},
        {"lockstep_skipped_steps_total", "counter", "Steps whose gradient was not finite.",
         (double)h->skipped},
        {"lockstep_ranks", "gauge", "Training ranks.", known(h->start.world_size)},
        {"lockstep_samples_per_second", "gauge", "Of the last steps, over all ranks.",
         dp_history_rate(&recent)},
        {"lockstep_step_seconds", "gauge", "Mean of the last steps.", step_seconds(&recent)},
        {"lockstep_train_loss", "gauge", "Mean of the last steps.", dp_history_loss(&recent)},
        {"lockstep_learning_rate", "gauge", "Of the last step.",
         recent.steps > 0 ? recent.lr : none},
        {"lockstep_test_loss", "gauge", "Of the last evaluation.",
         eval != NULL ? eval->test_loss : none},
        {"lockstep_test_accuracy", "gauge", "Of the last evaluation, from 0 to 1.",
         eval != NULL ? eval->test_accuracy : none},
        {"lockstep_scaling_efficiency", "gauge", "Of a run that has ended, against one rank.",
         r->has_summary ? r->summary.scaling_efficiency : none},
        {"lockstep_last_update_timestamp_seconds", "gauge", "When this file was written.",
         (double)time(NULL)},
        {"lockstep_last_line_timestamp_seconds", "gauge", "When metrics.jsonl got its last line.",
         h->last_time},
    };
    char text[TEXT_BYTES], run[LABEL_BYTES], strategy[LABEL_BYTES];
    size_t used = 0;

    escape(h->start.name, run);
    escape(h->start.strategy, strategy);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        const struct figure *f = &figures[i];
        char line[LINE_BYTES + 2 * LABEL_BYTES];
        int length;

        if (!isfinite(f->value)) {
            continue;
        }
        length = snprintf(line, sizeof(line),
                          "# HELP %s %s\n# TYPE %s %s\n%s{run=\"%s\",strategy=\"%s\"} %.10g\n",
                          f->name, f->help, f->name, f->type, f->name, run, strategy, f->value);
        if (length > 0 && used + (size_t)length < sizeof(text)) {
            memcpy(text + used, line, (size_t)length);
            used += (size_t)length;
        }
    }
    return dp_file_replace(path, text, used);
}

void dp_prometheus_clean(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    char folder[DP_PATH_BYTES];

    dp_file_folder(path, folder);
    dp_folder_clean(folder, &name, 1);
}
