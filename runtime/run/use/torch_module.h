/*
 * torch_module.h - the model of a run as a module of Python: the nn.Sequential that takes its
 * weights with load_state_dict(strict=True), and how samples become its input.
 */
#ifndef DP_RUNTIME_RUN_USE_TORCH_MODULE_H
#define DP_RUNTIME_RUN_USE_TORCH_MODULE_H

#include "base/status.h"

/*
 * Writes it, from the configuration and the state of the newest whole checkpoint.
 *
 *   run   in  a run, or a checkpoint
 *   path  in  of the file, which is replaced
 *
 * Errors: DP_ERR_NOINPUT (no run), DP_ERR_DATA (no whole checkpoint), DP_ERR_CONFIG (a layer for
 * which PyTorch has no module; weights of another model), DP_ERR_WRITE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_torch_module_write(const char *run, const char *path);

#endif
