#include "runtime/report/record/history.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "runtime/report/ledger.h"

enum { BLOCKS_MOST = 16, BLOCKS_LEAST = 4 };

void dp_history_init(struct dp_history *h)
{
    const double unknown = (double)NAN;

    memset(h, 0, sizeof(*h));
    h->begin_time = h->last_time = unknown;
    h->start.world_size = h->start.global_batch = h->start.steps = -1;
    h->per_point = 1;
}

/* ---- points ---- */

static void join(struct dp_history_point *to, const struct dp_history_point *next)
{
    to->last = next->last;
    to->steps += next->steps;
    to->time = next->time;
    to->lr = next->lr;
    to->loss_sum += next->loss_sum;
    to->losses += next->losses;
    to->samples += next->samples;
    to->ms += next->ms;
    to->least_ms = fmin(to->least_ms, next->least_ms);
    to->most_ms = fmax(to->most_ms, next->most_ms);
}

static void join_neighbours(struct dp_history *h)
{
    for (int i = 0; i < DP_HISTORY_POINTS / 2; i++) {
        const struct dp_history_point *pair = &h->points[(size_t)2 * (size_t)i];
        struct dp_history_point joined = pair[0];
        join(&joined, &pair[1]);
        h->points[i] = joined;
    }
    h->count = DP_HISTORY_POINTS / 2;
    h->per_point *= 2;
}

static void add_point(struct dp_history *h, const struct dp_history_point *step)
{
    struct dp_history_point *last = h->count > 0 ? &h->points[h->count - 1] : NULL;

    if (last != NULL && last->steps < h->per_point) {
        join(last, step);
        return;
    }
    if (h->count == DP_HISTORY_POINTS) {
        join_neighbours(h); /* the last is full now, as all others are */
    }
    h->points[h->count++] = *step;
}

/* Every second one stays, and the newest. */
static void thin_evaluations(struct dp_history *h)
{
    for (int i = 0; i < DP_HISTORY_EVALS / 2; i++) {
        h->evals[i] = h->evals[2 * i + 1];
    }
    h->eval_count = DP_HISTORY_EVALS / 2;
}

/* ---- lines ---- */

/* An integer of a line, or -1. */
static int64_t count_of(const struct dp_json *line, const char *key)
{
    int64_t value;

    return dp_json_int(dp_json_get(line, key), &value) && value >= 0 ? value : -1;
}

static void copy_name(char to[DP_HISTORY_NAME], const struct dp_json *line, const char *key)
{
    const char *text = dp_json_text(dp_json_get(line, key));

    (void)dp_text_clean(text == NULL ? "" : text, to, DP_HISTORY_NAME);
}

static void take_start(struct dp_history *h, const struct dp_json *line)
{
    struct dp_history_start *s = &h->start;

    h->started = true;
    copy_name(s->name, line, "name");
    copy_name(s->device, line, "device");
    copy_name(s->precision, line, "precision");
    copy_name(s->strategy, line, "strategy");
    copy_name(s->compressor, line, "compressor");
    s->world_size = count_of(line, "world_size");
    s->global_batch = count_of(line, "global_batch");
    s->steps = count_of(line, "steps");
}

static void take_time(struct dp_history *h, double time)
{
    if (isfinite(time)) {
        h->last_time = time;
        h->begin_time = isfinite(h->begin_time) ? h->begin_time : time;
    }
}

static void take_step(void *history, const struct dp_metrics_sample *sample)
{
    struct dp_history *h = history;
    const double ms = sample->step_ms, rate = sample->samples_per_second;
    const bool timed = ms > 0.0 && rate > 0.0 && isfinite(ms * rate);
    const bool counts = sample->step >= 0.0 && sample->step < 1e15;
    const int64_t step = counts ? (int64_t)sample->step : 0;
    const struct dp_history_point point = {
        .first = step,
        .last = step,
        .steps = 1,
        .time = sample->time,
        .lr = sample->lr,
        .loss_sum = isfinite(sample->loss) ? sample->loss : 0.0,
        .losses = isfinite(sample->loss),
        .samples = timed ? rate * ms / 1e3 : 0.0,
        .ms = timed ? ms : 0.0,
        .least_ms = timed ? ms : (double)NAN,
        .most_ms = timed ? ms : (double)NAN,
    };

    if (!counts) {
        return; /* a line of nothing */
    }
    take_time(h, sample->time);
    add_point(h, &point);
    h->steps++;
    h->last_step = step;
    h->skipped += sample->skipped > 0.0;
    h->ended = false;
}

static void take_eval(struct dp_history *h, const struct dp_json *line)
{
    if (h->eval_count == DP_HISTORY_EVALS) {
        thin_evaluations(h);
    }
    h->evals[h->eval_count++] = (struct dp_history_eval){
        .step = count_of(line, "step"),
        .time = dp_metrics_real(line, "time"),
        .train_loss = dp_metrics_real(line, "train_loss"),
        .test_loss = dp_metrics_real(line, "test_loss"),
        .test_accuracy = dp_metrics_real(line, "test_accuracy"),
        .test_top5 = dp_metrics_real(line, "test_top5_accuracy"),
        .test_error = dp_metrics_real(line, "test_mean_absolute_error"),
    };
}

static void take_other(void *history, const char *type, const struct dp_json *line)
{
    struct dp_history *h = history;
    const bool resumes = strcmp(type, "resume") == 0, starts = strcmp(type, "start") == 0;

    take_time(h, dp_metrics_real(line, "time"));
    if (starts || (resumes && !h->started)) {
        take_start(h, line);
    } else if (strcmp(type, "eval") == 0) {
        take_eval(h, line);
    }
    h->resumes += resumes;
    h->ended = strcmp(type, "end") == 0;
}

struct dp_metrics_taker dp_history_taker(struct dp_history *history)
{
    return (struct dp_metrics_taker){history, take_step, take_other};
}

/* ---- figures ---- */

double dp_history_loss(const struct dp_history_point *point)
{
    return point->losses > 0 ? point->loss_sum / (double)point->losses : (double)NAN;
}

double dp_history_rate(const struct dp_history_point *point)
{
    return point->ms > 0.0 ? point->samples / (point->ms / 1e3) : (double)NAN;
}

struct blocks {
    struct dp_history_point block[BLOCKS_MOST];
    int count;
    int64_t steps;
};

/* The first steady point: no step of it is to be left out. */
static int first_steady(const struct dp_history *h)
{
    const int64_t unsteady = (int64_t)dp_ledger_unsteady((uint64_t)h->steps);
    int64_t before = 0;
    int i = 0;

    while (i < h->count && before < unsteady) {
        before += h->points[i++].steps;
    }
    return i;
}

static struct blocks make_blocks(const struct dp_history *h)
{
    const int first = first_steady(h), points = h->count - first;
    const int blocks = points < BLOCKS_MOST ? points : BLOCKS_MOST;
    struct blocks made = {.count = blocks};

    for (int i = first; i < h->count; i++) {
        struct dp_history_point *block = &made.block[(int)((int64_t)(i - first) * blocks / points)];
        if (block->steps == 0) {
            *block = h->points[i];
        } else {
            join(block, &h->points[i]);
        }
        made.steps += h->points[i].steps;
    }
    return made;
}

/* The standard deviation of the blocks' mean steps. */
static double deviation(const struct blocks *b, double mean)
{
    double sum = 0.0;

    for (int i = 0; i < b->count; i++) {
        const double off = b->block[i].ms / (double)b->block[i].steps - mean;
        sum += off * off;
    }
    return b->count < BLOCKS_LEAST ? (double)NAN : sqrt(sum / (b->count - 1));
}

struct dp_history_pace dp_history_pace(const struct dp_history *h)
{
    const struct blocks b = make_blocks(h);
    struct dp_history_pace pace = {.steps = b.steps, .blocks = b.count};
    double samples = 0.0, ms = 0.0;

    for (int i = 0; i < b.count; i++) {
        samples += b.block[i].samples;
        ms += b.block[i].ms;
    }
    pace.rate = ms > 0.0 ? samples / (ms / 1e3) : (double)NAN;
    pace.ms = ms > 0.0 ? ms / (double)b.steps : (double)NAN;
    pace.ms_error = deviation(&b, pace.ms) / sqrt((double)b.count);
    pace.rate_error = pace.rate * pace.ms_error / pace.ms;
    pace.cv = deviation(&b, pace.ms) / pace.ms;
    return pace;
}

struct dp_history_point dp_history_recent(const struct dp_history *h)
{
    const int from = h->count - (h->count + 9) / 10;
    struct dp_history_point sum = {0};

    for (int i = from; i < h->count; i++) {
        if (i == from) {
            sum = h->points[i];
        } else {
            join(&sum, &h->points[i]);
        }
    }
    return sum;
}
