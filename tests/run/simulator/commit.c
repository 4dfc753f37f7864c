/* A job commits a step: commit_steps.c says what comes next, and here it is done, one operation at
 * a time. */
#include "simulator.h"

#include "base/err.h"

static int folder_of(const sim_world *world, sim_name name)
{
    return disk_find(&world->disk, FOLDER_STEPS, name);
}

static bool rename_step(sim_world *world, const sim_job *job, sim_name from, sim_name to)
{
    sim_changed(world, job->host, FOLDER_STEPS);
    return disk_rename(&world->disk, FOLDER_STEPS, from, to, false);
}

/* ---- writers, each on a host of its own ---- */

static void start_writers(sim_world *world, sim_job *job)
{
    for (int k = 0; k < job->writers; k++)
        job->writer[k] = (sim_writer){.stage = WRITER_CREATE,
                                      .ready = world->now + sim_takes(world),
                                      .content = ++world->contents,
                                      .host = (job->host + k) % SIM_HOSTS};
}

/* The report travels; a rank that is lost never sends it, and in the end the watchdog, or the
 * launcher, ends the job. */
static void send_report(sim_world *world, sim_job *job, sim_writer *writer, bool good)
{
    writer->good = good;
    writer->reported = writer->content;
    writer->stage = WRITER_REPORT;
    writer->ready = world->now + sim_takes(world);
    if (!writer->lost)
        return;
    job->hurt = true;
    writer->ready = SIM_NEVER;
    if (job->dies_at > world->now + 100)
        job->dies_at = world->now + sim_uniform(&world->random, 10, 100);
}

void sim_writer_act(sim_world *world, sim_job *job, int k)
{
    sim_writer *writer = &job->writer[k];
    int folder = folder_of(world, job->hidden), inode;
    bool failed = sim_hit(world, job);

    writer->ready = world->now + sim_takes(world);
    switch (writer->stage) {
    case WRITER_CREATE:
        if (failed || folder < 0) {
            send_report(world, job, writer, false);
            return;
        }
        (void)disk_add(&world->disk, folder, name_of(NAME_SHARD, k, 0),
                       disk_new(&world->disk, writer->content, writer->host));
        writer->stage = WRITER_SYNC;
        return;
    case WRITER_SYNC:
        inode = folder < 0 ? -1 : disk_find(&world->disk, folder, name_of(NAME_SHARD, k, 0));
        if (inode >= 0 && !failed && world->broken != BREAK_SYNC_SHARD)
            disk_sync_file(&world->disk, inode);
        if (inode >= 0 && world->torn && sim_chance(&world->random, 0.1)) {
            job->hurt = true; /* the writer sees its own cache, the server has less */
            disk_write(&world->disk, inode, DISK_TORN, writer->host);
            disk_sync_file(&world->disk, inode);
        }
        send_report(world, job, writer, inode >= 0 && !failed);
        return;
    default:
        writer->stage = WRITER_DONE;
        writer->ready = SIM_NEVER;
        for (int n = 0; n < job->writers; n++)
            if (job->writer[n].stage != WRITER_DONE)
                return;
        job->ready = world->now + sim_takes(world);
    }
}

/* ---- the root ---- */

static bool collect(const sim_world *world, sim_job *job)
{
    for (int k = 0; k < job->writers; k++)
        if (job->writer[k].good || world->broken == BREAK_REPORTS)
            bp_commit_report(&job->commit);
    return bp_commit_is_reported(&job->commit);
}

static bool recheck(const sim_world *world, const sim_job *job)
{
    int folder = folder_of(world, job->hidden);

    for (int k = 0; k < job->writers; k++) {
        int inode = folder < 0 ? -1 : disk_find(&world->disk, folder, name_of(NAME_SHARD, k, 0));

        if (inode < 0 || world->disk.inodes[inode].content != job->writer[k].reported)
            return false;
    }
    return true;
}

/* The manifest, its content to disk, and the names of the hidden folder. True: go on to the next.
 */
static bool list_files(sim_world *world, sim_job *job, bool *ok)
{
    sim_name name = name_of(NAME_MANIFEST, 0, 0);
    int folder = folder_of(world, job->hidden),
        inode = folder < 0 ? -1 : disk_find(&world->disk, folder, name);
    sim_manifest *list;

    *ok = folder >= 0;
    switch (job->sub++) {
    case 0:
        BP_ASSERT(world->list_count < SIM_LISTS);
        job->list = world->list_count++;
        list = &world->lists[job->list];
        *list = (sim_manifest){.step = job->step, .writers = job->writers};
        for (int k = 0; k < job->writers; k++)
            list->content[k] = job->writer[k].reported;
        if (*ok)
            *ok =
                disk_add(&world->disk, folder, name, disk_new(&world->disk, job->list, job->host));
        return !*ok;
    case 1:
        *ok = inode >= 0;
        if (*ok && world->broken != BREAK_SYNC_MANIFEST)
            disk_sync_file(&world->disk, inode);
        return !*ok;
    default:
        if (*ok && world->broken != BREAK_SYNC_LIST)
            disk_sync_folder(&world->disk, folder);
        return true;
    }
}

static void announce(sim_world *world, const sim_job *job)
{
    sim_note(world, job, "announces step %lld", (long long)job->step);
    if (world->announced_steps >> job->step & 1)
        sim_fail(world, job, "step %lld is announced twice", (long long)job->step);
    world->announced_steps |= 1u << job->step;
    if (job->step > world->announced)
        world->announced = job->step;
}

static bool place(sim_world *world, sim_job *job)
{
    bool done = rename_step(world, job, job->hidden, job->final);

    if (!done)
        return false;
    sim_note(world, job, "places step %lld", (long long)job->step);
    for (int k = 0; k < job->writers; k++)
        if (!job->writer[k].good)
            sim_fail(world, job, "a step was placed without a good report of writer %d", k);
    if (job->lock_record.number < world->last_cleaned)
        sim_fail(world, job, "number %lld places a step after %lld has looked for leftovers",
                 (long long)job->lock_record.number, (long long)world->last_cleaned);
    if (world->broken == BREAK_ANNOUNCE_EARLY)
        announce(world, job);
    return world->faults && sim_chance(&world->random, 0.01) ? !(job->hurt = true) : true;
}

/* One operation of the step that is due; true when the step is over, and *ok how it went. */
static bool act(sim_world *world, sim_job *job, bool *ok)
{
    bp_commit_step step = job->commit.step;

    *ok = !sim_hit(world, job);
    if (!*ok && step != BP_COMMIT_WRITE)
        return true;
    switch (step) {
    case BP_COMMIT_PLAN:
        bp_commit_expect(&job->commit, job->writers);
        return true;
    case BP_COMMIT_MAKE:
        sim_changed(world, job->host, FOLDER_STEPS);
        *ok = folder_of(world, job->final) < 0;
        if (*ok)
            disk_add(&world->disk, FOLDER_STEPS, job->hidden, disk_new(&world->disk, 0, job->host));
        return true;
    case BP_COMMIT_WRITE:
        if (job->sub++ == 0) {
            start_writers(world, job);
            job->ready = SIM_NEVER;
            return false;
        }
        *ok = true;
        return true;
    case BP_COMMIT_REPORTS:
        *ok = collect(world, job);
        return true;
    case BP_COMMIT_RECHECK:
        *ok = world->broken == BREAK_RECHECK || recheck(world, job);
        return true;
    case BP_COMMIT_LIST:
        return list_files(world, job, ok);
    case BP_COMMIT_OWNER:
        *ok = world->broken == BREAK_FENCE || sim_is_ours(world, job);
        return true;
    case BP_COMMIT_PLACE:
        *ok = place(world, job);
        return true;
    case BP_COMMIT_SYNC_MADE:
        disk_sync_folder(&world->disk, FOLDER_STEPS);
        return true;
    case BP_COMMIT_SYNC_PLACED:
        if (world->broken != BREAK_SYNC_PLACED)
            disk_sync_folder(&world->disk, FOLDER_STEPS);
        return true;
    default:
        return sim_remove_some(world, job, job->hidden);
    }
}

void sim_commit(sim_world *world, sim_job *job)
{
    bool ok;

    if (!act(world, job, &ok))
        return;
    sim_note(world, job, "commit step %d: %s", (int)job->commit.step, ok ? "done" : "failed");
    if (job->commit.step >= BP_COMMIT_LIST)
        sim_tempt(world);
    bp_commit_next(&job->commit, ok);
    job->sub = 0;
    if (job->commit.step == BP_COMMIT_DONE) {
        if (world->broken != BREAK_ANNOUNCE_EARLY)
            announce(world, job);
        sim_next_phase(job, JOB_TIDY);
    } else if (bp_commit_is_over(&job->commit)) {
        job->failed = true;
        (void)sim_is_ours(world, job); /* what was swept away tells that it was lost */
        sim_next_phase(job, JOB_RELEASE);
    }
}
