/* Shared by the files of the spine. */
#ifndef BP_JOB_WORK_PRIV_H
#define BP_JOB_WORK_PRIV_H

#include "job/work.h"

/** What is applied, the mesh, threads and precision: a run keeps the one that its first start
 * resolved, and ranks on unlike CPUs take the least. plan: one rank represents any mesh, of a job
 * to come; NULL: this one. *memory gets what bp_work.describe says.
 *
 * Collective: over `world`. Close after an error too. Errors: bp_work_run's. */
bp_err work_open_mesh(bp_work_job *job, bp_work_memory *memory, MPI_Comm world,
                      const bp_planned_world *plan);
/** Model and inputs, without a look at memory. Collective over world. */
bp_err work_open_model(bp_work_job *job);
void work_close(bp_work_job *job);

/** Set `index` of the units; NULL: no more. Local. */
const bp_work_units *work_units_at(const bp_work_job *job, int index);
/** bp_work_units.run, on the lead with the others' answers. Collective over mesh->replica. Errors:
 * may differ between its ranks. */
bp_err work_run_unit(bp_work_job *job, const bp_work_units *units, int64_t unit, bp_buffer *out,
                     bool *stopped);
/** Free with bp_free(). */
char *work_parts_folder(const bp_work_job *job, const bp_work_units *units);

#endif
