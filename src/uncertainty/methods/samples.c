/* Samples of the last layer: heads on one backbone. Called by laplace.c. */
#include "uncertainty/methods/samples.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static bp_err open_file(bp_member_sampler *sampler, MPI_Comm comm)
{
    bp_sampled_heads *self = (bp_sampled_heads *)sampler;
    bp_err err = bp_head_samples_open(&self->file, comm, self->path);

    if (err == BP_OK)
        self->sampler.count = bp_head_samples_info_of(self->file)->samples;
    return err;
}

static void close_file(bp_member_sampler *sampler)
{
    bp_head_samples_close(&((bp_sampled_heads *)sampler)->file);
}

static bp_err check(const bp_member_sampler *sampler, const bp_model_info *model, const char *path)
{
    const bp_sampled_heads *self = (const bp_sampled_heads *)sampler;
    const bp_head_samples_info *info = bp_head_samples_info_of(self->file);

    if (strcmp(info->model_digest, model->digest) != 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "samples.other_model",
            "samples of the last layer are of model %s, and this is %s: at %s; draw them "
            "anew from %s",
            info->model_digest, model->digest, self->path, path);
    if (info->vocab_size != model->vocab_size || info->width != model->width)
        return BP_FAIL(BP_ERR_FORMAT, "samples.wrong_shape",
                       "samples of the last layer are %lld x %lld, and the model's is %lld x %lld: "
                       "at %s; draw them anew",
                       (long long)info->vocab_size, (long long)info->width,
                       (long long)model->vocab_size, (long long)model->width, self->path);
    return BP_OK;
}

static void identify(const bp_member_sampler *sampler, char *text, size_t bytes)
{
    const bp_sampled_heads *self = (const bp_sampled_heads *)sampler;

    snprintf(text, bytes, "samples %s", bp_head_samples_info_of(self->file)->digest);
}

static bp_err add(bp_member_sampler *sampler, bp_member_place *at)
{
    bp_sampled_heads *self = (bp_sampled_heads *)sampler;
    const bp_model_info *info = &at->model->info;
    float *weights = NULL;
    bp_err err = BP_OK;

    if (at->last)
        weights =
            bp_try_alloc("uncertainty.samples", info->vocab_count * info->width, sizeof *weights);
    if (at->last && !weights)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at a sample of the last layer; use more ranks");
    if (at->last)
        err = bp_head_samples_read(self->file, at->member, info->vocab_first, info->vocab_count,
                                   weights);
    if (err == BP_OK)
        err = at->model->ops->add_head(at->model, weights, &at->head);
    bp_free(weights);
    return err;
}

/* A matrix and its copy. */
static int64_t bytes(const bp_member_sampler *sampler, const bp_model_memory *model,
                     const bp_mesh_shape *mesh)
{
    return (sampler->count + mesh->members - 1) / mesh->members * 2 * model->width *
           (model->vocab_size / mesh->tensor + 1) * (int64_t)sizeof(float);
}

static void free_heads(bp_member_sampler *sampler)
{
    bp_sampled_heads *self = (bp_sampled_heads *)sampler;

    bp_free(self->copy);
    bp_free(self);
}

const bp_member_sampler_ops bp_sampled_heads_sampler = {.word = "laplace",
                                                        .member = "sample",
                                                        .kind = BP_MEMBER_HEADS,
                                                        .open = open_file,
                                                        .check = check,
                                                        .identify = identify,
                                                        .add = add,
                                                        .bytes = bytes,
                                                        .close = close_file,
                                                        .free = free_heads};

bp_member_sampler *bp_sampled_heads_new(const char *path, int64_t count)
{
    bp_sampled_heads *self = bp_alloc("uncertainty.samples", 1, sizeof *self);

    *self =
        (bp_sampled_heads){.sampler = {&bp_sampled_heads_sampler, count}, .copy = bp_strdup(path)};
    self->path = self->copy;
    return &self->sampler;
}
