/*
 * verdict_model.c - the verdict on ways to share a model's gradients: how much longer they make a
 * step, and what compressors cost in accuracy.
 */
#include <math.h>
#include <string.h>

#include "launch/bench/bench.h"
#include "launch/bench/compare.h"
#include "launch/bench/verdict.h"

/* Writes what a way, other than the best one, adds to a step. */
static void say_other(struct dp_bench_text *text, const struct dp_bench_row *best,
                      const struct dp_bench_row *row)
{
    const double ms = row->exposed_us / 1e3;

    if (!dp_bench_hidden(best)) {
        dp_bench_say(text, ", %s by %.2f ms%s", row->strategy, ms,
                     dp_bench_less(best, row) ? "" : " (no difference that could be measured)");
    } else if (dp_bench_hidden(row)) {
        dp_bench_say(text, ", %s is hidden, too", row->strategy);
    } else {
        dp_bench_say(text, ", %s makes it %.2f ms longer", row->strategy, ms);
    }
}

void dp_bench_say_least(struct dp_bench_text *text, const struct dp_bench_row *best)
{
    if (dp_bench_hidden(best)) {
        dp_bench_say(text, "%s is hidden: it makes a step no longer that could be measured",
                     best->strategy);
    } else {
        dp_bench_say(text, "%s makes a step least longer, by %.2f ms", best->strategy,
                     best->exposed_us / 1e3);
    }
}

void dp_bench_say_exposed(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    const size_t size = dp_bench_next_size(rows, 0);
    const struct dp_bench_row *best = size > 0 ? dp_bench_fastest(rows, size, true) : NULL;

    if (best == NULL) {
        return;
    }
    dp_bench_say_clause(text);
    dp_bench_say_least(text, best);
    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if (row != best && dp_bench_counts(row, true)) {
            say_other(text, best, row);
        }
    }
}

/* --train: whether the last loss was not a number. */
static bool diverged(const struct dp_bench_row *row)
{
    return !isnan(row->accuracy) && !isfinite(row->loss);
}

/* Whether a row before row i has the same compressor, and diverged. */
static bool told_before(const struct dp_bench_rows *rows, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (diverged(&rows->row[k]) &&
            strcmp(rows->row[k].compressor, rows->row[i].compressor) == 0) {
            return true;
        }
    }
    return false;
}

static void say_diverged(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        const char *compressor = rows->row[i].compressor, *between = " over ";
        if (!diverged(&rows->row[i]) || told_before(rows, i)) {
            continue;
        }
        dp_bench_say_clause(text);
        dp_bench_say(text, "%s diverged",
                     dp_bench_plain(compressor) ? "training without compressor" : compressor);
        for (size_t k = i; k < rows->count; k++) {
            if (diverged(&rows->row[k]) && strcmp(rows->row[k].compressor, compressor) == 0) {
                dp_bench_say(text, "%s%s", between, rows->row[k].strategy);
                between = ", ";
            }
        }
        dp_bench_say(text, ": its loss is no number");
    }
}

/* The row without compressor of the same strategy, before row i; NULL: none. */
static const struct dp_bench_row *plain_before(const struct dp_bench_rows *rows, size_t i)
{
    const struct dp_bench_row *plain = NULL;

    for (size_t k = 0; k < i; k++) {
        const struct dp_bench_row *row = &rows->row[k];
        if (!isnan(row->accuracy) && !diverged(row) && dp_bench_plain(row->compressor) &&
            strcmp(row->strategy, rows->row[i].strategy) == 0) {
            plain = row;
        }
    }
    return plain;
}

/* Points of accuracy that the compressor of row i loses; NaN: unknown, or it diverged. */
static double points_lost(const struct dp_bench_rows *rows, size_t i)
{
    const struct dp_bench_row *row = &rows->row[i], *plain = plain_before(rows, i);

    return plain == NULL || dp_bench_plain(row->compressor) || diverged(row)
               ? (double)NAN
               : 100.0 * (plain->accuracy - row->accuracy);
}

/* Writes the points of accuracy that compressors cost: the most over strategies, which send the
 * same but add in different orders. */
void dp_bench_say_accuracy(struct dp_bench_text *text, const struct dp_bench_rows *rows)
{
    say_diverged(text, rows);
    for (size_t i = 0; i < rows->count; i++) {
        double most = points_lost(rows, i);
        bool reported = isnan(most);
        for (size_t k = 0; k < rows->count && !reported; k++) {
            const double points = points_lost(rows, k);
            if (!isnan(points) && strcmp(rows->row[k].compressor, rows->row[i].compressor) == 0) {
                reported = k < i;
                most = points > most ? points : most;
            }
        }
        if (!reported) {
            dp_bench_say_clause(text);
            dp_bench_say(text, "%s %s %.1f points of accuracy", rows->row[i].compressor,
                         most >= 0.0 ? "loses" : "gains", fabs(most));
        }
    }
}
