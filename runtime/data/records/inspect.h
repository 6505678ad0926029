/*
 * inspect.h - looks through a folder of records: whether it is whole, and how fast it is read.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_INSPECT_H
#define DP_RUNTIME_DATA_RECORDS_INSPECT_H

#include "runtime/data/records/records.h"

/* Reads all of it: every hash, every label, every sample, pictures decoded. Errors: DP_ERR_DATA:
 * the message names file, block and sample of the first damage. */
DP_CHECKED dp_status dp_records_verify(const struct dp_records *records);

struct dp_records_timing {
    uint64_t samples, stored_bytes, sample_bytes; /* that were read, in the time below */
    double seconds;
    double take_s, check_s, expand_s, decode_s; /* of it; decoding is 0 of arrays */
};

/*
 * Reads the training set for at most `seconds`, on the calling thread.
 *
 *   shuffled  samples in the order of an epoch, one block for each; else blocks in order
 *
 * Errors: those of reading.
 */
DP_CHECKED dp_status dp_records_time(const struct dp_records *records, bool shuffled,
                                     double seconds, struct dp_records_timing *timing);

#endif
