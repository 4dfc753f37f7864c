/* Time, what goes wrong, and the promises. */
#include "simulator.h"

#include <stdarg.h>
#include <string.h>

#define MAX_EVENTS     200000
#define CACHED_SECONDS 30.0 /* how old a listing may be that a host shows */

const char *const SIM_BREAK_NAMES[BREAKS] = {
    [BREAK_NOTHING] = "nothing",
    [BREAK_FENCE] = "fence",
    [BREAK_SYNC_PLACED] = "sync-placed",
    [BREAK_SYNC_LIST] = "sync-list",
    [BREAK_SYNC_MANIFEST] = "sync-manifest",
    [BREAK_SYNC_SHARD] = "sync-shard",
    [BREAK_ANNOUNCE_EARLY] = "announce-early",
    [BREAK_REPORTS] = "reports",
    [BREAK_RECHECK] = "recheck",
    [BREAK_PRUNE] = "prune",
    [BREAK_PRUNE_ALL] = "prune-all",
    [BREAK_CLEAN_IN_PLACE] = "clean-in-place",
    [BREAK_SYNC_CLEAN] = "sync-clean",
    [BREAK_CLEAN_UNASKED] = "clean-unasked",
    [BREAK_SYNC_FOUND] = "sync-found",
    [BREAK_DISCOVERY] = "discovery",
    [BREAK_CONFIRM] = "confirm",
    [BREAK_LINK] = "link",
    [BREAK_WATCH] = "watch",
    [BREAK_SWEEP] = "sweep",
    [BREAK_REFRESH] = "refresh",
    [BREAK_LINES] = "lines",
    [BREAK_JOURNAL_SYNC] = "journal-sync",
    [BREAK_HAND_OUT] = "hand-out",
    [BREAK_CLOSE] = "close",
};

/* ---- telling ---- */

void sim_note(sim_world *world, const sim_job *job, const char *format, ...)
{
    va_list arguments;

    if (world->trace == NULL)
        return;
    (void)fprintf(world->trace, "%10.3f ", world->now);
    if (job != NULL)
        (void)fprintf(world->trace, "job %d (number %lld) ", job->id,
                      (long long)job->lock_record.number);
    va_start(arguments, format);
    (void)vfprintf(world->trace, format, arguments);
    va_end(arguments);
    (void)fputc('\n', world->trace);
}

void sim_fail(sim_world *world, const sim_job *job, const char *format, ...)
{
    va_list arguments;
    size_t used;

    if (world->why[0] != '\0')
        return;
    (void)snprintf(world->why, sizeof world->why, "job %d at %.3f s: ", job == NULL ? -1 : job->id,
                   world->now);
    used = strlen(world->why);
    va_start(arguments, format);
    (void)vsnprintf(world->why + used, sizeof world->why - used, format, arguments);
    va_end(arguments);
    sim_note(world, job, "BROKEN: %s", world->why);
}

/* ---- operations ---- */

bool sim_hit(sim_world *world, sim_job *job)
{
    if (!world->faults || world->trouble == 0 || !sim_chance(&world->random, 0.01))
        return false;
    job->hurt = true;
    sim_note(world, job, "an operation fails: phase %d, %d", (int)job->phase, job->sub);
    return true;
}

void sim_tempt(sim_world *world)
{
    world->tempted = true;
}

double sim_takes(sim_world *world)
{
    int64_t kind = sim_below(&world->random, 100);

    if (world->slow && kind == 0)
        return sim_uniform(&world->random, 1, 40);
    return kind < 10 ? sim_uniform(&world->random, 0.05, 1) : sim_uniform(&world->random, 0, 0.05);
}

int sim_list(sim_world *world, int host, int folder, bool fresh, sim_name names[SIM_NAMES])
{
    sim_view *view = &world->views[host][folder];

    if (fresh || !world->stale || !view->known || world->now - view->seen > CACHED_SECONDS) {
        view->count = disk_list(&world->disk, folder, view->names, SIM_NAMES);
        view->known = true;
        view->seen = world->now;
    }
    memcpy(names, view->names, (size_t)view->count * sizeof names[0]);
    return view->count;
}

void sim_changed(sim_world *world, int host, int folder)
{
    world->views[host][folder].known = false;
}

/* ---- what must hold on the disk ---- */

bool sim_step_is_whole(const sim_world *world, sim_name name)
{
    const sim_disk *disk = &world->disk;
    int folder = disk_find(disk, FOLDER_STEPS, name), inode;
    const sim_manifest *list;

    inode = folder < 0 ? -1 : disk_find(disk, folder, name_of(NAME_MANIFEST, 0, 0));
    if (inode < 0 || disk->inodes[inode].content == DISK_TORN)
        return false;
    list = &world->lists[disk->inodes[inode].content];
    for (int k = 0; k < list->writers; k++) {
        inode = disk_find(disk, folder, name_of(NAME_SHARD, k, 0));
        if (inode < 0 || disk->inodes[inode].content != list->content[k])
            return false;
    }
    return list->step == name_number(name);
}

void sim_check_disk(sim_world *world)
{
    sim_name names[SIM_NAMES];
    int count = disk_list(&world->disk, FOLDER_STEPS, names, SIM_NAMES);
    int64_t newest = 0;

    for (int k = 0; k < count; k++) {
        if (name_kind_of(names[k]) != NAME_STEP)
            continue;
        if (!sim_step_is_whole(world, names[k]))
            sim_fail(world, NULL, "step %lld is not whole", (long long)name_number(names[k]));
        if (name_number(names[k]) > newest)
            newest = name_number(names[k]);
    }
    if (newest < world->announced)
        sim_fail(world, NULL, "step %lld was announced, the newest there is %lld",
                 (long long)world->announced, (long long)newest);
}

/* ---- what goes wrong ---- */

static void kill_job(sim_world *world, sim_job *job, const char *how)
{
    if (job->phase == JOB_GONE)
        return;
    job->hurt = true;
    sim_job_end(world, job, false, how);
}

static void kill_host(sim_world *world, int host)
{
    sim_note(world, NULL, "host %d dies", host);
    for (int k = 0; k < world->job_count; k++) {
        sim_job *job = &world->jobs[k];
        bool on = job->host == host;

        for (int n = 0; n < job->writers && job->phase == JOB_COMMIT; n++)
            on = on || (job->writer[n].host == host && job->writer[n].stage != WRITER_IDLE);
        if (on)
            kill_job(world, job, "its host died");
    }
    disk_host_dies(&world->disk, host, &world->random);
    for (int folder = 0; folder < FOLDERS; folder++)
        sim_changed(world, host, folder);
}

static void cut_power(sim_world *world)
{
    sim_note(world, NULL, "power is lost");
    for (int k = 0; k < world->job_count; k++)
        kill_job(world, &world->jobs[k], "power was lost");
    disk_cut(&world->disk, &world->random);
    world->line_count = world->lines_synced +
                        (int)sim_below(&world->random, world->line_count - world->lines_synced + 1);
    for (int host = 0; host < SIM_HOSTS; host++)
        for (int folder = 0; folder < FOLDERS; folder++)
            sim_changed(world, host, folder);
}

static sim_job *any_job(sim_world *world)
{
    int alive = 0;
    int64_t pick;

    for (int k = 0; k < world->job_count; k++)
        alive += world->jobs[k].phase != JOB_GONE;
    if (alive == 0)
        return NULL;
    pick = sim_below(&world->random, alive);
    for (int k = 0;; k++)
        if (world->jobs[k].phase != JOB_GONE && pick-- == 0)
            return &world->jobs[k];
}

/* For a while, or until another job does something that may meet what this one was about to do. */
static void stop_job(sim_world *world, sim_job *job)
{
    double seconds = sim_uniform(&world->random, 0, sim_chance(&world->random, 0.7) ? 300 : 60);

    job->paused_until = world->now + seconds;
    sim_note(world, job, "is stopped for %.1f s at most", seconds);
    if (world->job_count < SIM_JOBS / 2 && sim_chance(&world->random, 0.5))
        sim_job_start(world, (job->host + 1) % SIM_HOSTS);
}

static void wake_others(sim_world *world, const sim_job *busy)
{
    if (busy->phase == JOB_TRAIN ||
        (busy->phase == JOB_TAKE && busy->lock_record.step < LOCK_RECORD_LINK))
        return;
    for (int k = 0; k < world->job_count; k++) {
        sim_job *job = &world->jobs[k];

        if (job == busy || job->paused_until <= world->now || !sim_chance(&world->random, 0.03))
            continue;
        sim_note(world, job, "goes on");
        job->paused_until = world->now;
    }
}

static void trouble(sim_world *world, sim_job *job)
{
    sim_random *random = &world->random;

    world->trouble--;
    switch (world->kinds[sim_below(random, world->kind_count)]) {
    case TROUBLE_START:
        if (world->job_count < SIM_JOBS / 2)
            sim_job_start(world, (int)sim_below(random, SIM_HOSTS));
        break;
    case TROUBLE_KILL:
        if (job != NULL)
            kill_job(world, job, "killed");
        break;
    case TROUBLE_HOST:
        kill_host(world, (int)sim_below(random, SIM_HOSTS));
        break;
    case TROUBLE_STOP:
        if (job != NULL)
            stop_job(world, job);
        break;
    case TROUBLE_CUT:
        cut_power(world);
        break;
    case TROUBLE_LEAVE:
        if (job != NULL)
            job->stops = true;
        break;
    default:
        if (job != NULL)
            job->writer[sim_below(random, job->writers)].lost = true;
    }
}

/* ---- time ---- */

typedef struct due {
    double at;
    sim_job *job;
    int actor; /* -3: its end, -2: its main thread, -1: its heartbeat, else a writer */
} due;

static void consider(due *next, double at, sim_job *job, int actor)
{
    if (at < next->at)
        *next = (due){at, job, actor};
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static due next_due(sim_world *world)
{
    due next = {SIM_NEVER, NULL, 0};

    for (int k = 0; k < world->job_count; k++) {
        sim_job *job = &world->jobs[k];

        if (job->phase == JOB_GONE)
            continue;
        consider(&next, job->dies_at, job, -3);
        consider(&next, later(job->ready, job->paused_until), job, -2);
        if (job->heartbeats)
            consider(&next, later(job->heartbeat_ready, job->paused_until), job, -1);
        for (int n = 0; n < job->writers && job->phase == JOB_COMMIT; n++)
            if (job->writer[n].stage != WRITER_IDLE && job->writer[n].stage != WRITER_DONE)
                consider(&next, job->writer[n].ready, job, n);
    }
    return next;
}

static void act(sim_world *world, const due *next)
{
    world->now = later(world->now, next->at);
    if (next->actor == -3)
        kill_job(world, next->job, "a rank was lost");
    else if (next->actor == -2)
        sim_job_act(world, next->job);
    else if (next->actor == -1)
        sim_job_heartbeat(world, next->job);
    else
        sim_writer_act(world, next->job, next->actor);
}

static void begin(sim_world *world, uint64_t seed, sim_break broken, FILE *trace)
{
    sim_random *random = &world->random;

    memset(world->views, 0, sizeof world->views);
    *random = (sim_random){.state = seed * 0xd1342543de82ef95u + 1};
    world->broken = broken;
    world->trace = trace;
    world->why[0] = '\0';
    world->now = 0;
    world->burst = 0;
    world->events = world->contents = 0;
    world->faults = sim_chance(random, 0.3);
    world->stale = sim_chance(random, 0.5);
    world->slow = sim_chance(random, 0.3);
    world->torn = sim_chance(random, 0.1);
    world->kind_count = 1 + (int)sim_below(random, SIM_KINDS);
    for (int k = 0; k < world->kind_count; k++) /* few kinds at a time meet more often */
        world->kinds[k] = (trouble_kind)sim_below(random, TROUBLES);
    world->trouble = 5 + (int)sim_below(random, 40);
    world->trouble_rate = 0.2 / (double)(1 + sim_below(random, 60));
    for (int host = 0; host < SIM_HOSTS; host++) { /* clocks that agree on nothing */
        world->clock_offset[host] = sim_uniform(random, 0, 1e6);
        world->clock_rate[host] = sim_uniform(random, 0.97, 1.03);
    }
    disk_init(&world->disk);
    world->job_count = world->list_count = world->line_count = world->lines_synced = 0;
    world->last_won = world->last_cleaned = world->announced = 0;
    world->announced_steps = 0;
    world->finished = false;
    sim_job_start(world, 0);
}

/* Between any two operations, and in stretches in which nothing happens. */
static bool trouble_comes(sim_world *world, double next)
{
    double idle = next - world->now, rate = idle > 5 ? 0.1 : world->trouble_rate;

    if (world->burst > 0) {
        world->burst--;
        rate = 0.2;
    }
    if (world->trouble == 0 || !sim_chance(&world->random, rate))
        return false;
    if (sim_chance(&world->random, 0.3)) /* trouble seldom comes alone */
        world->burst = 20;
    if (idle > 5)
        world->now += sim_uniform(&world->random, 0, idle < 60 ? idle : 60);
    return true;
}

static bool is_over(sim_world *world)
{
    return world->why[0] != '\0' || (world->finished && any_job(world) == NULL);
}

bool sim_run(sim_world *world, uint64_t seed, sim_break broken, FILE *trace)
{
    begin(world, seed, broken, trace);
    while (!is_over(world)) {
        due next = next_due(world);

        if (trouble_comes(world, next.at)) {
            trouble(world, any_job(world));
        } else if (next.job == NULL) {
            if (world->job_count == SIM_JOBS)
                sim_fail(world, NULL, "the run does not end");
            else
                sim_job_start(world, (int)sim_below(&world->random, SIM_HOSTS));
        } else {
            world->tempted = false;
            act(world, &next);
            if (world->tempted && world->trouble > 0 && sim_chance(&world->random, 0.05))
                trouble(world, next.job);
            wake_others(world, next.job);
        }
        sim_check_disk(world);
        if (++world->events > MAX_EVENTS)
            sim_fail(world, NULL, "the history does not end");
    }
    if (world->why[0] == '\0' && world->announced != SIM_STEPS)
        sim_fail(world, NULL, "the run is finished without its last step");
    return world->why[0] == '\0';
}
