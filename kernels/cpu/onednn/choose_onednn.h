/*
 * choose_onednn.h - chooses the implementation of a convolution, oneDNN's or one of ours
 * (own_conv.c): a known choice, the fastest, or the preferred one (conv_desc_onednn.h).
 *
 * With stream->algo_choices that may measure, each implementation runs a few times, in turns, with
 * its copy of the weights, on the stream's threads. The preferred one stays unless another takes
 * at least MARGIN less time: times vary, and bits should not. A choice's value is the name of the
 * code. Row counts up to the next power of two share a choice, so that the last tile of a batch is
 * not measured by itself.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_CHOOSE_ONEDNN_H
#define DP_KERNELS_CPU_ONEDNN_CHOOSE_ONEDNN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/cpu/onednn/prepared_onednn.h"

/* Makes the convolution, whose stream is open; the caller destroys it. OpenMP has the stream's
 * number of threads. Errors: DP_ERR_NOMEM, DP_ERR_UNAVAILABLE, DP_ERR_INTERNAL. */
DP_CHECKED dp_status dp_onednn_choose(struct dp_stream *s, const struct dp_prepared_key *key,
                                      struct dp_prepared_conv **out);

/* Milliseconds by a clock to measure with: of one thread its own time, in which others that take
 * its core do not count. */
double dp_onednn_now_ms(const struct dp_stream *s);

/* Fills what is measured with: bfloats of 0.5 to 1 and of both signs, two of which are one such
 * float32. With equal numbers, whose bits do not change, a product by tiles took 0.96 of the time:
 * the clock follows the power. */
void dp_onednn_fill(uint16_t *numbers, size_t count);

/* Row counts up to it share a choice. */
size_t dp_onednn_power_of_two_from(size_t rows);

/* As machine() of struct dp_device. */
void dp_onednn_machine(char *text, size_t size);

#endif
