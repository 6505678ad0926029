/*
 * efficiency.h - what scaling efficiency is lost to: factors that multiply to it.
 *
 * A step of one rank alone is made longer in turn by what each cause adds to a step of the run:
 * computing that is slower, waiting for input, communication that nothing hides, waiting for ranks
 * that come later, all else. A factor is the length of the step before over that after.
 */
#ifndef DP_RUNTIME_REPORT_EFFICIENCY_H
#define DP_RUNTIME_REPORT_EFFICIENCY_H

#include "runtime/report/summary.h"

/*
 * Fills in the members efficiency_..., from scaling_efficiency and the ranks' parts of a step.
 *
 *   compute_ms  computing of one rank alone in a step; NaN: not known, so that what is lost to
 *               contention counts among all else
 *   waiting_ms  of the exposed communication of a mean rank what is waiting for other ranks; NaN:
 *               not known, so that it counts as communication
 */
void dp_efficiency_split(struct dp_run_summary *summary, double compute_ms, double waiting_ms);

#endif
