/*
 * disk_speed.h - how fast a folder's disk reads and writes, past the memory that caches files.
 */
#ifndef DP_BASE_FILES_DISK_SPEED_H
#define DP_BASE_FILES_DISK_SPEED_H

/* GB/s, GB = 1e9 bytes, of reading the largest file in a folder, from its beginning and for
 * `seconds` at most. NaN: there is none of 1 MiB, or the file system has no reads that pass the
 * cache (O_DIRECT). */
double dp_disk_read_gbs(const char *folder, double seconds);

/* The same of writing a file without a name there, until it is on the disk; less than 64 MiB, and
 * nothing where less than ten times that is free. NaN: it cannot be measured. */
double dp_disk_write_gbs(const char *folder, double seconds);

/* A number for the disk that a folder is on; 0: there is no such folder. */
unsigned long dp_disk_number(const char *folder);

#endif
