/*
 * model_tiles.c - how many rows of a segment are computed at a time.
 */
#include "models/model.h"

/* Several threads meet after each operation on a tile, so that a thread computes this many times
 * the rows at a time: models/{lenet,resnet20}.cfg, 2 threads. */
enum { SHARED = 4 };

struct dp_tiles dp_tiles_of(const struct dp_device *device, int threads)
{
    return (struct dp_tiles){device->tile_bytes * (threads > 1 ? SHARED : 1), (size_t)threads};
}

size_t dp_segment_tile(const struct dp_segment *segment, size_t rows, struct dp_tiles tiles)
{
    size_t tile;

    if (!segment->tiled || tiles.bytes == 0) {
        return rows;
    }
    tile = tiles.bytes / (segment->row * sizeof(float));
    tile = (tile < DP_TILE_ROWS_MIN ? DP_TILE_ROWS_MIN : tile) * tiles.threads;
    return tile < rows ? tile : rows;
}

size_t dp_segment_tiles(const struct dp_segment *segment, size_t most, struct dp_tiles tiles,
                        size_t rows)
{
    const size_t tile = dp_segment_tile(segment, most, tiles);

    return rows == 0 ? 1 : (rows + tile - 1) / tile;
}

struct dp_range dp_tile_rows(struct dp_tiles tiles, size_t rows, size_t count, size_t i)
{
    const size_t units = (rows + tiles.threads - 1) / tiles.threads;
    const size_t begin = i * units / count * tiles.threads;
    const size_t end = (i + 1) * units / count * tiles.threads;

    return (struct dp_range){begin, (end < rows ? end : rows) - begin};
}
