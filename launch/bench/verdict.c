/*
 * verdict.c - says which way to share gradients, and why, from the rows alone.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/statistics.h"
#include "launch/bench/bench.h"
#include "launch/bench/compare.h"
#include "launch/bench/verdict.h"

/* For smaller messages latencies, and the queues of a wire, matter more than any bound. */
enum { RIVALS = 3, PREDICTED_FROM = 65536, BOUND_FROM = 1 << 20 };

/* What is this much faster than a bound is not limited by it. */
static const double beaten_from = 1.05;

/* How many times longer `b` takes than `a`, for one size; 1: no difference could be measured. */
static double times_longer(const struct dp_bench_row *a, const struct dp_bench_row *b)
{
    return dp_bench_less(a, b) || dp_bench_less(b, a) ? dp_bench_time(b) / dp_bench_time(a) : 1.0;
}

/* The median over sizes [first, last] of how many times longer `rival` takes than `best`; 0: no
 * size has both. */
static double advantage(const struct dp_bench_rows *rows, const struct dp_bench_row *best,
                        const struct dp_bench_row *rival, size_t first, size_t last)
{
    double ratios[64];
    size_t count = 0;

    for (size_t size = first; size > 0 && size <= last && count < 64;
         size = dp_bench_next_size(rows, size)) {
        const struct dp_bench_row *a = dp_bench_same_way(rows, best, size);
        const struct dp_bench_row *b = dp_bench_same_way(rows, rival, size);
        if (a != NULL && b != NULL && dp_bench_time(a) > 0.0) {
            ratios[count++] = times_longer(a, b);
        }
    }
    if (count == 0) {
        return 0.0;
    }
    dp_sort(ratios, count);
    return dp_median(ratios, count);
}

/* The fastest way, after `best` and those named before, over sizes [first, last]; NULL: none. */
static const struct dp_bench_row *nearest(const struct dp_bench_rows *rows,
                                          const struct dp_bench_row *const said[], int said_count,
                                          size_t first, size_t last, double *least)
{
    const struct dp_bench_row *found = NULL;

    for (size_t k = 0; k < rows->count; k++) {
        const struct dp_bench_row *rival = &rows->row[k];
        bool out = (size_t)rival->size != last || !dp_bench_counts(rival, true);
        for (int i = 0; i < said_count && !out; i++) {
            out = rival == said[i];
        }
        const double times = out ? 0.0 : advantage(rows, said[0], rival, first, last);
        if (times > 0.0 && (found == NULL || times < *least)) {
            found = rival;
            *least = times;
        }
    }
    return found;
}

/* Names the ways that are slower than `best`, the fastest first. */
static void say_rivals(struct dp_bench_text *text, const struct dp_bench_rows *rows,
                       const struct dp_bench_row *best, size_t first, size_t last)
{
    const struct dp_bench_row *said[1 + RIVALS] = {best};

    for (int i = 0; i < RIVALS; i++) {
        double least = 0.0;
        said[1 + i] = nearest(rows, said, 1 + i, first, last, &least);
        if (said[1 + i] == NULL) {
            return;
        }
        dp_bench_say(text, i == 0 ? ": " : ", ");
        if (least >= DP_BENCH_ALIKE) {
            dp_bench_say_times(text, least);
            dp_bench_say(text, " over ");
        } else if (i == 0) {
            dp_bench_say(text, "about as fast as ");
        }
        dp_bench_say(text, "%s", said[1 + i]->strategy);
    }
}

/* Bounds are measurements, too: a wire may carry a little more than what one message showed, and
 * sums in place may fit into caches that are too small for a copy between two arrays. */
static void say_bound(struct dp_bench_text *text, const struct dp_bench_row *row)
{
    const double part = row->bound_us / row->median_us;

    if (!(row->bound_us > 0.0) || row->size < BOUND_FROM) {
        return;
    }
    if (part > beaten_from) {
        dp_bench_say(text, ", beats the %s: ", row->bound);
        dp_bench_say_times(text, part);
    } else if (part >= 0.995) {
        dp_bench_say(text, ", as fast as the %s", row->bound);
    } else {
        dp_bench_say(text, ", at %.0f %% of the %s", 100.0 * part, row->bound);
    }
}

/* Of the ways that are fastest at `size`, finds the one that stays fastest for most sizes, and
 * returns its row at the last of these. So noise does not cut the sizes into many stretches. */
static const struct dp_bench_row *find_winner(const struct dp_bench_rows *rows, size_t size)
{
    const struct dp_bench_row *winner = NULL;
    double time = 0.0;

    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i], *end;
        if ((size_t)row->size != size || !dp_bench_counts(row, true)) {
            continue;
        }
        end = dp_bench_stretch(rows, row, size);
        if (end != NULL && (winner == NULL || end->size > winner->size ||
                            (end->size == winner->size && dp_bench_time(row) < time))) {
            winner = end;
            time = dp_bench_time(row);
        }
    }
    return winner;
}

/* "ring is fastest from 64K to 16M: 2.5x over mpi, at 94 % of the wire"; one clause for each
 * stretch of sizes with the same winner. */
static void say_winners(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    size_t size = dp_bench_next_size(rows, 0), last;

    for (; size > 0; size = dp_bench_next_size(rows, last)) {
        const struct dp_bench_row *end = find_winner(rows, size);
        if (end == NULL) {
            return;
        }
        last = (size_t)end->size;
        dp_bench_say_clause(text);
        dp_bench_say(text, "%s is fastest %s ", end->strategy, last > size ? "from" : "at");
        dp_bench_say_size(text, (double)size);
        if (last > size) {
            dp_bench_say(text, " to ");
            dp_bench_say_size(text, (double)last);
        }
        say_rivals(text, rows, end, size, last);
        say_bound(text, end);
    }
}

static void say_error(struct dp_bench_text *text, const struct dp_bench_row *row)
{
    if (!isnan(row->rel_l2)) {
        dp_bench_say(text, " (relative error %.1g)", row->rel_l2);
    }
}

/* Writes how much shorter or longer than without compression. */
static void say_change(struct dp_bench_text *text, const struct dp_bench_row *on,
                       const struct dp_bench_row *off, bool pays)
{
    if (on->bucket[0] != '\0') { /* what is hidden takes no time */
        const double ms = fabs(fmax(on->exposed_us, 0.0) - fmax(off->exposed_us, 0.0)) / 1e3;
        dp_bench_say(text, "makes a step %.2f ms %s", ms, pays ? "shorter" : "longer");
    } else if (pays) {
        dp_bench_say(text, "is ");
        dp_bench_say_times(text, dp_bench_time(off) / dp_bench_time(on));
        dp_bench_say(text, " over %s without", off->strategy);
    } else {
        dp_bench_say(text, "takes ");
        dp_bench_say_times(text, dp_bench_time(on) / dp_bench_time(off));
        dp_bench_say(text, " the time of %s", off->strategy);
    }
}

/* Writes what the best compressed way gains over the best one without. */
static void say_gain(struct dp_bench_text *text, const struct dp_bench_row *on,
                     const struct dp_bench_row *off)
{
    const bool pays = dp_bench_less(on, off), loses = dp_bench_less(off, on);

    if (!pays && !loses) {
        dp_bench_say(text,
                     "compressing makes no difference that could be measured: the best is %s "
                     "over %s",
                     on->compressor, on->strategy);
    } else {
        dp_bench_say(text, "%s%s over %s%s ",
                     pays ? "" : "off is faster here: the best compressor, ", on->compressor,
                     on->strategy, pays ? "" : ",");
        say_change(text, on, off, pays);
    }
    say_error(text, on);
}

/* Writes whether compression is faster at the largest size, and what it costs. */
static void say_compression(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    const struct dp_bench_row *off, *on;
    size_t size = 0;

    for (size_t next = dp_bench_next_size(rows, 0); next > 0;
         next = dp_bench_next_size(rows, next)) {
        size = next;
    }
    off = dp_bench_fastest(rows, size, true);
    on = dp_bench_fastest(rows, size, false);
    if (off != NULL && on != NULL) {
        dp_bench_say_clause(text);
        say_gain(text, on, off);
    }
}

/* If nothing was measured without a compressor: names the fastest at the largest size, or of the
 * model. */
static void say_compressed(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    const struct dp_bench_row *best = NULL;
    double size = 0.0;

    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if (dp_bench_plain(row->compressor)) {
            return;
        }
        size = dp_bench_counts(row, false) && row->size > size ? row->size : size;
    }
    best = dp_bench_fastest(rows, (size_t)size, false);
    if (best == NULL) {
        return;
    }
    dp_bench_say_clause(text);
    if (best->bucket[0] != '\0') {
        dp_bench_say(text, "%s over ", best->compressor);
        dp_bench_say_least(text, best);
    } else {
        dp_bench_say(text, "%s over %s is fastest at ", best->compressor, best->strategy);
        dp_bench_say_size(text, size);
    }
    say_error(text, best);
    dp_bench_say(text, "; whether compressing pays is not known: put none among --compressors");
}

static void say_prediction(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    double *errors = dp_zalloc(rows->count, sizeof(*errors));
    size_t count = 0;

    text->failed = text->failed || errors == NULL;
    for (size_t i = 0; i < rows->count && errors != NULL; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if (row->size >= PREDICTED_FROM && row->predicted_us > 0.0 &&
            strcmp(row->bucket, "sum") != 0) {
            errors[count++] = fabs(row->predicted_us / row->median_us - 1.0);
        }
    }
    if (count > 0) {
        dp_sort(errors, count);
        dp_bench_say_clause(text);
        dp_bench_say(text, "predictions from 64K up are off by %.0f %% (median of %zu)",
                     100.0 * dp_median(errors, count), count);
    }
    dp_free(errors);
}

static void say_wrong(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if (dp_bench_plain(row->compressor) && row->wrong > 0.0) {
            dp_bench_say_clause(text);
            dp_bench_say(text, "%s is WRONG", row->strategy);
            return;
        }
    }
}

static void say_times(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    const bool model = rows->options->buckets != NULL;

    if (model && rows->options->iterations < DP_STATS_FEWEST) {
        dp_bench_say_clause(text);
        dp_bench_say(text,
                     "what sharing adds to a step cannot be told from so few: give -n %d or "
                     "more",
                     DP_STATS_FEWEST);
        return;
    }
    if (model) {
        dp_bench_say_exposed(text, rows);
    } else {
        say_winners(text, rows);
    }
    say_compression(text, rows);
    say_compressed(text, rows);
}

static void say_all(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    say_wrong(text, rows);
    if (rows->count > 0 && rows->row[0].ranks == 1.0) {
        dp_bench_say_clause(text);
        dp_bench_say(text, "one rank shares nothing: run under mpirun");
        return;
    }
    say_times(text, rows);
    dp_bench_say_accuracy(text, rows);
    say_prediction(text, rows);
}

dp_status dp_bench_verdict(const struct dp_bench_rows *rows, char **verdict)
{
    struct dp_bench_text text = {.used = 0};

    dp_bench_say(&text, "%s", ""); /* a text, even if there is nothing to say */
    say_all(&text, rows);
    if (text.failed) {
        dp_free(text.at);
        return DP_FAIL(DP_ERR_NOMEM, "a verdict on %zu rows", rows->count);
    }
    *verdict = text.at;
    return DP_OK;
}
