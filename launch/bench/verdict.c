/*
 * verdict.c - which way to share gradients, and why: made from the rows alone.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "launch/bench/bench.h"
#include "launch/bench/stats.h"
#include "launch/bench/text.h"

/* Below the last latencies, and what queues of a wire let pass at once, count for more than any
 * bound. */
enum { RIVALS = 3, PREDICTED_FROM = 65536, BOUND_FROM = 1 << 20 };

/* Closer than this is called equal. */
static const double alike = 1.03;

/* Rows that are compared with each other: one size, or the sums of all buckets. */
static bool counts(const struct dp_bench_row *row, bool plain)
{
    return dp_bench_plain(row->compressor) == plain && !(plain && row->wrong > 0.0) &&
           (row->bucket[0] == '\0' || strcmp(row->bucket, "sum") == 0);
}

/* What decides: of a model the time that its step gets longer, else the time of a call. */
static double time_of(const struct dp_bench_row *row)
{
    return row->bucket[0] != '\0' ? row->exposed_us : row->median_us;
}

/* The fastest row of that size, with or without compression; NULL: none. */
static const struct dp_bench_row *fastest(const struct dp_bench_rows *rows, size_t size, bool plain)
{
    const struct dp_bench_row *best = NULL;

    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if (counts(row, plain) && (size_t)row->size == size &&
            (best == NULL || time_of(row) < time_of(best))) {
            best = row;
        }
    }
    return best;
}

/* The row of the same way at another size. */
static const struct dp_bench_row *same_way(const struct dp_bench_rows *rows,
                                           const struct dp_bench_row *way, size_t size)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if ((size_t)row->size == size && strcmp(row->strategy, way->strategy) == 0 &&
            strcmp(row->compressor, way->compressor) == 0 &&
            (row->bucket[0] == '\0' || strcmp(row->bucket, "sum") == 0)) {
            return row;
        }
    }
    return NULL;
}

/* The next size above `size`; 0: none. */
static size_t next_size(const struct dp_bench_rows *rows, size_t size)
{
    size_t next = 0;

    for (size_t i = 0; i < rows->count; i++) {
        const size_t other = (size_t)rows->row[i].size;
        if (counts(&rows->row[i], true) && other > size && (next == 0 || other < next)) {
            next = other;
        }
    }
    return next;
}

/* The median over sizes [first, last] of how many times longer `rival` takes than `best`; 0 where
 * they do not meet. */
static double advantage(const struct dp_bench_rows *rows, const struct dp_bench_row *best,
                        const struct dp_bench_row *rival, size_t first, size_t last)
{
    double ratios[64];
    size_t count = 0;

    for (size_t size = first; size > 0 && size <= last && count < 64;
         size = next_size(rows, size)) {
        const struct dp_bench_row *a = same_way(rows, best, size);
        const struct dp_bench_row *b = same_way(rows, rival, size);
        if (a != NULL && b != NULL && time_of(a) > 0.0) {
            ratios[count++] = time_of(b) / time_of(a);
        }
    }
    if (count == 0) {
        return 0.0;
    }
    dp_stats_sort(ratios, count);
    return dp_stats_median(ratios, count);
}

/* The ways that `best` left behind, the nearest ones first. */
static void say_rivals(struct dp_bench_text *text, const struct dp_bench_rows *rows,
                       const struct dp_bench_row *best, size_t first, size_t last)
{
    double said = 0.0; /* the advantage over the rival said last */

    for (int i = 0; i < RIVALS; i++) {
        const struct dp_bench_row *nearest = NULL;
        double least = 0.0;
        for (size_t k = 0; k < rows->count; k++) {
            const struct dp_bench_row *rival = &rows->row[k];
            const double times = (size_t)rival->size == last && counts(rival, true) && rival != best
                                     ? advantage(rows, best, rival, first, last)
                                     : 0.0;
            if (times > said && (nearest == NULL || times < least)) {
                nearest = rival;
                least = times;
            }
        }
        if (nearest == NULL) {
            return;
        }
        said = least;
        dp_bench_say(text, i == 0 ? ": " : ", ");
        if (least < alike) {
            dp_bench_say(text, "about as fast as");
        } else {
            dp_bench_say_times(text, least);
            dp_bench_say(text, " over");
        }
        dp_bench_say(text, " %s", nearest->strategy);
    }
}

/* What was measured of a wire in one go may be a little less than what it can carry. */
static void say_bound(struct dp_bench_text *text, const struct dp_bench_row *row)
{
    const double percent = 100.0 * row->bound_us / row->median_us;

    if (!(row->bound_us > 0.0) || row->size < BOUND_FROM) {
        return;
    }
    if (percent >= 99.5) {
        dp_bench_say(text, ", as fast as the %s", row->bound);
    } else {
        dp_bench_say(text, ", at %.0f %% of the %s", percent, row->bound);
    }
}

/* The winner at the largest of the sizes from `size` on that `best` wins, one after another. */
static const struct dp_bench_row *end_of_stretch(const struct dp_bench_rows *rows,
                                                 const struct dp_bench_row *best, size_t size)
{
    const struct dp_bench_row *end = best;

    for (size_t next = next_size(rows, size); next > 0; next = next_size(rows, next)) {
        const struct dp_bench_row *row = fastest(rows, next, true);
        if (row == NULL || strcmp(row->strategy, best->strategy) != 0) {
            break;
        }
        end = row;
    }
    return end;
}

/* "ring is fastest from 64K to 16M: 2.5x over mpi, at 94 % of the wire"; one clause for each
 * stretch of sizes with the same winner. */
static void say_winners(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    size_t size = next_size(rows, 0), last;

    for (; size > 0; size = next_size(rows, last)) {
        const struct dp_bench_row *best = fastest(rows, size, true), *end;
        if (best == NULL) {
            return;
        }
        end = end_of_stretch(rows, best, size);
        last = (size_t)end->size;
        dp_bench_say_clause(text);
        dp_bench_say(text, "%s is fastest %s ", best->strategy, last > size ? "from" : "at");
        dp_bench_say_size(text, (double)size);
        if (last > size) {
            dp_bench_say(text, " to ");
            dp_bench_say_size(text, (double)last);
        }
        say_rivals(text, rows, end, size, last);
        say_bound(text, end);
    }
}

/* Of a model: what is exposed of a step, the least first. */
static void say_exposed(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    const size_t size = next_size(rows, 0);
    const struct dp_bench_row *best = size > 0 ? fastest(rows, size, true) : NULL;

    if (best == NULL) {
        return;
    }
    dp_bench_say_clause(text);
    dp_bench_say(text, "%s makes a step least longer, by %.2f ms", best->strategy,
                 best->exposed_us / 1e3);
    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if (row != best && counts(row, true)) {
            dp_bench_say(text, ", %s by %.2f ms", row->strategy, row->exposed_us / 1e3);
        }
    }
}

static void say_error(struct dp_bench_text *text, const struct dp_bench_row *row)
{
    if (!isnan(row->rel_l2)) {
        dp_bench_say(text, " (relative error %.1g)", row->rel_l2);
    }
}

/* What the best compressed way gains over the best way without. */
static void say_gain(struct dp_bench_text *text, const struct dp_bench_row *on,
                     const struct dp_bench_row *off)
{
    const bool model = on->bucket[0] != '\0';
    const bool pays = model ? time_of(on) < time_of(off) : time_of(on) * alike < time_of(off);

    if (!pays) {
        dp_bench_say(text, "off is faster here: the best compressor, ");
    }
    dp_bench_say(text, "%s over %s%s ", on->compressor, on->strategy, pays ? "" : ",");
    if (model) {
        dp_bench_say(text, "makes a step %.2f ms %s", fabs(time_of(on) - time_of(off)) / 1e3,
                     pays ? "shorter" : "longer");
    } else if (pays) {
        dp_bench_say(text, "is ");
        dp_bench_say_times(text, time_of(off) / time_of(on));
        dp_bench_say(text, " over %s without", off->strategy);
    } else {
        dp_bench_say(text, "takes ");
        dp_bench_say_times(text, time_of(on) / time_of(off));
        dp_bench_say(text, " the time of %s", off->strategy);
    }
    say_error(text, on);
}

/* Whether compression pays at the largest size, and what it costs. */
static void say_compression(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    const struct dp_bench_row *off, *on;
    size_t size = 0;

    for (size_t next = next_size(rows, 0); next > 0; next = next_size(rows, next)) {
        size = next;
    }
    off = fastest(rows, size, true);
    on = fastest(rows, size, false);
    if (off != NULL && on != NULL) {
        dp_bench_say_clause(text);
        say_gain(text, on, off);
    }
}

/* Where nothing was measured without a compressor: the fastest at the largest size, or of the
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
        size = counts(row, false) && row->size > size ? row->size : size;
    }
    best = fastest(rows, (size_t)size, false);
    if (best == NULL) {
        return;
    }
    dp_bench_say_clause(text);
    if (best->bucket[0] != '\0') {
        dp_bench_say(text, "%s over %s makes a step least longer, by %.2f ms", best->compressor,
                     best->strategy, best->exposed_us / 1e3);
    } else {
        dp_bench_say(text, "%s over %s is fastest at ", best->compressor, best->strategy);
        dp_bench_say_size(text, size);
    }
    say_error(text, best);
    dp_bench_say(text, "; whether compressing pays is not known: put none among --compressors");
}

/* The row without compressor of the same strategy, before row i; NULL: none. */
static const struct dp_bench_row *plain_before(const struct dp_bench_rows *rows, size_t i)
{
    const struct dp_bench_row *plain = NULL;

    for (size_t k = 0; k < i; k++) {
        const struct dp_bench_row *row = &rows->row[k];
        if (!isnan(row->accuracy) && dp_bench_plain(row->compressor) &&
            strcmp(row->strategy, rows->row[i].strategy) == 0) {
            plain = row;
        }
    }
    return plain;
}

/* Points of accuracy that the compressor of row i loses; NaN: not known. */
static double points_lost(const struct dp_bench_rows *rows, size_t i)
{
    const struct dp_bench_row *row = &rows->row[i], *plain = plain_before(rows, i);

    return plain == NULL || dp_bench_plain(row->compressor)
               ? (double)NAN
               : 100.0 * (plain->accuracy - row->accuracy);
}

/* Points of accuracy that compressors cost: of each the most over strategies, which add in other
 * orders, but send the same. */
static void say_accuracy(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        double most = points_lost(rows, i);
        bool told = isnan(most);
        for (size_t k = 0; k < rows->count && !told; k++) {
            const double points = points_lost(rows, k);
            if (!isnan(points) && strcmp(rows->row[k].compressor, rows->row[i].compressor) == 0) {
                told = k < i;
                most = points > most ? points : most;
            }
        }
        if (!told) {
            dp_bench_say_clause(text);
            dp_bench_say(text, "%s %s %.1f points of accuracy", rows->row[i].compressor,
                         most >= 0.0 ? "loses" : "gains", fabs(most));
        }
    }
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
        dp_stats_sort(errors, count);
        dp_bench_say_clause(text);
        dp_bench_say(text, "predictions from 64K up are off by %.0f %% (median of %zu)",
                     100.0 * dp_stats_median(errors, count), count);
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

static void say_all(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    say_wrong(text, rows);
    if (rows->count > 0 && rows->row[0].ranks == 1.0) {
        dp_bench_say_clause(text);
        dp_bench_say(text, "one rank shares nothing: run under mpirun");
        return;
    }
    if (rows->options->buckets != NULL) {
        say_exposed(text, rows);
    } else {
        say_winners(text, rows);
    }
    say_compression(text, rows);
    say_compressed(text, rows);
    say_accuracy(text, rows);
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
