/*
 * mlflow.h - a run as MLflow keeps runs in files: one folder an experiment, in it one a run, in it
 * a file for each metric and each parameter.
 *
 * MLflow 3 reads such a store where MLFLOW_ALLOW_FILE_STORE=true is set, and takes it into a
 * database by `mlflow migrate-filestore`.
 */
#ifndef DP_RUNTIME_REPORT_FILES_MLFLOW_H
#define DP_RUNTIME_REPORT_FILES_MLFLOW_H

#include "runtime/report/record/run_record.h"

/*
 * Adds a run to the store `folder`, which is made where it is not there. The experiment has the
 * name of the run's configuration. Metrics are those of the steps and evaluations in
 * metrics.jsonl, and the numbers of run.json as run.KEY; parameters are the keys of config.yaml;
 * artifacts are the folder of the run itself. A run that is added again replaces what it was.
 *
 * Errors: DP_ERR_WRITE, DP_ERR_NOMEM, DP_ERR_DATA.
 */
DP_CHECKED dp_status dp_mlflow_write(const struct dp_run_record *record, const char *folder);

#endif
