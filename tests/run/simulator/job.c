/* A job between taking the lock and letting it go: leftovers, the newest step, training, retention.
 */
#include "simulator.h"

#include "base/err.h"

void sim_job_start(sim_world *world, int host)
{
    sim_job *job;

    BP_ASSERT(world->job_count < SIM_JOBS);
    job = &world->jobs[world->job_count];
    *job = (sim_job){.id = world->job_count++,
                     .host = host,
                     .ready = world->now,
                     .dies_at = SIM_NEVER,
                     .keep = 1 + (int)sim_below(&world->random, 2),
                     .writers = 1 + (int)sim_below(&world->random, SIM_WRITERS)};
    for (int k = 0; k < SIM_WRITERS; k++)
        job->writer[k].ready = SIM_NEVER;
    world->heartbeat_moved[job->id] = -SIM_NEVER;
    lock_record_begin(&job->lock_record, SIM_WATCH);
    sim_note(world, job, "starts on host %d with %d writers", host, job->writers);
}

void sim_next_phase(sim_job *job, job_phase phase)
{
    job->phase = phase;
    job->sub = 0;
}

/* Nobody but an owner that was followed, and those to whom something was done, may fail. */
void sim_job_end(sim_world *world, sim_job *job, bool failed, const char *why)
{
    sim_note(world, job, "ends: %s%s", why, failed ? " (failed)" : "");
    if (failed && !job->hurt && !job->lost)
        sim_fail(world, job, "a job fails that nothing was done to: %s", why);
    job->phase = JOB_GONE;
}

static void leave(sim_job *job, bool failed)
{
    job->failed = failed;
    sim_next_phase(job, JOB_RELEASE);
}

/* ---- folders ---- */

bool sim_remove_some(sim_world *world, sim_job *job, sim_name name)
{
    int folder = disk_find(&world->disk, FOLDER_STEPS, name);
    sim_name inside[SIM_NAMES];
    int count;

    if (folder < 0)
        return true;
    count = disk_list(&world->disk, folder, inside, SIM_NAMES);
    if (count > 0) {
        (void)disk_remove(&world->disk, folder, inside[sim_below(&world->random, count)]);
        return false;
    }
    (void)disk_remove(&world->disk, FOLDER_STEPS, name);
    sim_changed(world, job->host, FOLDER_STEPS);
    return true;
}

static void list_steps(sim_world *world, sim_job *job, bool fresh)
{
    job->name_count = sim_list(world, job->host, FOLDER_STEPS, fresh, job->names);
    job->name_at = 0;
}

/* .tmp- to .del- */
static void put_aside(sim_world *world, sim_job *job, sim_name *name, name_kind kind)
{
    sim_name aside = name_of(NAME_DEL, name_number(*name),
                             kind == NAME_STEP ? (job->id << 6) + 60 : name_token(*name));

    (void)disk_rename(&world->disk, FOLDER_STEPS, *name, aside, false);
    sim_changed(world, job->host, FOLDER_STEPS);
    *name = aside;
}

/* ---- leftovers: the names, whether it is ours, aside with them, that to disk, away ---- */

/* True when there is no leftover left of the list. */
static bool each_leftover(sim_world *world, sim_job *job, bool removes)
{
    sim_tempt(world);
    while (job->name_at < job->name_count) {
        sim_name *name = &job->names[job->name_at];
        name_kind kind = name_kind_of(*name);

        if (!removes) {
            job->name_at++;
            if (kind != NAME_TMP || world->broken == BREAK_CLEAN_IN_PLACE)
                continue;
            put_aside(world, job, name, kind);
            return false;
        }
        if ((kind != NAME_TMP && kind != NAME_DEL) || sim_remove_some(world, job, *name))
            job->name_at++;
        return false;
    }
    job->name_at = 0;
    return true;
}

static bool has_leftovers(const sim_job *job)
{
    for (int k = 0; k < job->name_count; k++)
        if (name_kind_of(job->names[k]) == NAME_TMP || name_kind_of(job->names[k]) == NAME_DEL)
            return true;
    return false;
}

static void clean(sim_world *world, sim_job *job)
{
    switch (job->sub) {
    case 0:
        list_steps(world, job, world->broken != BREAK_REFRESH);
        job->sub = 1;
        return;
    case 1:
        if (world->broken != BREAK_CLEAN_UNASKED && !sim_is_ours(world, job))
            leave(job, true);
        else
            job->sub = 2;
        return;
    case 2:
        job->sub += each_leftover(world, job, false);
        return;
    case 3:
        if (has_leftovers(job) && world->broken != BREAK_SYNC_CLEAN)
            disk_sync_folder(&world->disk, FOLDER_STEPS);
        job->sub = 4;
        return;
    default:
        if (!each_leftover(world, job, true))
            return;
        if (job->lock_record.number > world->last_cleaned)
            world->last_cleaned = job->lock_record.number;
        sim_next_phase(job, JOB_DISCOVER);
    }
}

/* ---- the newest step ---- */

static sim_name find_step(const sim_world *world, const sim_job *job)
{
    sim_name found = 0;

    for (int k = 0; k < job->name_count; k++)
        if (name_kind_of(job->names[k]) == NAME_STEP &&
            (found == 0 || (job->names[k] > found) == (world->broken != BREAK_DISCOVERY)))
            found = job->names[k];
    return found;
}

/* The look and the cut are one breath here: what stops a process between two system calls of it is
 * not promised. */
static void cut_lines(sim_world *world, sim_job *job)
{
    int kept = 0;

    if (!sim_is_ours(world, job)) {
        leave(job, true);
        return;
    }
    while (kept < world->line_count && world->lines[kept].step <= job->step)
        kept++;
    world->line_count = kept;
    world->lines_synced = kept;
    for (int k = 0; k < kept; k++)
        if (world->lines[k].step != k + 1)
            sim_fail(world, job, "line %d is of step %lld: written by job %d", k + 1,
                     (long long)world->lines[k].step, world->lines[k].job);
    if (kept != job->step)
        sim_fail(world, job, "%d lines lead to step %lld", kept, (long long)job->step);
    sim_note(world, job, "goes on from step %lld", (long long)job->step);
    if (job->step > world->announced) /* whoever placed it had no time to say so */
        world->announced = job->step;
    sim_next_phase(job, JOB_TRAIN);
}

static void discover(sim_world *world, sim_job *job)
{
    sim_name found;

    sim_tempt(world);

    switch (job->sub++) {
    case 0:
        list_steps(world, job, true);
        found = find_step(world, job);
        job->step = found == 0 ? 0 : name_number(found);
        if (sim_is_ours(world, job) && job->step < world->announced)
            sim_fail(world, job, "a start finds step %lld, and %lld was announced",
                     (long long)job->step, (long long)world->announced);
        return;
    case 1:
        if (world->broken != BREAK_SYNC_FOUND)
            disk_sync_folder(&world->disk, FOLDER_STEPS);
        return;
    default:
        cut_lines(world, job);
    }
}

/* ---- training ---- */

static void write_line(sim_world *world, sim_job *job)
{
    bool ours = world->broken == BREAK_LINES ? !job->lost : sim_is_ours(world, job);

    if (!ours || sim_hit(world, job)) {
        leave(job, true);
        return;
    }
    if (job->lock_record.number < world->last_won)
        sim_fail(world, job, "a line of number %lld comes after %lld was won",
                 (long long)job->lock_record.number, (long long)world->last_won);
    BP_ASSERT(world->line_count < SIM_LINES);
    world->lines[world->line_count].step = job->step;
    world->lines[world->line_count++].job = job->id;
}

static void begin_commit(sim_world *world, sim_job *job)
{
    if (sim_hit(world, job)) {
        leave(job, true);
        return;
    }
    if (world->broken != BREAK_JOURNAL_SYNC)
        world->lines_synced = world->line_count;
    job->hidden = name_of(NAME_TMP, job->step, (job->id << 6) + ++job->tries);
    job->final = name_of(NAME_STEP, job->step, 0);
    bp_commit_begin(&job->commit);
    sim_next_phase(job, JOB_COMMIT);
}

static void train(sim_world *world, sim_job *job)
{
    bool due = job->step % 2 == 0 || job->stops;

    if (job->sub == 0 && (job->step == SIM_STEPS || job->stops)) {
        leave(job, false);
    } else if (job->sub == 0) {
        job->step++;
        job->ready = world->now + sim_uniform(&world->random, 1, 20);
        job->sub = 1;
    } else if (job->sub == 1) {
        job->sub = due ? 2 : 0;
        write_line(world, job);
    } else {
        begin_commit(world, job);
    }
}

/* ---- retention ---- */

/* The next that is to go: put aside, that to disk, then removed. */
static void prune(sim_world *world, sim_job *job)
{
    sim_name *name;

    if (job->name_at == job->name_count) {
        sim_next_phase(job, JOB_TRAIN);
        return;
    }
    name = &job->names[job->name_at];
    if (job->sub == 2) {
        put_aside(world, job, name, NAME_STEP);
        sim_tempt(world);
        job->sub = 3;
    } else if (job->sub == 3 && sim_hit(world, job)) {
        sim_next_phase(job, JOB_TRAIN); /* what was put aside is the next start's */
    } else if (job->sub == 3) {
        if (world->broken != BREAK_PRUNE)
            disk_sync_folder(&world->disk, FOLDER_STEPS);
        job->sub = 4;
    } else if (sim_remove_some(world, job, *name)) {
        job->name_at++;
        job->sub = 2;
    }
}

static void choose_old(const sim_world *world, sim_job *job)
{
    int keep = world->broken == BREAK_PRUNE_ALL ? 0 : job->keep, count = 0;

    for (int k = 0; k < job->name_count; k++) {
        int newer = 0;

        for (int n = 0; n < job->name_count; n++)
            newer += name_kind_of(job->names[n]) == NAME_STEP && job->names[n] > job->names[k];
        if (name_kind_of(job->names[k]) == NAME_STEP && newer >= keep) {
            sim_name old = job->names[k];

            job->names[k] = job->names[count]; /* the old ones to the front */
            job->names[count++] = old;
        }
    }
    job->name_count = count;
}

static void tidy(sim_world *world, sim_job *job)
{
    if (job->sub == 0) {
        if (sim_is_ours(world, job))
            job->sub = 1;
        else
            sim_next_phase(job, JOB_TRAIN);
    } else if (job->sub == 1) {
        list_steps(world, job, true);
        choose_old(world, job);
        job->sub = 2;
    } else {
        prune(world, job);
    }
}

/* ---- one operation ---- */

void sim_job_act(sim_world *world, sim_job *job)
{
    job->ready = world->now + sim_takes(world);
    switch (job->phase) {
    case JOB_TAKE:
        sim_take(world, job);
        break;
    case JOB_SWEEP:
        sim_sweep(world, job);
        break;
    case JOB_CLEAN:
        clean(world, job);
        break;
    case JOB_DISCOVER:
        discover(world, job);
        break;
    case JOB_TRAIN:
        train(world, job);
        break;
    case JOB_COMMIT:
        sim_commit(world, job);
        break;
    case JOB_TIDY:
        tidy(world, job);
        break;
    case JOB_RELEASE:
        sim_release(world, job);
        break;
    case JOB_GONE:
        break;
    }
}
