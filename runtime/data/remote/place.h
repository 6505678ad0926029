/*
 * place.h - a data.dir that is no folder of this host: https://, http:// or s3://.
 *
 * s3://BUCKET/PREFIX is read as S3 wants it: the bucket is the first part of the path at
 * AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, where one is set, else of Amazon's host name for the
 * region in AWS_REGION or AWS_DEFAULT_REGION (us-east-1). Requests are signed with
 * AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; without a key they are not, as
 * public buckets allow.
 */
#ifndef DP_RUNTIME_DATA_REMOTE_PLACE_H
#define DP_RUNTIME_DATA_REMOTE_PLACE_H

#include <stdbool.h>

#include "base/status.h"

enum { DP_PLACE_BYTES = 2048, DP_REGION_BYTES = 64 };

struct dp_place {
    char shown[DP_PLACE_BYTES]; /* as it was written, without a slash at its end: for messages */
    char base[DP_PLACE_BYTES];  /* the address that "/NAME" is put after */
    bool plain;               /* http:// to another host: anybody between can read and change it */
    const char *key, *secret; /* borrowed from the environment; NULL: requests are not signed */
    const char *token;        /* also signed; NULL: none */
    char region[DP_REGION_BYTES];
};

/* Whether it begins as one. */
bool dp_place_is_remote(const char *dir);

/* Reads one, and the environment. Errors: DP_ERR_CONFIG (what it is cannot be fetched from). */
DP_CHECKED dp_status dp_place_read(const char *dir, struct dp_place *out);

#endif
