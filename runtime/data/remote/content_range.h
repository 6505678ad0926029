/*
 * content_range.h - which bytes of a file an answer holds: the header Content-Range.
 *
 * Source: RFC 9110, section 14.4.
 */
#ifndef DP_RUNTIME_DATA_REMOTE_CONTENT_RANGE_H
#define DP_RUNTIME_DATA_REMOTE_CONTENT_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dp_content_range {
    uint64_t begin, end; /* [begin, end); end 0: none, since the file has not those asked for */
    uint64_t total;      /* bytes of the file; 0: the server does not say */
};

/* Reads the value of the header, with or without spaces and a line end around it. False: it is no
 * range of bytes that can be. */
bool dp_content_range_parse(const char *text, size_t bytes, struct dp_content_range *out);

#endif
