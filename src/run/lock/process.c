/* Is a process of this host, by number and start time, alive? */
#include "run/lock/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void process_read(char *out, size_t out_bytes, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, out, out_bytes - 1);

    out[bytes < 0 ? 0 : bytes] = '\0';
    if (fd >= 0)
        (void)close(fd);
}

/* Fields 3 and 22 of /proc/PID/stat, counted after the name, which may hold anything. */
bool process_read_stat(int64_t pid, char *state, int64_t *start_ticks)
{
    char path[64], text[4096];
    const char *field;

    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    process_read(text, sizeof text, path);
    field = strrchr(text, ')');
    *state = field && field[1] == ' ' ? field[2] : '?';
    for (int k = 3; k <= 22 && field; k++)
        field = strchr(field + 1, ' ');
    *start_ticks = !field ? -1 : strtoll(field, NULL, 10);
    return *start_ticks >= 0;
}
