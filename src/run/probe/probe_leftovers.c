/* What ranks that were killed left on this host: segments of shared memory and session folders of
 * Open MPI. */
#include "base/fs.h"
#include "base/mem.h"
#include "run/probe/probe.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAPS_BYTES ((int64_t)1 << 26)
#define SEGMENTS   "/dev/shm/"
#define SEGMENT    "vader_segment."
#define SESSION    "pid."

/* The lines of all processes' maps that name a segment; "" where none does. free(). */
static char *mapped_segments(void)
{
    DIR *folder = opendir("/proc");
    char *all = NULL;
    size_t bytes;
    FILE *out = open_memstream(&all, &bytes);
    struct dirent *entry;

    while (folder != NULL && out != NULL && (entry = readdir(folder)) != NULL) {
        char path[300], *text = NULL;
        size_t length;

        (void)snprintf(path, sizeof path, "/proc/%s/maps", entry->d_name);
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' ||
            bp_file_read(path, MAPS_BYTES, &text, &length) != BP_OK)
            continue; /* no process, gone, or another user's */
        for (char *at = text; (at = strstr(at, SEGMENTS SEGMENT)) != NULL; at++)
            fprintf(out, "%.*s\n", (int)strcspn(at, " \n"), at);
        bp_free(text);
    }
    if (folder != NULL)
        (void)closedir(folder);
    if (out != NULL)
        (void)fclose(out);
    return all;
}

static void judge_segments(json_t *rows)
{
    DIR *folder = opendir(SEGMENTS);
    char *mapped = mapped_segments();
    int64_t bytes = 0;
    int count = 0;
    struct dirent *entry;

    while (folder != NULL && mapped != NULL && (entry = readdir(folder)) != NULL) {
        char path[300], line[302];
        struct stat facts;

        (void)snprintf(path, sizeof path, SEGMENTS "%s", entry->d_name);
        (void)snprintf(line, sizeof line, "%s\n", path);
        if (strncmp(entry->d_name, SEGMENT, strlen(SEGMENT)) != 0 || lstat(path, &facts) != 0 ||
            facts.st_uid != getuid() || strstr(mapped, line) != NULL)
            continue;
        count++;
        bytes += (int64_t)facts.st_blocks * 512;
    }
    if (folder != NULL)
        (void)closedir(folder);
    free(mapped);
    if (count > 0)
        bp_probe_add(rows, BP_PROBE_NOTE, "leftover segments",
                     "while none of your MPI programs runs here: rm " SEGMENTS SEGMENT "*",
                     "%d of Open MPI that no process uses, %.1f MiB of memory: " SEGMENTS SEGMENT
                     "*",
                     count, (double)bytes / (1 << 20));
}

/* TMPDIR/ompi.HOST.UID/pid.N, where N is mpirun's process. */
static void judge_sessions(json_t *rows)
{
    const char *temporary = getenv("TMPDIR");
    char host[256] = "", path[1024];
    int count = 0;
    struct dirent *entry;
    DIR *folder;

    (void)gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    (void)snprintf(path, sizeof path, "%.600s/ompi.%s.%ld", temporary ? temporary : "/tmp", host,
                   (long)getuid());
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        long process = strncmp(entry->d_name, SESSION, strlen(SESSION)) == 0
                           ? strtol(entry->d_name + strlen(SESSION), NULL, 10)
                           : 0;

        count += process > 0 && kill((pid_t)process, 0) != 0 && errno == ESRCH;
    }
    if (folder != NULL)
        (void)closedir(folder);
    if (count > 0)
        bp_probe_add(rows, BP_PROBE_NOTE, "leftover sessions",
                     "while none of your MPI programs runs here, remove that folder",
                     "%d of Open MPI whose mpirun is gone: %s", count, path);
}

void bp_probe_leftovers(json_t *rows)
{
    judge_segments(rows);
    judge_sessions(rows);
}
