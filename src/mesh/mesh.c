/* The place of a rank on the mesh, and the communicator of each axis. */
#include "mesh/mesh.h"
#include "base/buffer.h"
#include "base/mem.h"
#include <inttypes.h>
#include <limits.h>
#include <string.h>

const bp_option bp_mesh_options[] = {
    {BP_INT_KEY("mesh.members", "1", 1, INT_MAX), .unit = "members",
     .help = "members of an ensemble that train side by side", .at = BP_AT(bp_mesh_keys, members)},
    {BP_INT_KEY("mesh.pipeline", "1", 1, INT_MAX), .unit = "ranks",
     .help = "stages that the model's layers are dealt out to",
     .at = BP_AT(bp_mesh_keys, pipeline)},
    {BP_INT_KEY("mesh.data", "0", 0, INT_MAX), .unit = "ranks",
     .help = "copies of the model, each with its share of the batch; 0: what the other axes leave",
     .at = BP_AT(bp_mesh_keys, data)},
    {BP_INT_KEY("mesh.tensor", "1", 1, INT_MAX), .unit = "ranks",
     .help = "ranks that share each layer's heads, columns and vocabulary",
     .at = BP_AT(bp_mesh_keys, tensor)},
    {BP_INT_KEY("mesh.expert", "1", 1, INT_MAX), .unit = "ranks",
     .help = "data ranks that share out the experts of each layer: positions go to the ranks that "
             "hold the experts they choose; divides the data ranks and model.experts",
     .at = BP_AT(bp_mesh_keys, expert)},
    {BP_CHOICE_KEY("mesh.coordinator", "auto", "auto|shared|dedicated"),
     .help =
         "does rank 0 also compute; auto: yes, unless mesh.data is set and one rank is left over",
     .at = BP_AT(bp_mesh_keys, coordinator)},
    {BP_INT_KEY("mesh.micro_batch", "1", 1, INT_MAX), .unit = "sequences",
     .help = "sequences that go through the model at once", .at = BP_AT(bp_mesh_keys, micro_batch)},
    {BP_CHOICE_KEY("mesh.schedule", "1f1b", "gpipe|1f1b|interleaved"),
     .help =
         "order of forward and backward in a pipeline; 1f1b holds fewer activations; interleaved "
         "waits mesh.chunks times less, and needs a multiple of mesh.pipeline micro-batches",
     .at = BP_AT(bp_mesh_keys, schedule)},
    {BP_INT_KEY("mesh.chunks", "2", 2, 64),
     .help = "with mesh.schedule=interleaved: runs of blocks that each stage has",
     .at = BP_AT(bp_mesh_keys, chunks)},
    {BP_BOOL_KEY("mesh.overlap", "yes"),
     .help = "a thread of each rank sums gradients and gathers parameters over data ranks while "
             "the others compute",
     .at = BP_AT(bp_mesh_keys, overlap)},
    {BP_CHOICE_KEY("mesh.sequence_parallel", "auto", "auto|yes|no"),
     .help = "in training tensor ranks share out, by rows, what lies between products: norms, "
             "residuals, dropout, and what is kept of them; auto: where mesh.tensor divides "
             "mesh.micro_batch x model.context",
     .at = BP_AT(bp_mesh_keys, sequence_parallel)},
    {BP_CHOICE_KEY("mesh.sums", "float32", "float32|bf16"),
     .help = "form in which data ranks send each other gradients; bf16: half the bytes, values are "
             "rounded before each message and added in float32, so that bits depend on the number "
             "of data ranks",
     .at = BP_AT(bp_mesh_keys, sums)},
    {0}};

bp_mesh_shape bp_mesh_shape_of(const bp_config *config)
{
    const char *coordinator = bp_mesh_keys_of(config)->coordinator;
    bp_mesh_shape shape = {.members = (int)bp_mesh_keys_of(config)->members,
                           .pipeline = (int)bp_mesh_keys_of(config)->pipeline,
                           .data = (int)bp_mesh_keys_of(config)->data,
                           .tensor = (int)bp_mesh_keys_of(config)->tensor,
                           .expert = (int)bp_mesh_keys_of(config)->expert,
                           .coordinator = BP_COORDINATOR_AUTO};

    if (strcmp(coordinator, "shared") == 0)
        shape.coordinator = BP_COORDINATOR_SHARED;
    else if (strcmp(coordinator, "dedicated") == 0)
        shape.coordinator = BP_COORDINATOR_DEDICATED;
    return shape;
}

static void add_axis(bp_buffer *out, const char *name, int extent)
{
    bp_buffer_printf(out, "%smesh.%s = %d", out->bytes > 0 ? " x " : "", name, extent);
}

/* The axes that were set, as the user would write them: "mesh.pipeline = 2 x mesh.tensor = 2". */
static void add_axes(bp_buffer *out, const bp_mesh_shape *shape)
{
    if (shape->members > 1)
        add_axis(out, "members", shape->members);
    if (shape->pipeline > 1)
        add_axis(out, "pipeline", shape->pipeline);
    if (shape->data > 0)
        add_axis(out, "data", shape->data);
    if (shape->tensor > 1)
        add_axis(out, "tensor", shape->tensor);
    if (out->bytes == 0)
        bp_buffer_printf(out, "mesh.coordinator = dedicated");
}

/* What this mesh needs: "a multiple of 4 ranks". */
static void add_need(bp_buffer *out, const bp_mesh_shape *shape, int64_t copy)
{
    bool dedicated = shape->coordinator == BP_COORDINATOR_DEDICATED;
    int64_t ranks = copy * (shape->data > 0 ? shape->data : 1);

    if (shape->data == 0 &&
        copy == 1) /* only a rank in addition to the coordinator can be missing */
        bp_buffer_printf(out, "2 ranks or more");
    else
        bp_buffer_printf(out, "%s%" PRId64 " rank%s%s", shape->data > 0 ? "" : "a multiple of ",
                         ranks, ranks == 1 ? "" : "s",
                         dedicated ? " and one that coordinates" : "");
}

/* "4, 8, 12 ...": sizes near `size` that hold whole copies of `copy` ranks plus `more` ranks. */
static void add_sizes(bp_buffer *out, int64_t copy, int64_t more, int64_t size)
{
    int64_t first = (size - more) / copy - 1;

    if (first < 1)
        first = 1;
    for (int64_t k = first; k < first + 3; k++)
        bp_buffer_printf(out, "%s%" PRId64, k > first ? ", " : "", k * copy + more);
    bp_buffer_printf(out, " ...");
}

/* Sizes of the world that this mesh would fit: "start 4, 8, 12 ... ranks, or 5, 9, 13 ... with a
 * dedicated coordinator". Where mesh.data is not given, only mesh.coordinator can make it
 * dedicated.
 */
static void add_world_sizes(bp_buffer *out, const bp_mesh_shape *shape, int64_t copy, int size)
{
    bool shared = shape->coordinator != BP_COORDINATOR_DEDICATED;
    bool dedicated = shape->coordinator != BP_COORDINATOR_SHARED;

    bp_buffer_printf(out, "start ");
    for (int more = shared ? 0 : 1; more <= (dedicated ? 1 : 0); more++) {
        bp_buffer_printf(out, more && shared ? ", or " : "");
        if (shape->data > 0)
            bp_buffer_printf(out, "%lld", (long long)copy * shape->data + more);
        else
            add_sizes(out, copy, more, size);
        bp_buffer_printf(out, more ? " with %s" : " ranks",
                         shape->data > 0 || !shared ? "a dedicated coordinator"
                                                    : "mesh.coordinator=dedicated");
    }
}

/* Meshes that this world would fit: another mesh.data, or the possible products of the other
 * axes. */
static void add_mesh_sizes(bp_buffer *out, const bp_mesh_shape *shape, int64_t copy, int size)
{
    int64_t left = size - (shape->coordinator == BP_COORDINATOR_DEDICATED ? 1 : 0);
    int listed = 0;

    if (left < 1)
        return;
    if (shape->data > 0 && left % copy == 0) {
        bp_buffer_printf(out, "; or set mesh.data=%lld", (long long)(left / copy));
        return;
    }
    bp_buffer_printf(out, "; or %slet members x pipeline x tensor be ",
                     shape->data > 0 ? "leave mesh.data out and " : "");
    for (int64_t divisor = 1; divisor <= left; divisor++)
        if (left % divisor == 0)
            bp_buffer_printf(out, "%s%lld",
                             listed++ == 0     ? ""
                             : divisor == left ? " or "
                                               : ", ",
                             (long long)divisor);
}

static bp_err fail_fit(const bp_mesh_shape *shape, int64_t copy, int size)
{
    bp_buffer axes = {0}, remedy = {0};

    add_axes(&axes, shape);
    bp_buffer_printf(&axes, " needs ");
    add_need(&axes, shape, copy);
    add_world_sizes(&remedy, shape, copy, size);
    add_mesh_sizes(&remedy, shape, copy, size);
    bp_err err = bp_fail(BP_ERR_CONFIG, "mesh.wrong_ranks", "%s, but there %s %d: at mesh.*; %s",
                         axes.data, size == 1 ? "is" : "are", size, remedy.data);
    bp_buffer_clear(&axes);
    bp_buffer_clear(&remedy);
    return err;
}

/* Ranks that one data replica of all members takes, or with `data` the whole mesh; false beyond an
 * int. */
static bool product(int64_t *out, const bp_mesh_shape *shape)
{
    int64_t data = shape->data > 0 ? shape->data : 1;
    int64_t of_two = (int64_t)shape->members * shape->pipeline; /* ints: fits */

    if (of_two >= INT_MAX)
        return false;
    *out = of_two * shape->tensor;
    return *out < INT_MAX && *out * data < INT_MAX; /* one is left for the coordinator */
}

static bp_err fail_experts(const bp_mesh_shape *shape, int64_t datas)
{
    bp_buffer fits = {0};

    for (int64_t d = 1; d <= datas; d++)
        if (datas % d == 0)
            bp_buffer_printf(&fits, "%s%" PRId64, fits.bytes > 0 ? ", " : "", d);
    bp_err err =
        bp_fail(BP_ERR_CONFIG, "mesh.expert_ranks",
                "mesh.expert = %d does not divide the %" PRId64 " data rank%s: at mesh.expert; use "
                "one of %s, or other data ranks",
                shape->expert, datas, datas == 1 ? "" : "s", fits.data);
    bp_buffer_clear(&fits);
    return err;
}

bp_err bp_mesh_shape_fit(bp_mesh_shape *shape, int size)
{
    int64_t copy;

    BP_ASSERT(shape->members > 0 && shape->pipeline > 0 && shape->data >= 0 && shape->tensor > 0);
    if (!product(&copy, shape))
        return bp_fail(BP_ERR_CONFIG, "mesh.too_many_ranks",
                       "mesh.members = %d, mesh.pipeline = %d, mesh.data = %d, mesh.tensor = %d "
                       "multiply to more ranks than MPI counts: at mesh.*; let them multiply to %d",
                       shape->members, shape->pipeline, shape->data, shape->tensor, size);
    bool dedicated = shape->coordinator == BP_COORDINATOR_DEDICATED;
    if (shape->coordinator == BP_COORDINATOR_AUTO && shape->data > 0)
        dedicated = size == copy * shape->data + 1;
    int64_t left = size - (dedicated ? 1 : 0);
    bool fits = shape->data > 0 ? left == copy * shape->data : left >= copy && left % copy == 0;
    if (!fits)
        return fail_fit(shape, copy, size);
    if (left / copy % bp_mesh_shape_experts(shape) != 0)
        return fail_experts(shape, left / copy);
    shape->data = (int)(left / copy);
    shape->coordinator = dedicated ? BP_COORDINATOR_DEDICATED : BP_COORDINATOR_SHARED;
    return BP_OK;
}

bp_err bp_mesh_shape_plan(bp_mesh_shape *shape, int ranks)
{
    int64_t copy;

    if (ranks > 0)
        return bp_mesh_shape_fit(shape, ranks);
    shape->data = shape->data > 0 ? shape->data : bp_mesh_shape_experts(shape);
    shape->coordinator = BP_COORDINATOR_SHARED;
    return bp_mesh_shape_fit(shape, product(&copy, shape) ? (int)copy * shape->data : 1);
}

static void place(bp_mesh *mesh, const bp_mesh_shape *shape)
{
    mesh->members = shape->members;
    mesh->pipeline_ranks = shape->pipeline;
    mesh->data_ranks = shape->data;
    mesh->tensor_ranks = shape->tensor;
    mesh->expert_ranks = bp_mesh_shape_experts(shape);
    mesh->dedicated = shape->coordinator == BP_COORDINATOR_DEDICATED;
    mesh->coordinates = mesh->rank == 0;
    mesh->computes = !(mesh->dedicated && mesh->coordinates);
    mesh->member_index = mesh->pipeline_rank = mesh->data_rank = mesh->tensor_rank =
        mesh->expert_rank = -1;
    if (!mesh->computes)
        return;
    int index = mesh->rank - (mesh->dedicated ? 1 : 0);
    mesh->tensor_rank = index % mesh->tensor_ranks;
    index /= mesh->tensor_ranks;
    mesh->data_rank = index % mesh->data_ranks;
    mesh->expert_rank = mesh->data_rank % mesh->expert_ranks;
    index /= mesh->data_ranks;
    mesh->pipeline_rank = index % mesh->pipeline_ranks;
    mesh->member_index = index / mesh->pipeline_ranks;
}

static MPI_Comm split(MPI_Comm comm, int color, int key)
{
    MPI_Comm out;

    BP_MPI(MPI_Comm_split(comm, color, key, &out));
    return out;
}

/* Color: the group of ranks; key: the order within. All are below the number of ranks, so they fit
 * an int. */
static void split_axes(bp_mesh *mesh)
{
    int m = mesh->member_index, p = mesh->pipeline_rank, d = mesh->data_rank, t = mesh->tensor_rank;
    int P = mesh->pipeline_ranks, D = mesh->data_ranks, T = mesh->tensor_ranks,
        E = mesh->expert_ranks;

    mesh->compute = split(mesh->world, mesh->computes ? 0 : MPI_UNDEFINED, mesh->rank);
    if (!mesh->computes)
        return;
    mesh->member = split(mesh->compute, m, (p * D + d) * T + t);
    mesh->model = split(mesh->compute, m * D + d, p * T + t);
    mesh->pipeline = split(mesh->compute, (m * D + d) * T + t, p);
    mesh->data = split(mesh->compute, (m * P + p) * T + t, d);
    mesh->tensor = split(mesh->compute, (m * P + p) * D + d, t);
    mesh->expert = split(mesh->data, d / E, d);
    mesh->expert_data = split(mesh->data, d % E, d);
    mesh->replica = split(mesh->compute, d, (m * P + p) * T + t);
    mesh->across = split(mesh->compute, (p * D + d) * T + t, m);
}

bp_err bp_mesh_new(bp_mesh **out, MPI_Comm comm, const bp_mesh_shape *shape)
{
    bp_mesh *mesh = bp_alloc("mesh.mesh", 1, sizeof *mesh);

    mesh->compute = mesh->member = mesh->model = MPI_COMM_NULL;
    mesh->pipeline = mesh->data = mesh->tensor = MPI_COMM_NULL;
    mesh->replica = mesh->across = mesh->expert = mesh->expert_data = MPI_COMM_NULL;
    BP_MPI(MPI_Comm_dup(comm, &mesh->world));
    mesh->rank = bp_comm_rank(mesh->world);
    mesh->size = bp_comm_size(mesh->world);
    bool dedicated = shape->coordinator == BP_COORDINATOR_DEDICATED;
    BP_ASSERT(shape->coordinator != BP_COORDINATOR_AUTO && shape->data > 0 &&
              shape->data % bp_mesh_shape_experts(shape) == 0);
    BP_ASSERT((int64_t)shape->members * shape->pipeline * shape->data * shape->tensor ==
              mesh->size - dedicated);
    place(mesh, shape);
    split_axes(mesh);
    *out = mesh;
    return BP_OK;
}

bp_err bp_mesh_open(bp_mesh **out, bp_mesh_shape *shape, const bp_config *config, MPI_Comm world,
                    const bp_planned_world *plan)
{
    static const bp_mesh_shape ALONE = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bool alone = plan && bp_comm_size(world) == 1;
    bp_err err;

    *shape = bp_mesh_shape_of(config);
    err = alone ? bp_mesh_shape_plan(shape, plan->ranks)
                : bp_mesh_shape_fit(shape, bp_comm_size(world));
    if (err == BP_OK)
        err = bp_mesh_new(out, world, alone ? &ALONE : shape);
    return err;
}

void bp_mesh_free(bp_mesh **mesh)
{
    if (!*mesh)
        return;
    MPI_Comm *comms[] = {&(*mesh)->expert,  &(*mesh)->expert_data, &(*mesh)->tensor,
                         &(*mesh)->data,    &(*mesh)->pipeline,    &(*mesh)->model,
                         &(*mesh)->member,  &(*mesh)->replica,     &(*mesh)->across,
                         &(*mesh)->compute, &(*mesh)->world};
    for (size_t i = 0; i < sizeof comms / sizeof comms[0]; i++)
        if (*comms[i] != MPI_COMM_NULL)
            BP_MPI(MPI_Comm_free(comms[i]));
    bp_free(*mesh);
    *mesh = NULL;
}
