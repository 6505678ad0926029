#define ZSTD_STATIC_LINKING_ONLY /* a context in memory of ours */

#include "runtime/data/records/block.h"

#include <string.h>
#include <zstd.h>

#include "base/mem.h"
#include "runtime/data/pictures/pixels.h"

struct dp_block_packer {
    ZSTD_CCtx *context; /* owned */
};

enum { NUMBER_BYTES = 8, END_BYTES = 4, LEAST_SAVING = 16 };

static size_t label_bytes(const struct dp_block_form *form)
{
    return form->label_numbers * NUMBER_BYTES;
}

/* ---- writing ---- */

bool dp_block_fits(const struct dp_block_builder *b, size_t bytes, size_t most)
{
    const size_t label = b->form.label_numbers > 1 ? label_bytes(&b->form) : 0;
    const size_t used = b->used + b->samples * label;

    return b->samples == 0 ||
           (b->samples < DP_SHARD_BLOCK_SAMPLES && used <= most && bytes + label <= most - used);
}

/* Room for the labels of a block: those of one number for the most samples, others as many as the
 * block may have bytes. */
static size_t label_room(const struct dp_block_form *form, size_t most)
{
    const size_t label = label_bytes(form);

    return form->label_numbers == 1 ? DP_SHARD_BLOCK_SAMPLES * label : most + label;
}

bool dp_block_add(struct dp_block_builder *b, const void *data, size_t bytes, const double *label,
                  size_t most)
{
    double *labels;

    if (b->samples == 0 && (!dp_buffer_reserve(&b->data, bytes > most ? bytes : most) ||
                            !dp_buffer_reserve(&b->labels, label_room(&b->form, most)))) {
        return false;
    }
    if (bytes > 0) {
        memcpy((uint8_t *)b->data.data + b->used, data, bytes);
    }
    labels = b->labels.data;
    memcpy(labels + b->samples * b->form.label_numbers, label, label_bytes(&b->form));
    b->used += bytes;
    b->ends[b->samples] = (uint32_t)b->used;
    b->samples++;
    return true;
}

size_t dp_block_finish(struct dp_block_builder *b)
{
    const size_t numbers = b->samples * b->form.label_numbers;
    const size_t ends = b->form.sample_bytes == 0 ? b->samples : 0;
    const size_t bytes = numbers * NUMBER_BYTES + ends * END_BYTES + b->used;
    const double *labels = b->labels.data;
    uint8_t *out;

    if (!dp_buffer_reserve(&b->payload, bytes)) {
        return 0;
    }
    out = b->payload.data;
    for (size_t i = 0; i < numbers; i++, out += NUMBER_BYTES) {
        uint64_t bits;
        memcpy(&bits, &labels[i], sizeof(bits));
        dp_shard_put(out, bits, NUMBER_BYTES);
    }
    for (size_t i = 0; i < ends; i++, out += END_BYTES) {
        dp_shard_put(out, b->ends[i], END_BYTES);
    }
    memcpy(out, b->data.data, b->used);
    b->samples = 0;
    b->used = 0;
    return bytes;
}

void dp_block_builder_release(struct dp_block_builder *b)
{
    dp_buffer_release(&b->data);
    dp_buffer_release(&b->labels);
    dp_buffer_release(&b->payload);
}

void dp_block_levels(int *least, int *most)
{
    *least = 1;
    *most = ZSTD_maxCLevel();
}

dp_status dp_block_packer_create(int level, struct dp_block_packer **out)
{
    struct dp_block_packer *packer = dp_zalloc(1, sizeof(*packer));

    if (packer != NULL) {
        packer->context = ZSTD_createCCtx();
    }
    if (packer == NULL || packer->context == NULL ||
        ZSTD_isError(ZSTD_CCtx_setParameter(packer->context, ZSTD_c_compressionLevel, level))) {
        dp_block_packer_destroy(packer);
        return DP_FAIL(DP_ERR_NOMEM, "zstd of level %d", level);
    }
    *out = packer;
    return DP_OK;
}

void dp_block_packer_destroy(struct dp_block_packer *packer)
{
    if (packer != NULL) {
        (void)ZSTD_freeCCtx(packer->context);
        dp_free(packer);
    }
}

dp_status dp_block_pack(struct dp_block_packer *packer, const void *raw, size_t bytes,
                        struct dp_buffer *out, size_t *packed)
{
    if (!dp_buffer_reserve(out, ZSTD_compressBound(bytes))) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu bytes to compress", bytes);
    }
    *packed = ZSTD_compress2(packer->context, out->data, out->room, raw, bytes);
    if (ZSTD_isError(*packed)) {
        return DP_FAIL(DP_ERR_NOMEM, "zstd: %s", ZSTD_getErrorName(*packed));
    }
    if (*packed > bytes - bytes / LEAST_SAVING) {
        *packed = 0;
    }
    return DP_OK;
}

/* ---- reading ---- */

/* What zstd works with, in front of what it makes. */
size_t dp_block_work_bytes(void)
{
    return (ZSTD_estimateDCtxSize() + DP_MEM_ALIGN - 1) / DP_MEM_ALIGN * DP_MEM_ALIGN;
}

/* `work` [dp_block_work_bytes()] */
static dp_status unpack(const struct dp_shard_block *block, const void *stored, void *work,
                        uint8_t *out, struct dp_problem *problem)
{
    ZSTD_DCtx *context = ZSTD_initStaticDCtx(work, dp_block_work_bytes());
    size_t got;

    if (context == NULL) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "memory for zstd");
    }
    got = ZSTD_decompressDCtx(context, out, block->raw, stored, block->stored);
    if (ZSTD_isError(got) || got != block->raw) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "cannot be decompressed (zstd: %s)",
                                 ZSTD_isError(got) ? ZSTD_getErrorName(got) : "too short");
    }
    return DP_OK;
}

dp_status dp_block_unpack(const struct dp_shard_block *block, const void *stored,
                          struct dp_buffer *memory, const uint8_t **raw, struct dp_problem *problem)
{
    const size_t work = dp_block_work_bytes();

    if (!block->zstd) {
        *raw = stored;
        return DP_OK;
    }
    if (!dp_buffer_reserve(memory, work + block->raw)) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "%u bytes to decompress", block->raw);
    }
    *raw = (uint8_t *)memory->data + work;
    return unpack(block, stored, memory->data, (uint8_t *)memory->data + work, problem);
}

dp_status dp_block_unpack_to(const struct dp_shard_block *block, const void *stored,
                             struct dp_buffer *memory, uint8_t *out, struct dp_problem *problem)
{
    if (!dp_buffer_reserve(memory, dp_block_work_bytes())) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "memory for zstd");
    }
    return unpack(block, stored, memory->data, out, problem);
}

dp_status dp_block_open(const struct dp_shard_block *block, const uint8_t *raw,
                        const struct dp_block_form *form, struct dp_block_view *view,
                        struct dp_problem *problem)
{
    const size_t n = block->samples, sample_bytes = form->sample_bytes;
    const size_t labels = n * label_bytes(form);
    const size_t before = labels + (sample_bytes == 0 ? n * END_BYTES : 0);
    size_t end = 0;

    *view = (struct dp_block_view){.labels = raw,
                                   .ends = raw + labels,
                                   .data = raw + before,
                                   .form = *form,
                                   .samples = block->samples};
    if (before > block->raw || (sample_bytes > 0 && (block->raw - before) / n != sample_bytes) ||
        (sample_bytes > 0 && (block->raw - before) % n != 0)) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "has %u bytes, which are not %zu samples",
                                 block->raw, n);
    }
    for (size_t i = 0; sample_bytes == 0 && i < n; i++) {
        const size_t next = (size_t)dp_shard_get(view->ends + i * END_BYTES, END_BYTES);
        if (next < end || next > block->raw - before ||
            (i + 1 == n && next != block->raw - before)) {
            return dp_problem_refuse(problem, DP_ERR_DATA,
                                     "sample %zu of it (counted from 0) ends where it cannot", i);
        }
        end = next;
    }
    return DP_OK;
}

const uint8_t *dp_block_sample(const struct dp_block_view *view, uint32_t i, size_t *bytes)
{
    size_t begin, end;

    if (view->form.sample_bytes > 0) {
        *bytes = view->form.sample_bytes;
        return view->data + i * view->form.sample_bytes;
    }
    begin = i == 0 ? 0 : (size_t)dp_shard_get(view->ends + (size_t)(i - 1) * END_BYTES, END_BYTES);
    end = (size_t)dp_shard_get(view->ends + (size_t)i * END_BYTES, END_BYTES);
    *bytes = end - begin;
    return view->data + begin;
}

double dp_block_label(const struct dp_block_view *view, uint32_t i, size_t k)
{
    const uint8_t *at = view->labels + i * label_bytes(&view->form) + k * NUMBER_BYTES;
    const uint64_t bits = dp_shard_get(at, NUMBER_BYTES);
    double label;

    memcpy(&label, &bits, sizeof(label));
    return label;
}

const double *dp_block_numbers(const struct dp_block_view *view, uint32_t i)
{
    return (const double *)(const void *)(view->labels + i * label_bytes(&view->form));
}

void dp_block_pixels_head(uint8_t out[DP_BLOCK_PIXELS_HEAD], int height, int width, int channels)
{
    dp_shard_put(out, (uint64_t)height, 4);
    dp_shard_put(out + 4, (uint64_t)width, 4);
    dp_shard_put(out + 8, (uint64_t)channels, 4);
}

dp_status dp_block_pixels(const uint8_t *sample, size_t bytes, struct dp_sample_shape *shape,
                          struct dp_problem *problem)
{
    uint64_t height, width, channels;

    if (bytes < DP_BLOCK_PIXELS_HEAD) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "is shorter than a picture can be");
    }
    height = dp_shard_get(sample, 4);
    width = dp_shard_get(sample + 4, 4);
    channels = dp_shard_get(sample + 8, 4);
    DP_TRY(dp_picture_check_size((unsigned)width, (unsigned)height, problem));
    if ((channels != 1 && channels != 3) ||
        height * width * channels != bytes - DP_BLOCK_PIXELS_HEAD) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "has %zu bytes, which are not %llu x %llu pixels of %llu "
                                 "channels",
                                 bytes, (unsigned long long)width, (unsigned long long)height,
                                 (unsigned long long)channels);
    }
    *shape = (struct dp_sample_shape){.height = (int)height,
                                      .width = (int)width,
                                      .channels = (int)channels,
                                      .count = (size_t)(height * width * channels),
                                      .element = DP_ELEMENT_BYTE};
    return DP_OK;
}
