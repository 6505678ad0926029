#include "collectives/compressors/codec_sum.h"

#include <assert.h>

#include "base/random.h"

enum { BARRIERS = 2 }; /* of a sum whose codes are read in place */

/* Bytes of a slot: of the longest chunk of any bucket, which may be longer than its share. */
static size_t slot_bytes_of(const struct dp_codec *codec, size_t max_count, size_t ranks)
{
    const size_t chunk = dp_chunk_room(max_count, (int)ranks);

    return dp_round_up(codec->bytes(codec->context, chunk), DP_MEM_ALIGN);
}

size_t dp_codec_sum_bytes(const struct dp_codec *codec, size_t max_count, int ranks)
{
    const size_t size = (size_t)ranks, slot_bytes = slot_bytes_of(codec, max_count, size);

    return size *
           (3 * slot_bytes + DP_CODEC_SUM_TILE * sizeof(float)); /* mine, landed, and tiles */
}

static dp_status open_memory(struct dp_codec_sum *c, size_t max_count)
{
    struct dp_group *group = c->comm->group;
    const size_t size = (size_t)group->size;
    const bool on_device = !c->comm->codes->device->host_memory;

    c->slot_bytes = slot_bytes_of(&c->codec, max_count, size);
    if (c->slot_bytes > DP_MESSAGE_MAX) {
        return DP_FAIL(DP_ERR_CONFIG, "comm.compressor: a layer is too large for %zu ranks", size);
    }
    DP_TRY(dp_bounce_buffer_open(&c->mine, c->comm, 2 * size * c->slot_bytes, true));
    c->shared = dp_group_reaches(group, c->mine.host);
    c->pieces = c->shared ? NULL : dp_mem_arena(DP_MEM_COMM, size * c->slot_bytes);
    c->landed = on_device ? dp_codes_alloc(c->comm, size * c->slot_bytes) : NULL;
    c->tiles = dp_codes_alloc(c->comm, size * DP_CODEC_SUM_TILE * sizeof(float));
    c->tile = dp_zalloc(size, sizeof(*c->tile));
    c->piece = dp_zalloc(size, sizeof(*c->piece));
    return (c->shared || c->pieces != NULL) && (!on_device || c->landed != NULL) &&
                   c->tiles != NULL && c->tile != NULL && c->piece != NULL
               ? DP_OK
               : DP_ERR_NOMEM;
}

dp_status dp_codec_sum_open(struct dp_codec_sum *c, struct dp_comm *comm,
                            const struct dp_codec *codec, size_t max_count)
{
    dp_status status;

    *c = (struct dp_codec_sum){.comm = comm, .codec = *codec};
    status = open_memory(c, max_count);
    if (status != DP_OK) {
        dp_group_leave(comm->group, status);
        dp_codec_sum_close(c);
        return DP_FAIL(status, "codes of %zu elements of %d ranks", max_count, comm->group->size);
    }
    for (int i = 0; i < comm->group->size; i++) {
        c->tile[i] = c->tiles + (size_t)i * DP_CODEC_SUM_TILE;
    }
    return DP_OK;
}

void dp_codec_sum_close(void *codec_sum)
{
    struct dp_codec_sum *c = codec_sum;

    dp_bounce_buffer_close(&c->mine);
    dp_free(c->pieces);
    dp_codes_release(c->comm, c->landed);
    dp_codes_release(c->comm, c->tiles);
    dp_free(c->tile);
    dp_free(c->piece);
}

/* The code of chunk i of `data`, in slot `slot` of the codes at `codes`. */
static struct dp_slice code_at(const struct dp_codec_sum *c, char *codes, int slot,
                               struct dp_slice data, int i)
{
    const size_t count = dp_slice_chunk(data, c->comm->group->size, i).count;

    return (struct dp_slice){codes + (size_t)slot * c->slot_bytes,
                             c->codec.bytes(c->codec.context, count), 1};
}

/* Codes of the sums, which follow those of this rank's chunks. */
static char *sums_of(const struct dp_codec_sum *c)
{
    return c->mine.host + (size_t)c->comm->group->size * c->slot_bytes;
}

/* The device's copy, where the code is made, of a code in the host's array, from which it is
 * sent. */
static struct dp_slice made_at(const struct dp_codec_sum *c, struct dp_slice code)
{
    code.data = c->mine.there + ((char *)code.data - c->mine.host);
    return code;
}

static dp_status send(struct dp_codec_sum *c, struct dp_slice code)
{
    return dp_bounce_buffer_out(&c->mine, (size_t)((char *)code.data - c->mine.host), code.count);
}

/* The address in rank i's memory that corresponds to `mine`. */
static void *place_at(const struct dp_codec_sum *c, void *mine, int i)
{
    struct dp_group *group = c->comm->group;

    return i == group->rank ? mine : dp_group_peer(group, mine, i);
}

/* Makes a code of x, which is chunk i of the compressed bucket, with residuals added if any. */
static dp_status encode(struct dp_codec_sum *c, struct dp_slice code, struct dp_slice x, int i,
                        const struct dp_compressed_bucket *p, uint32_t what)
{
    const struct dp_slice chunk = dp_slice_chunk(p->grad, c->comm->group->size, i);
    const size_t begin = (size_t)((float *)chunk.data - (float *)p->grad.data);
    const struct dp_key key = {.seed = p->seed,
                               .first = p->bucket->range.begin + begin,
                               .what = DP_RANDOM_CODE + what,
                               .step = p->step_params->step};

    assert(code.count <= c->slot_bytes && x.count == chunk.count);
    if (x.count == 0) {
        return DP_OK;
    }
    {
        DP_CODING(p, encode_ns);
        DP_TRY(c->codec.encode(c->codec.context, c->comm->codes, made_at(c, code).data, x.data,
                               x.count, &key));
    }
    return send(c, code);
}

/* y = x, which is of this compressed bucket, plus what earlier codes left out. The sum is in
 * `residual` if that is not NULL, and y is then the same array. */
static dp_status with_residual(const struct dp_codec_sum *c, const struct dp_compressed_bucket *p,
                               struct dp_slice x, float *residual, struct dp_slice *y)
{
    struct dp_stream *stream = c->comm->codes;
    DP_CODING(p, encode_ns);

    *y = x;
    if (residual == NULL) {
        return DP_OK;
    }
    y->data = residual;
    return stream->ops->add(stream, residual, x.data, x.count);
}

/* Makes the code of chunk i of x, which is the compressed bucket's gradient with residuals. */
static dp_status encode_chunk(struct dp_codec_sum *c, const struct dp_compressed_bucket *p,
                              struct dp_slice x, int i)
{
    const struct dp_group *group = c->comm->group;

    return encode(c, code_at(c, c->mine.host, i, p->grad, i), dp_slice_chunk(x, group->size, i), i,
                  p, (uint32_t)group->rank);
}

static dp_status swap_shared(struct dp_codec_sum *c, const struct dp_compressed_bucket *p,
                             struct dp_slice x)
{
    struct dp_group *group = c->comm->group;
    const int size = group->size, rank = group->rank;

    for (int i = 0; i < size; i++) {
        DP_TRY(encode_chunk(c, p, x, i));
    }
    DP_TRY(dp_bounce_buffer_wait(&c->mine));
    group->wire_bytes += (uint64_t)(size - 1) * code_at(c, c->mine.host, rank, p->grad, rank).count;
    return dp_comm_barrier(c->comm);
}

/* Receives codes of this rank's chunk from all others: pairwise, so that no rank gets two at a
 * time. While one is in flight the next is made. This rank's own code, which is not sent, comes
 * last. */
static dp_status swap(struct dp_codec_sum *c, const struct dp_compressed_bucket *p)
{
    struct dp_group *group = c->comm->group;
    const int size = group->size, rank = group->rank;
    struct dp_transfer transfer = {.to = -1, .from = -1};
    struct dp_slice x;

    DP_TRY(with_residual(c, p, p->grad, p->residual[0], &x));
    if (c->shared) {
        return swap_shared(c, p, x);
    }
    for (int distance = 1; distance <= size; distance++) {
        const int to = (rank + distance) % size, from = (rank + size - distance) % size;
        DP_TRY(encode_chunk(c, p, x, to));
        DP_TRY(dp_bounce_buffer_wait(&c->mine));
        DP_TRY(dp_group_finish(group, &transfer));
        if (to != rank) {
            DP_TRY(dp_group_start(group, to, code_at(c, c->mine.host, to, p->grad, to), from,
                                  code_at(c, c->pieces, from, p->grad, rank), &transfer));
        }
    }
    return DP_OK;
}

/* The code that rank i sent of this rank's chunk. */
static struct dp_slice piece_of(const struct dp_codec_sum *c, struct dp_slice data, int i)
{
    const int rank = c->comm->group->rank;
    struct dp_slice code = code_at(c, c->shared || i == rank ? c->mine.host : c->pieces,
                                   c->shared ? rank : i, data, rank);

    code.data = c->shared ? place_at(c, code.data, i) : code.data;
    return code;
}

/* Copies a code of rank i that has come to the host to where it can be decoded. */
static dp_status land(const struct dp_codec_sum *c, int i, struct dp_slice code, const void **out)
{
    char *slot = c->landed == NULL ? NULL : c->landed + (size_t)i * c->slot_bytes;

    *out = slot == NULL ? code.data : slot;
    return slot == NULL
               ? DP_OK
               : c->comm->codes->device->upload(c->comm->codes, slot, code.data, code.count);
}

/* chunk = the sum of what all ranks sent of it. */
static dp_status add_pieces(struct dp_codec_sum *c, const struct dp_compressed_bucket *p,
                            struct dp_slice chunk)
{
    struct dp_stream *stream = c->comm->codes;
    const int size = c->comm->group->size;
    DP_CODING(p, decode_ns);

    for (int i = 0; i < size && chunk.count > 0; i++) {
        DP_TRY(land(c, i, piece_of(c, p->grad, i), &c->piece[i]));
    }
    for (size_t at = 0; at < chunk.count; at += DP_CODEC_SUM_TILE) {
        const size_t left = chunk.count - at;
        const struct dp_range part = {at, left < DP_CODEC_SUM_TILE ? left : DP_CODEC_SUM_TILE};
        float *sum = (float *)chunk.data + at;
        for (int i = 0; i < size; i++) {
            DP_TRY(c->codec.decode(c->codec.context, stream,
                                   c->tiles + (size_t)i * DP_CODEC_SUM_TILE, c->piece[i],
                                   chunk.count, part));
        }
        DP_TRY(stream->ops->sum_tree(stream, &sum, 1, c->tile, size, part.count));
    }
    return DP_OK;
}

/* Decodes the sum of chunk i. */
static dp_status decode_sum(struct dp_codec_sum *c, const struct dp_compressed_bucket *p, int i)
{
    const struct dp_slice chunk = dp_slice_chunk(p->grad, c->comm->group->size, i);
    struct dp_slice code = code_at(c, sums_of(c), i, p->grad, i);
    const void *landed;
    DP_CODING(p, decode_ns);

    if (chunk.count == 0) {
        return DP_OK;
    }
    code.data = c->shared ? place_at(c, code.data, i) : code.data;
    DP_TRY(land(c, i, code, &landed));
    return c->codec.decode(c->codec.context, c->comm->codes, chunk.data, landed, chunk.count,
                           (struct dp_range){0, chunk.count});
}

/* Sends codes of the sums to all ranks, around a ring; while one comes in, the previous one is
 * decoded. */
static dp_status gather(struct dp_codec_sum *c, const struct dp_compressed_bucket *p)
{
    const struct dp_slice data = p->grad;
    struct dp_group *group = c->comm->group;
    const int size = group->size, rank = group->rank;
    const int next = (rank + 1) % size, prev = (rank + size - 1) % size;

    if (c->shared) {
        for (int i = 0; i < size; i++) {
            group->wire_bytes += i == rank ? 0 : code_at(c, c->mine.host, i, data, i).count;
        }
        DP_TRY(dp_comm_barrier(c->comm));
    }
    for (int turn = 0; turn < size; turn++) {
        const int out = (rank - turn + size) % size, in = (out + size - 1) % size;
        struct dp_transfer transfer = {.to = -1, .from = -1};
        if (!c->shared && turn < size - 1) {
            DP_TRY(dp_group_start(group, next, code_at(c, sums_of(c), out, data, out), prev,
                                  code_at(c, sums_of(c), in, data, in), &transfer));
        }
        DP_TRY(decode_sum(c, p, out));
        DP_TRY(dp_group_finish(group, &transfer));
    }
    return DP_OK;
}

/* Peers read this rank's codes up to the second barrier, and its sums up to the first barrier of
 * the next call. Neither is overwritten before. */
dp_status dp_codec_sum_run(void *codec_sum, const struct dp_compressed_bucket *p, enum dp_keep keep)
{
    struct dp_codec_sum *c = codec_sum;
    const struct dp_group *group = c->comm->group;
    const int rank = group->rank;
    const struct dp_slice chunk = dp_slice_chunk(p->grad, group->size, rank);
    const size_t begin = (size_t)((float *)chunk.data - (float *)p->grad.data);
    struct dp_slice x;

    if (p->grad.count == 0) {
        return DP_OK;
    }
    DP_TRY(swap(c, p));
    DP_TRY(add_pieces(c, p, chunk));
    if (keep == DP_KEEP_CHUNK) {
        DP_TRY(dp_bounce_buffer_wait(&c->mine)); /* until peers have read them */
        return c->shared ? dp_comm_barrier(c->comm) : DP_OK;
    }
    DP_TRY(with_residual(c, p, chunk, p->residual[1] == NULL ? NULL : p->residual[1] + begin, &x));
    DP_TRY(encode(c, code_at(c, sums_of(c), rank, p->grad, rank), x, rank, p, 0xffffff));
    DP_TRY(dp_bounce_buffer_wait(&c->mine));
    return gather(c, p);
}

struct dp_coding_work dp_codec_sum_work(const void *codec_sum, int ranks)
{
    (void)codec_sum;
    return (struct dp_coding_work){1.0 + 1.0 / ranks, 2.0};
}

uint64_t dp_codec_sum_wire(const void *codec_sum, const struct dp_bucket *bucket, enum dp_keep keep)
{
    const struct dp_codec_sum *c = codec_sum;
    const struct dp_group *group = c->comm->group;
    const struct dp_slice data = {c->mine.host, bucket->range.count, 0}; /* only lengths matter */
    const int size = group->size, rank = group->rank;
    uint64_t others = 0, sums = 0;

    for (int i = 0; i < size; i++) {
        const uint64_t bytes = code_at(c, c->mine.host, 0, data, i).count;
        others += i == rank ? 0 : bytes;
        sums += i == (rank + 1) % size ? 0 : bytes; /* the last to arrive is not sent on */
    }
    if (c->shared) {
        sums = others;
        others = (uint64_t)(size - 1) * code_at(c, c->mine.host, 0, data, rank).count;
    }
    return others + (keep == DP_KEEP_ALL ? sums : 0);
}

double dp_codec_sum_cost(const struct dp_codec *codec, const struct dp_cost *cost,
                         const struct dp_group *group, size_t count)
{
    const size_t size = (size_t)group->size, chunk = (count + size - 1) / size;
    const double code = (double)codec->bytes(codec->context, chunk);
    double seconds = 0.0;

    if (dp_group_one_node(group) && cost->peer.count > 0) {
        return BARRIERS * cost->flags_s;
    }
    for (int distance = 1; distance < group->size; distance++) {
        seconds += dp_cost_exchange(cost, group, distance, code) +
                   dp_cost_neighbour(cost, group, code); /* swap, gather */
    }
    return seconds;
}
