#include "runtime/trainer/step_scalars.h"

enum { PIECE_BITS = 11, BAD_AT = 2, REQUESTS_AT = 3, HASHES_AT = REQUESTS_AT + DP_REQUEST_COUNT };

static float piece(uint64_t hash, int i)
{
    return (float)(hash >> (i * PIECE_BITS) & ((1u << PIECE_BITS) - 1));
}

void dp_step_scalars_write(float *tail, const struct dp_step_scalars *scalars)
{
    tail[BAD_AT] = (float)scalars->bad_samples;
    for (int i = 0; i < DP_REQUEST_COUNT; i++) {
        tail[REQUESTS_AT + i] = scalars->request[i] ? 1.0f : 0.0f;
    }
    for (int i = 0; i < DP_AGREE_COUNT * DP_HASH_PIECES; i++) {
        tail[HASHES_AT + i] = piece(scalars->hash[i / DP_HASH_PIECES], i % DP_HASH_PIECES);
    }
}

dp_status dp_step_scalars_read(const float *tail, const struct dp_step_scalars *scalars, int ranks,
                               uint64_t step, struct dp_step_report *report)
{
    static const char *const whats[] = {"the bucket plan", "the order of communication"};

    report->split = false;
    for (int i = 0; i < DP_AGREE_COUNT * DP_HASH_PIECES; i++) {
        const int what = i / DP_HASH_PIECES;
        if (tail[HASHES_AT + i] == (float)ranks * piece(scalars->hash[what], i % DP_HASH_PIECES)) {
            continue;
        }
        report->split = what == DP_AGREE_WEIGHTS;
        if (!report->split) {
            return DP_FAIL(DP_ERR_DISAGREE, "step %llu: ranks do not agree on %s",
                           (unsigned long long)step, whats[what]);
        }
    }
    report->loss = tail[0];
    report->score = tail[1];
    report->bad_samples = tail[BAD_AT];
    for (int i = 0; i < DP_REQUEST_COUNT; i++) {
        report->request[i] = tail[REQUESTS_AT + i] > 0.0f;
    }
    return DP_OK;
}
