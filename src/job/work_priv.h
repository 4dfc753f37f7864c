/* Shared by the files of the spine. */
#pragma once

#include "job/work.h"

/** Finds the models, the mesh, threads and precision. A run keeps the precision of its first start;
 * ranks on different CPUs take the least. plan: a planned job, of which one rank represents any
 * mesh; NULL: this job. *memory is filled by bp_work.describe.
 *
 * Collective: over `world`. Close after an error too. Errors: bp_work_run's. */
bp_err work_open_mesh(bp_work_job *job, bp_work_memory *memory, MPI_Comm world,
                      const bp_planned_world *plan);
/** Opens model and inputs, without a memory check. Collective over world. */
bp_err work_open_model(bp_work_job *job);
void work_close(bp_work_job *job);

/** Set `index` of the units; NULL after the last. Local. */
const bp_work_units *work_units_at(const bp_work_job *job, int index);
/** bp_work_units.run, on the lead with the others' answers. Collective over mesh->replica. Errors:
 * may differ between its ranks. */
bp_err work_run_unit(bp_work_job *job, const bp_work_units *units, int64_t unit, bp_buffer *out,
                     bool *stopped);
/** Free with bp_free(). */
char *work_parts_folder(const bp_work_job *job, const bp_work_units *units);
