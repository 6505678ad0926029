/*
 * unpack.h - records back into what other programs read: arrays as npy files, pictures as files in
 * folders of classes.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_UNPACK_H
#define DP_RUNTIME_DATA_RECORDS_UNPACK_H

#include "runtime/data/records/records.h"

/*
 * Makes the folder `to`, which data.source npy or folder reads to the same bytes. Pictures that are
 * stored as pixels become PNG files; files of pictures are what they were, numbered.
 *
 * It is called `to`.part until it is whole, and what is unpacked so far stays there after an error.
 *
 *   stopped  whether to give up, asked now and then; may be NULL
 *
 * Errors: those of reading; DP_ERR_USAGE (one of both is there), DP_ERR_WRITE, DP_STOPPED.
 */
DP_CHECKED dp_status dp_records_unpack(const struct dp_records *records, const char *to,
                                       bool (*stopped)(void));

#endif
