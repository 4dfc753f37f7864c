/* bagpipe-data average: the mean of checkpoints' weights, tensor by tensor. */
#include "arguments.h"
#include "base/files/fs.h"
#include "base/files/hidden.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "text/tokenizer/tokenizer.h"
#include "tools.h"

#include <string.h>

typedef struct average {
    int count;
    bp_checkpoint **checkpoints; /* [count] */
    bp_slice *slices;            /* of the model, whole tensors without data */
    int64_t slice_count;
    float *values, *mean; /* [largest tensor] */
    double *sums;
} average;

/* ---- are they of one model? ---- */

static json_t *state_of(const average *self, int k, const char *key)
{
    return json_object_get(bp_checkpoint_state(self->checkpoints[k]), key);
}

static bp_err check_tensors(const average *self, int k)
{
    bp_checkpoint *other = self->checkpoints[k];
    const char *folder = bp_checkpoint_folder(other);
    int64_t found = 0;

    for (int64_t t = 0; t < bp_checkpoint_tensors(other); t++) {
        bp_slice slice = bp_checkpoint_tensor(other, t);
        const bp_slice *own = &self->slices[found];

        if (strchr(slice.name, '/'))
            continue;
        if (found == self->slice_count || strcmp(slice.name, own->name) != 0 ||
            slice.dims != own->dims ||
            memcmp(slice.shape, own->shape, (size_t)slice.dims * sizeof *slice.shape) != 0)
            return BP_FAIL(BP_ERR_FORMAT, "average.other_tensor",
                           "tensor %s is not in %s, or has another shape there: at %s; average "
                           "checkpoints of one model",
                           slice.name, bp_checkpoint_folder(self->checkpoints[0]), folder);
        found++;
    }
    if (found < self->slice_count)
        return BP_FAIL(BP_ERR_FORMAT, "average.other_tensor",
                       "tensor %s is missing: at %s; average checkpoints of one model",
                       self->slices[found].name, folder);
    return BP_OK;
}

/* The first key that two objects do not agree in; "": they are not objects. */
static const char *differing_key(json_t *one, const json_t *other)
{
    const char *key;
    json_t *value;

    json_object_foreach(one, key,
                        value) if (!json_equal(value, json_object_get(other, key))) return key;
    json_object_foreach((json_t *)other, key, value) if (!json_object_get(one, key)) return key;
    return "";
}

static bp_err check_one(const average *self, int k)
{
    static const char *const keys[] = {"model", "tokenizer_hash", "eod_id", "roles", "task"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *one = state_of(self, 0, keys[i]), *other = state_of(self, k, keys[i]);
        const char *inside = differing_key(one, other);

        if (json_is_string(one) && json_is_string(other) &&
            strcmp(keys[i], "tokenizer_hash") == 0 &&
            bp_tokenizer_same_hash(json_string_value(one), json_string_value(other)))
            continue;
        if (one != other && (!one || !other || !json_equal(one, other)))
            return BP_FAIL(BP_ERR_FORMAT, "average.other_model",
                           "the checkpoints differ in \"%s%s%s\": at %s and %s; average "
                           "checkpoints of one model",
                           keys[i], inside[0] ? "." : "", inside,
                           bp_checkpoint_folder(self->checkpoints[0]),
                           bp_checkpoint_folder(self->checkpoints[k]));
    }
    return check_tensors(self, k);
}

/* ---- the mean ---- */

static bp_err fetch(void *context, const bp_slice *slice, int64_t index, const float **data)
{
    average *self = context;
    bp_slice part = *slice;
    int64_t volume = bp_checked_volume(slice->dims, slice->extent);
    bp_err err = BP_OK;

    (void)index;
    part.data = self->values;
    memset(self->sums, 0, (size_t)volume * sizeof *self->sums);
    for (int k = 0; k < self->count && err == BP_OK; k++) {
        err = bp_checkpoint_load(self->checkpoints[k], &part, 1);
        for (int64_t i = 0; i < volume && err == BP_OK; i++)
            self->sums[i] += (double)self->values[i];
    }
    for (int64_t i = 0; i < volume && err == BP_OK; i++)
        self->mean[i] = (float)(self->sums[i] / self->count);
    *data = self->mean;
    return err;
}

static bool is_adapted(const bp_checkpoint *checkpoint)
{
    return json_object_get(json_object_get(bp_checkpoint_state(checkpoint), "model"), "adapter");
}

static bp_err open_all(average *self, char *const *paths)
{
    bp_err err = BP_OK;

    self->checkpoints = bp_alloc("tool.average", self->count, sizeof *self->checkpoints);
    for (int k = 0; k < self->count && err == BP_OK; k++) {
        err = bp_checkpoint_open_any(MPI_COMM_SELF, paths[k], &self->checkpoints[k]);
        bp_checkpoint_warn_not_best(paths[k]);
        if (err == BP_OK && is_adapted(self->checkpoints[k]))
            err =
                BP_FAIL(BP_ERR_FORMAT, "average.adapted",
                        "the mean of two products of low rank is not a product of their means: at "
                        "%s; export the models, which merges them, and average those",
                        bp_checkpoint_folder(self->checkpoints[k]));
        if (err == BP_OK && bp_checkpoint_attachment(self->checkpoints[k]))
            err = BP_FAIL(BP_ERR_FORMAT, "average.no_tensors",
                          "a model of counts has no mean: at %s; bagpipe-data mix weighs such "
                          "models",
                          bp_checkpoint_folder(self->checkpoints[k]));
    }
    return err;
}

/* The model's tensors, without those of the optimizer, and a buffer for the largest. */
static bp_err list_slices(average *self)
{
    int64_t all = bp_checkpoint_tensors(self->checkpoints[0]), largest = 0;

    self->slices = bp_alloc("tool.average", all, sizeof *self->slices);
    for (int64_t t = 0; t < all; t++) {
        bp_slice slice = bp_checkpoint_tensor(self->checkpoints[0], t);
        int64_t volume = bp_checked_volume(slice.dims, slice.extent);

        if (strchr(slice.name, '/'))
            continue;
        self->slices[self->slice_count++] = slice;
        largest = volume > largest ? volume : largest;
    }
    self->values = bp_try_alloc("tool.average", largest, sizeof *self->values);
    self->mean = bp_try_alloc("tool.average", largest, sizeof *self->mean);
    self->sums = bp_try_alloc("tool.average", largest, sizeof *self->sums);
    return self->values && self->mean && self->sums
               ? BP_OK
               : bp_fail_memory("the largest tensor", largest, sizeof(double));
}

/* The first one's, without what belongs only to its training; the step is the last. */
static json_t *mean_state(const average *self)
{
    static const char *const of_training[] = {"corpus_hash",
                                              "seed",
                                              "tokens",
                                              "updates",
                                              "skipped",
                                              "skipped_in_row",
                                              "best_valid_loss",
                                              "best_step",
                                              "valid_hash",
                                              "bag_version",
                                              "validations_since_best"};
    json_t *state = json_deep_copy(bp_checkpoint_state(self->checkpoints[0]));
    json_t *averaged = json_array();
    json_int_t last = 0;

    for (size_t k = 0; k < sizeof of_training / sizeof of_training[0]; k++)
        (void)json_object_del(state, of_training[k]);
    for (int k = 0; k < self->count; k++) {
        json_int_t step = json_integer_value(state_of(self, k, "step"));

        last = step > last ? step : last;
        (void)json_array_append_new(averaged, json_pack("{ss sI}", "digest",
                                                        bp_checkpoint_digest(self->checkpoints[k]),
                                                        "step", step));
    }
    (void)json_object_set_new(state, "step", json_integer(last));
    (void)json_object_set_new(state, "averaged", averaged);
    return state;
}

static bp_err save(average *self, const char *out)
{
    char *parent = bp_sprintf("%.*s", (int)(bp_path_base(out) - out), out), *tokenizer = NULL;
    const char *path = bp_checkpoint_tokenizer(self->checkpoints[0]);
    size_t bytes;
    json_t *state = mean_state(self);
    bp_err err = path ? bp_file_read(path, INT64_C(1) << 30, &tokenizer, &bytes) : BP_OK;
    bp_checkpoint_commit commit = {.parent = parent[0] != '\0' ? parent : ".",
                                   .name = bp_path_base(out),
                                   .fetch = fetch,
                                   .context = self,
                                   .tokenizer = tokenizer};

    if (err == BP_OK) {
        bp_hidden_sweep(out, BP_HIDDEN_FOLDER);
        err = bp_checkpoint_save(MPI_COMM_SELF, &commit, self->slices, self->slice_count, state);
    }
    json_decref(state);
    bp_free(tokenizer);
    bp_free(parent);
    return err;
}

static bp_err average_files(char *const *paths, int count, const char *out)
{
    average self = {.count = count};
    bp_err err = open_all(&self, paths);

    if (err == BP_OK)
        err = list_slices(&self);
    for (int k = 1; k < count && err == BP_OK; k++)
        err = check_one(&self, k);
    if (err == BP_OK)
        err = save(&self, out);
    if (err == BP_OK)
        bp_log("checkpoint: %s, the mean of %d checkpoints, %lld tensors", out, count,
               (long long)self.slice_count);
    for (int k = 0; k < count; k++)
        bp_checkpoint_close(&self.checkpoints[k]);
    bp_free(self.checkpoints);
    bp_free(self.slices);
    bp_free(self.values);
    bp_free(self.mean);
    bp_free(self.sums);
    return err;
}

/* ---- the tool ---- */

static const struct argp_option OPTIONS[] = {
    {"out", 'o', "FOLDER", 0, "the folder to make (required)", 0}, {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "checkpoints of other models, of counts, or damaged"},
    {"66", "a checkpoint is missing"},
    {"73, 77", "the output is there already, or cannot be created"},
    {"74", "the disk is full"},
    {0}};

static bp_err check(const tool_files *files, const char *out)
{
    if (files->count < 2 || !out || out[0] == '\0' || out[strlen(out) - 1] == '/')
        return BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                       "it takes two checkpoints or more, and --out FOLDER: at the command line; "
                       "see bagpipe-data average --help");
    if (bp_path_exists(out))
        return BP_FAIL(BP_ERR_CREATE, "file.in_the_way",
                       "something is there already: at %s; move it away, or give another --out",
                       out);
    return BP_OK;
}

static bp_err run(int argc, char **argv)
{
    const char *out = NULL;
    const tool_value values[] = {{.option = "out", .text = &out}, {0}};
    tool_files files;
    bp_err err = tool_parse(&bp_tool_average, values, &files, argc, argv);

    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        err = check(&files, out);
        if (err == BP_OK)
            err = average_files(files.list, files.count, out);
    }
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_average = {
    .name = "average",
    .help = {.name = "bagpipe-data average",
             .usage = "CHECKPOINT CHECKPOINT... --out FOLDER",
             .summary = "makes a checkpoint of the mean of checkpoints' weights",
             .text =
                 "The checkpoints are of one model: the same sizes, tokenizer and tensors. They "
                 "may be steps of one training, whose mean often predicts better than the last "
                 "(Vaswani et al. 2017 took the last 5 or 20), or of several that began at the "
                 "same weights. Memory is that of the largest tensor. The optimizer's state is "
                 "left out: a training can begin at the mean (model.init), but not go on.",
             .options = OPTIONS,
             .examples =
                 "  bagpipe-data average runs/a/checkpoints/step-0000000*00 --out runs/mean\n",
             .statuses = STATUSES},
    .run = run};
