/* Before each pass all ranks exchange the number of rows of theirs. Called by the models whose
 * experts are on several ranks, and by jobs between their units of work. */
#include "mesh/lockstep.h"

#include "base/err.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

/* The values of a rank without a pass: for now, or for good. Other ranks send the pass
 * (pass_of). */
enum { IDLE = 0, ENDED = -1 };

#define ROWS_END ((int64_t)1 << 40)

/* The larger ones come first. */
static int64_t pass_of(int number, bool few, int64_t rows)
{
    return (2 * (int64_t)number + few) * ROWS_END + rows;
}

struct bp_lockstep {
    MPI_Comm comm;
    bp_lockstep_calls calls;
    bp_lockstep_model *models;
    int model_count;
    int64_t own, *all; /* the value of this rank, and of each */
    MPI_Request request;
};

bp_lockstep *bp_lockstep_new(MPI_Comm comm)
{
    bp_lockstep *lockstep = bp_alloc("mesh.lockstep", 1, sizeof *lockstep);

    lockstep->comm = comm;
    lockstep->all = bp_alloc("mesh.lockstep", bp_comm_size(comm), sizeof *lockstep->all);
    return lockstep;
}

void bp_lockstep_free(bp_lockstep **lockstep)
{
    if (!*lockstep)
        return;
    bp_free((*lockstep)->models);
    bp_free((*lockstep)->all);
    bp_free(*lockstep);
    *lockstep = NULL;
}

void bp_lockstep_set(bp_lockstep *lockstep, const bp_lockstep_calls *calls)
{
    lockstep->calls = calls ? *calls : (bp_lockstep_calls){0};
}

int bp_lockstep_add(bp_lockstep *lockstep, const bp_lockstep_model *model)
{
    lockstep->models = bp_realloc("mesh.lockstep", lockstep->models, lockstep->model_count + 1,
                                  sizeof *lockstep->models);
    lockstep->models[lockstep->model_count] = *model;
    return lockstep->model_count++;
}

int bp_lockstep_models(const bp_lockstep *lockstep)
{
    return lockstep->model_count;
}

static bool have_all_said(void *context)
{
    bp_lockstep *self = context;
    int complete;

    if (self->calls.meanwhile)
        self->calls.meanwhile(self->calls.context);
    BP_MPI(MPI_Test(&self->request, &complete, MPI_STATUS_IGNORE));
    return complete;
}

/* Returns the maximum over ranks. */
static int64_t say(bp_lockstep *self, int64_t what)
{
    int size = bp_comm_size(self->comm);
    int64_t most;

    self->own = what;
    BP_MPI(MPI_Iallgather(&self->own, 1, MPI_INT64_T, self->all, 1, MPI_INT64_T, self->comm,
                          &self->request));
    bp_poll("lockstep", have_all_said, self);
    most = self->all[0];
    for (int r = 1; r < size; r++)
        most = self->all[r] > most ? self->all[r] : most;
    return most;
}

static void serve(bp_lockstep *self, int64_t pass)
{
    int64_t kind = pass / ROWS_END;
    const bp_lockstep_model *model = &self->models[kind / 2];

    BP_ASSERT(pass > 0 && kind / 2 < self->model_count);
    model->serve(model->context, kind % 2 == 1, pass % ROWS_END);
}

int64_t bp_lockstep_begin(bp_lockstep *lockstep, int number, bool few, int64_t rows)
{
    int64_t own = pass_of(number, few, rows), most;

    BP_ASSERT(rows > 0 && rows < ROWS_END);
    while ((most = say(lockstep, own)) / ROWS_END != own / ROWS_END)
        serve(lockstep, most);
    return most % ROWS_END;
}

void bp_lockstep_follow(bp_lockstep *lockstep)
{
    serve(lockstep, say(lockstep, IDLE));
}

bool bp_lockstep_idle(bp_lockstep *lockstep, bool ends)
{
    int64_t most = say(lockstep, ends ? ENDED : IDLE);

    if (most > 0) {
        if (lockstep->calls.others)
            lockstep->calls.others(lockstep->calls.context);
        serve(lockstep, most);
    }
    return most != ENDED;
}
