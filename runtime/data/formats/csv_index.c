#include "runtime/data/formats/csv_index.h"

#include <string.h>

#include "base/mem.h"

enum { ROOM_AT_FIRST = 64 };

/* Another block begins at the line that comes next. */
static dp_status begin_block(struct dp_csv_index *index, size_t at, struct dp_problem *problem)
{
    if (index->count + 1 >= index->room) { /* one more, for the end */
        const size_t room = index->room == 0 ? ROOM_AT_FIRST : 2 * index->room;
        struct dp_csv_block *blocks = dp_zalloc(room, sizeof(*blocks));
        if (blocks == NULL) {
            return dp_problem_refuse(problem, DP_ERR_NOMEM, "places of %zu blocks of lines", room);
        }
        if (index->count > 0) {
            memcpy(blocks, index->blocks, index->count * sizeof(*blocks));
        }
        dp_free(index->blocks);
        index->blocks = blocks;
        index->room = room;
    }
    index->blocks[index->count++] = (struct dp_csv_block){at, index->line};
    return DP_OK;
}

/* A line is complete, whose end is at `end`; the next one begins at `next`. */
static dp_status close_line(struct dp_csv_index *index, size_t end, size_t next,
                            struct dp_problem *problem)
{
    const size_t length = end - index->line_begin;

    if (length > DP_CSV_LINE) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "line %zu is longer than %d MiB: it is no line of numbers",
                                 index->line + 1, DP_CSV_LINE >> 20);
    }
    if (length > 0 && !(length == 1 && index->carriage)) {
        if (index->lines < index->line) {
            return dp_problem_refuse(problem, DP_ERR_DATA, "line %zu is empty: take it out",
                                     index->lines + 1);
        }
        if (index->count == 0 ||
            index->line_begin - index->blocks[index->count - 1].at >= DP_CSV_BLOCK) {
            DP_TRY(begin_block(index, index->line_begin, problem));
        }
        index->lines++;
        index->end = next;
    }
    index->line++;
    index->line_begin = next;
    index->carriage = false;
    return DP_OK;
}

dp_status dp_csv_index_take(struct dp_csv_index *index, const char *bytes, size_t count,
                            struct dp_problem *problem)
{
    const char *at = bytes, *end = bytes + count;

    while (at < end) {
        const size_t place = index->bytes + (size_t)(at - bytes);
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        index->carriage = index->carriage || (place == index->line_begin && *at == '\r');
        if (stop == NULL) {
            break;
        }
        const size_t stop_at = index->bytes + (size_t)(stop - bytes);
        DP_TRY(close_line(index, stop_at, stop_at + 1, problem));
        at = stop + 1;
    }
    index->bytes += count;
    if (index->bytes - index->line_begin > DP_CSV_LINE) {
        return close_line(index, index->bytes, index->bytes, problem);
    }
    return DP_OK;
}

dp_status dp_csv_index_finish(struct dp_csv_index *index, struct dp_problem *problem)
{
    if (index->bytes > index->line_begin) { /* the last line has no end */
        DP_TRY(close_line(index, index->bytes, index->bytes, problem));
    }
    if (index->count > 0) {
        index->blocks[index->count] = (struct dp_csv_block){index->end, index->lines};
    }
    return DP_OK;
}

size_t dp_csv_index_find(const struct dp_csv_index *index, size_t line)
{
    size_t low = 0, high = index->count - 1;

    while (low < high) { /* the last block that begins at this line or before it */
        const size_t middle = low + (high - low + 1) / 2;
        if (index->blocks[middle].line <= line) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

void dp_csv_index_release(struct dp_csv_index *index)
{
    dp_free(index->blocks);
    *index = (struct dp_csv_index){.blocks = NULL};
}
