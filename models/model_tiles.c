/*
 * model_tiles.c - which rows of a segment a thread computes, and how many of them at a time.
 */
#include "models/model.h"

struct dp_tiles dp_tiles_of(const struct dp_device *device, int threads)
{
    return (struct dp_tiles){device->tile_bytes, device->parallel != NULL ? (size_t)threads : 1};
}

size_t dp_segment_bands(const struct dp_segment *segment, struct dp_tiles tiles, size_t rows)
{
    return segment->row_local && tiles.bytes > 0 && rows >= tiles.threads * DP_TILE_ROWS_MIN
               ? tiles.threads
               : 1;
}

struct dp_range dp_rows_part(size_t rows, size_t count, size_t i)
{
    const size_t begin = i * rows / count;

    return (struct dp_range){begin, (i + 1) * rows / count - begin};
}

size_t dp_segment_tile(const struct dp_segment *segment, size_t rows, struct dp_tiles tiles)
{
    size_t tile;

    if (!segment->tiled || tiles.bytes == 0) {
        return rows;
    }
    tile = tiles.bytes / (segment->row * sizeof(float));
    tile = tile < DP_TILE_ROWS_MIN ? DP_TILE_ROWS_MIN : tile;
    return tile < rows ? tile : rows;
}

size_t dp_segment_tiles(const struct dp_segment *segment, size_t most, struct dp_tiles tiles,
                        size_t rows)
{
    const size_t tile = dp_segment_tile(segment, most, tiles);

    return rows == 0 ? 1 : (rows + tile - 1) / tile;
}

struct dp_range dp_segment_gradients(const struct dp_model *m, const struct dp_segment *segment)
{
    struct dp_range range = {0, 0};

    for (int n = segment->first; n <= segment->last; n++) {
        const struct dp_node *node = &m->nodes[n];
        const struct dp_tensor *tensors = &m->tensors[node->first_param];
        const int count = node->plan.param_count;
        if (node->type->backward_end != NULL || count == 0) {
            continue;
        }
        range.begin = range.count == 0 ? tensors->begin : range.begin;
        range.count = tensors[count - 1].begin + tensors[count - 1].count - range.begin;
    }
    return range;
}

size_t dp_band_gradients(const struct dp_model *m)
{
    size_t most = 0;

    for (int i = 0; i < m->segment_count; i++) {
        const size_t count = dp_segment_gradients(m, &m->segments[i]).count;
        most = m->segments[i].row_local && count > most ? count : most;
    }
    return dp_round_up(most, DP_BLOCK);
}
