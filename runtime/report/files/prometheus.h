/*
 * prometheus.h - how a run is doing, for Prometheus: a file for the textfile collector of its
 * node_exporter.
 *
 * Source: "Exposition formats" of Prometheus' documentation, text format 0.0.4.
 */
#ifndef DP_RUNTIME_REPORT_FILES_PROMETHEUS_H
#define DP_RUNTIME_REPORT_FILES_PROMETHEUS_H

#include "runtime/report/record/run_record.h"

/* Replaces the file at `path`; a figure that is not known has no line. Errors: DP_ERR_WRITE,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_prometheus_write(const struct dp_run_record *record, const char *path);

/* Deletes what processes of this host that were killed while they replaced the file have left. */
void dp_prometheus_clean(const char *path);

#endif
