/*
 * costs.h - switches of tests: what is slow, and what is missing, on the device and in its
 * libraries.
 *
 *   DP_HOST_SLOW=LIST    these take ten times as long, as measured with events:
 *                        last (engines of mode FALLBACK), wide (gradients of weights in float32 by
 *                        cuDNN), fused (convolutions with bias or relu), nan (of these, such as
 *                        propagate NaN), sums (products with epilogue BGRADB), pass (a kernel),
 *                        few (convolutions whose channels are no multiple of 8), cudnn (all)
 *   DP_HOST_LACKS=LIST   these are missing:
 *                        wide, fused (engines of mode INSTANT for the above), nan (fused engines
 *                        that propagate NaN), sums (the heuristic returns INVALID_VALUE), handles
 *                        (cudaIpcGetMemHandle fails), large-handles (it fails for more than 4 MiB),
 *                        nvrtc, builtins
 *                        (the libraries that cuDNN compiles engines with)
 *
 * Lists are words with commas in between. They are read at each call, so that a test can change
 * them.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_COSTS_H
#define DP_TESTS_CUDA_ON_HOST_COSTS_H

/* The time of something of that kind, in ms: 1, or 10. */
double cuda_on_host_cost(const char *what);
bool cuda_on_host_lacks(const char *what);

#endif
