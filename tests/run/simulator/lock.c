/* A job takes the lock, sweeps, heartbeats and lets go: one operation at a time. */
#include "simulator.h"

#include "base/err.h"

static int64_t highest_of(const sim_name *names, int count)
{
    int64_t highest = 0;

    for (int k = 0; k < count; k++)
        if (name_kind_of(names[k]) == NAME_OWNER && name_number(names[k]) > highest)
            highest = name_number(names[k]);
    return highest;
}

static int64_t highest_number(sim_world *world, const sim_job *job, bool fresh)
{
    sim_name names[SIM_NAMES];
    int count = sim_list(world, job->host, FOLDER_LOCK, fresh, names);

    return highest_of(names, count);
}

/* An owner's file: 2 * job, and 1 when it let go. */
static int64_t owner_content(const sim_job *job, bool released)
{
    return 2 * (int64_t)job->id + released;
}

bool sim_is_ours(sim_world *world, sim_job *job)
{
    int64_t number = job->lock_record.number, highest;
    lock_record_sight file = LOCK_RECORD_MISSING;
    lock_record_claim claim;
    int inode;

    if (job->lost)
        return false;
    if (sim_hit(world, job))
        return lock_record_is_own(number, LOCK_RECORD_UNREADABLE, 0, file) == LOCK_RECORD_OURS;
    highest = highest_number(world, job, world->broken != BREAK_REFRESH);
    inode = disk_find(&world->disk, FOLDER_LOCK, name_of(NAME_OWNER, number, 0));
    if (inode >= 0)
        file = world->disk.inodes[inode].content >> 1 == job->id ? LOCK_RECORD_SEEN
                                                                 : LOCK_RECORD_ANOTHERS;
    claim = lock_record_is_own(number, LOCK_RECORD_SEEN, highest, file);
    if (claim == LOCK_RECORD_LOST)
        job->lost = true;
    return claim == LOCK_RECORD_OURS;
}

void sim_job_heartbeat(sim_world *world, sim_job *job)
{
    sim_name name = name_of(NAME_HEARTBEAT, job->lock_record.number, 0);
    int inode;

    job->heartbeat_ready = world->now + SIM_HEARTBEAT;
    if (!sim_is_ours(world, job) || sim_hit(world, job))
        return;
    inode = disk_find(&world->disk, FOLDER_LOCK, name);
    job->heartbeat_count++;
    world->heartbeat_moved[job->id] = world->now;
    if (inode >= 0) {
        disk_write(&world->disk, inode, job->heartbeat_count, job->host);
    } else {
        inode = disk_new(&world->disk, job->heartbeat_count, job->host);
        disk_add(&world->disk, FOLDER_LOCK, name, inode);
        sim_changed(world, job->host, FOLDER_LOCK);
    }
    disk_sync_file(&world->disk, inode);
}

/* ---- taking ---- */

/* What the kernel or Slurm can say; a job on another host often can't be asked. */
static lock_record_answer answer_of(sim_world *world, const sim_job *job, int64_t content)
{
    const sim_job *owner = &world->jobs[content >> 1];

    if (content & 1)
        return LOCK_RECORD_DEAD;
    if (owner->host == job->host)
        return owner->phase == JOB_GONE ? LOCK_RECORD_DEAD : LOCK_RECORD_ALIVE;
    if (owner->phase == JOB_GONE && sim_chance(&world->random, 0.5))
        return LOCK_RECORD_DEAD;
    return LOCK_RECORD_UNKNOWN;
}

static void ask(sim_world *world, sim_job *job)
{
    int inode =
        disk_find(&world->disk, FOLDER_LOCK, name_of(NAME_OWNER, job->lock_record.owner, 0));

    if (inode < 0)
        lock_record_answered(&job->lock_record, LOCK_RECORD_GONE);
    else if (world->disk.inodes[inode].content == DISK_TORN)
        sim_fail(world, job, "the lock is damaged: number %lld", (long long)job->lock_record.owner);
    else
        lock_record_answered(&job->lock_record,
                             answer_of(world, job, world->disk.inodes[inode].content));
}

static void check_watched(sim_world *world, const sim_job *job)
{
    int inode =
        disk_find(&world->disk, FOLDER_LOCK, name_of(NAME_OWNER, job->lock_record.owner, 0));
    const sim_job *owner;

    if (inode < 0 || job->lock_record.step != LOCK_RECORD_LINK)
        return;
    owner = &world->jobs[world->disk.inodes[inode].content >> 1];
    if (owner->phase != JOB_GONE && owner->lock_record.number == job->lock_record.owner &&
        world->now - world->heartbeat_moved[owner->id] < 0.9 * SIM_WATCH)
        sim_fail(world, job, "job %d was found dead %.1f s after its beat", owner->id,
                 world->now - world->heartbeat_moved[owner->id]);
}

static void watch(sim_world *world, sim_job *job)
{
    double now =
        world->clock_offset[job->host] + world->clock_rate[job->host] * world->now; /* its own */
    int inode =
        disk_find(&world->disk, FOLDER_LOCK, name_of(NAME_HEARTBEAT, job->lock_record.owner, 0));
    int64_t heartbeat = inode < 0 ? 0 : world->disk.inodes[inode].content;
    char text[LOCK_RECORD_HEARTBEAT_BYTES];

    if (world->broken == BREAK_WATCH && job->lock_record.watching &&
        now >= job->lock_record.watch_end) {
        job->lock_record.step = LOCK_RECORD_LINK; /* what was seen last is taken for what is */
        job->lock_record.number = job->lock_record.owner + 1;
    } else {
        (void)snprintf(text, sizeof text, "%lld", (long long)heartbeat);
        lock_record_watched(&job->lock_record, now, text, highest_number(world, job, false));
    }
    check_watched(world, job);
    if (job->lock_record.step == LOCK_RECORD_WATCH)
        job->ready = world->now + 1.0;
}

/* Draft, its content to disk, link, the draft's end, the folder to disk. */
static void make_number(sim_world *world, sim_job *job)
{
    sim_disk *disk = &world->disk;
    sim_name draft = name_of(NAME_CLAIM, job->lock_record.number, job->id),
             name = name_of(NAME_OWNER, job->lock_record.number, 0);
    int inode = disk_find(disk, FOLDER_LOCK, draft);
    bool made = false;

    sim_tempt(world);
    sim_changed(world, job->host, FOLDER_LOCK);
    switch (job->sub++) {
    case 0:
        if (inode < 0)
            disk_add(disk, FOLDER_LOCK, draft,
                     disk_new(disk, owner_content(job, false), job->host));
        return;
    case 1:
        if (inode >= 0)
            disk_sync_file(disk, inode);
        return;
    case 2:
        if (world->broken == BREAK_LINK && inode >= 0)
            (void)disk_remove(disk, FOLDER_LOCK, name);
        made = inode >= 0 && disk_add(disk, FOLDER_LOCK, name, inode);
        if (inode < 0 && disk_find(disk, FOLDER_LOCK, name) < 0 &&
            highest_number(world, job, true) < job->lock_record.number)
            sim_fail(world, job, "a draft for number %lld was swept, and nobody has that number",
                     (long long)job->lock_record.number);
        if (!made)
            job->sub = 4; /* no number of ours to bring to disk */
        return;
    case 3:
        (void)disk_remove(disk, FOLDER_LOCK, draft);
        disk_sync_folder(disk, FOLDER_LOCK);
        lock_record_linked(&job->lock_record, true);
        return;
    default:
        (void)disk_remove(disk, FOLDER_LOCK, draft);
        lock_record_linked(&job->lock_record, false);
    }
}

static void win(sim_world *world, sim_job *job)
{
    sim_note(world, job, "has the lock, number %lld", (long long)job->lock_record.number);
    if (job->lock_record.number <= world->last_won)
        sim_fail(world, job, "number %lld was won after %lld", (long long)job->lock_record.number,
                 (long long)world->last_won);
    world->last_won = job->lock_record.number;
    sim_next_phase(job, JOB_SWEEP);
}

void sim_take(sim_world *world, sim_job *job)
{
    lock_record_step before = job->lock_record.step;

    if (before != LOCK_RECORD_WATCH && sim_hit(world, job)) {
        if (before == LOCK_RECORD_CONFIRM)
            (void)disk_remove(&world->disk, FOLDER_LOCK,
                              name_of(NAME_OWNER, job->lock_record.number, 0));
        sim_job_end(world, job, true, "an operation on the lock failed");
        return;
    }
    switch (before) {
    case LOCK_RECORD_LIST:
        lock_record_listed(&job->lock_record, highest_number(world, job, false));
        break;
    case LOCK_RECORD_CONFIRM:
        lock_record_listed(&job->lock_record,
                           world->broken == BREAK_CONFIRM
                               ? job->lock_record.number
                               : highest_number(world, job, world->broken != BREAK_REFRESH));
        break;
    case LOCK_RECORD_ASK:
        ask(world, job);
        break;
    case LOCK_RECORD_WATCH:
        watch(world, job);
        break;
    case LOCK_RECORD_LINK:
        make_number(world, job);
        break;
    default:
        (void)disk_remove(&world->disk, FOLDER_LOCK,
                          name_of(NAME_OWNER, job->lock_record.number, 0));
        sim_changed(world, job->host, FOLDER_LOCK);
        lock_record_yielded(&job->lock_record);
    }
    if (job->lock_record.step != before)
        job->sub = 0;
    if (job->lock_record.step == LOCK_RECORD_WON)
        win(world, job);
    else if (lock_record_is_over(&job->lock_record))
        sim_job_end(world, job, false, "refused: another holds the run");
}

/* ---- sweeping ---- */

static bool is_litter(const sim_world *world, sim_name name, int64_t number)
{
    static const char *const PREFIX[] = {
        [NAME_OWNER] = "owner", [NAME_HEARTBEAT] = "beat", [NAME_CLAIM] = "claim"};
    char text[40];

    if (world->broken == BREAK_SWEEP && name_kind_of(name) == NAME_CLAIM)
        return true;
    (void)snprintf(text, sizeof text, "%s-%06lld%s", PREFIX[name_kind_of(name)],
                   (long long)name_number(name), name_kind_of(name) == NAME_CLAIM ? "-0" : "");
    return lock_record_is_litter(text, number);
}

/* First the names, then whether it is ours, then one at a time. */
void sim_sweep(sim_world *world, sim_job *job)
{
    sim_tempt(world);
    switch (job->sub) {
    case 0:
        job->name_count = sim_list(world, job->host, FOLDER_LOCK, false, job->names);
        job->name_at = 0;
        job->sub = 1;
        return;
    case 1:
        if (!sim_is_ours(world, job))
            job->name_at = job->name_count;
        job->sub = 2;
        return;
    default:
        while (job->name_at < job->name_count) {
            sim_name name = job->names[job->name_at++];

            if (!is_litter(world, name, job->lock_record.number))
                continue;
            (void)disk_remove(&world->disk, FOLDER_LOCK, name);
            sim_changed(world, job->host, FOLDER_LOCK);
            return;
        }
        job->heartbeats = true;
        job->heartbeat_ready = world->now;
        sim_next_phase(job, JOB_CLEAN);
    }
}

/* ---- letting go ---- */

void sim_release(sim_world *world, sim_job *job)
{
    sim_name name = name_of(NAME_OWNER, job->lock_record.number, 0);

    job->heartbeats = false;
    if (job->sub++ == 0) {
        if (!sim_is_ours(world, job))
            sim_job_end(world, job, job->failed || job->lost, "leaves");
        return;
    }
    if (!sim_hit(world, job)) { /* a new file, renamed over the old one */
        int inode = disk_new(&world->disk, owner_content(job, true), job->host);

        disk_sync_file(&world->disk, inode);
        (void)disk_remove(&world->disk, FOLDER_LOCK, name);
        (void)disk_add(&world->disk, FOLDER_LOCK, name, inode);
        disk_sync_folder(&world->disk, FOLDER_LOCK);
        sim_changed(world, job->host, FOLDER_LOCK);
    }
    if (!job->failed && job->step == SIM_STEPS)
        world->finished = true;
    sim_job_end(world, job, job->failed, "lets go");
}
