/* A run folder that a test fills in, for the tests of src/run/status. */
#include "run_status_folder.h"

void put(const char *run, const char *name, const char *text)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", run, name);
    bp_test_expect(bp_file_write(path, text, strlen(text)), BP_OK);
}

const char *fresh(const char *name)
{
    const char *path = bp_test_path(name);

    bp_test_expect(bp_dir_make(path), BP_OK);
    return path;
}

void begin(progress_of *self, const char *run, int start, const char *ended)
{
    json_t *record = json_pack("{s:i}", "starts", start);
    json_t *before = json_pack("{s:i, s:{s:s}}", "starts", start - 1, "exit", "state",
                               ended == NULL ? "running" : ended);

    self->run = run;
    bp_test_expect(run_lock_take(&self->lock, run, 0), BP_OK);
    self->progress = run_progress_open(run, self->lock, record, start == 1 ? NULL : before);
    json_decref(record);
    json_decref(before);
}

void end(progress_of *self)
{
    run_progress_free(&self->progress);
    bp_test_expect(run_lock_release(&self->lock), BP_OK);
}

void event(const progress_of *self, const char *text)
{
    json_t *line = json_loads(text, 0, NULL);

    assert_non_null(line);
    run_progress_event(self->progress, line);
    json_decref(line);
}

void metric(const progress_of *self, const char *text)
{
    json_t *line = json_loads(text, 0, NULL);

    assert_non_null(line);
    run_progress_metric(self->progress, line);
    json_decref(line);
}

json_t *written(const progress_of *self)
{
    json_t *file = run_progress_read(self->run);

    assert_non_null(file);
    return file;
}
