/* Folders that are obviously none of a run's: a superuser could write there, under whatever name
 * they go. */
#include "run/run_folder.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/run_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const SYSTEM[] = {
    "/",      "/bin", "/boot",    "/dev",     "/etc",       "/home", "/lib",
    "/lib64", "/opt", "/proc",    "/root",    "/run",       "/sbin", "/sys",
    "/tmp",   "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/var",  "/var/tmp"};
/* They show what a folder is. */
static const char *const OTHERS[] = {"manifest.json", "model.safetensors", ".git"};

static bool is_same(const char *one, const struct stat *other)
{
    struct stat status;

    return one != NULL && stat(one, &status) == 0 && status.st_dev == other->st_dev &&
           status.st_ino == other->st_ino;
}

static bool has(const char *folder, const char *name)
{
    char *path = bp_path_join(folder, name);
    bool is = path != NULL && bp_path_exists(path);

    bp_free(path);
    return is;
}

void bp_run_check_place(bp_config *config)
{
    const char *run_dir = bp_run_keys_of(config)->dir, *what = NULL;
    struct stat status;

    if (run_dir == NULL || stat(run_dir, &status) != 0)
        return;
    for (size_t k = 0; what == NULL && k < sizeof SYSTEM / sizeof SYSTEM[0]; k++)
        if (is_same(SYSTEM[k], &status))
            what = k == 0 ? "the root of the file system" : "a folder of the system";
    if (what == NULL && is_same(getenv("HOME"), &status))
        what = "your home folder";
    for (size_t k = 0; what == NULL && k < sizeof OTHERS / sizeof OTHERS[0]; k++)
        if (has(run_dir, OTHERS[k]) && !has(run_dir, "run.json"))
            what = k == 0 ? "a checkpoint" : k == 1 ? "a model" : "a checkout of sources";
    if (what != NULL)
        bp_config_fault(config, "run.dir = %s is %s: at run.dir; name a folder of the run's own",
                        run_dir, what);
}
