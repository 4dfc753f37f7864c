/* The timeline of all ranks, as chrome://tracing and Perfetto read it. Source: "Trace Event Format"
 * (Google, 2016): complete events ("X") and metadata ("M"). Called by trace.c at the end. */
#include "train/parts/trace_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "mesh/collective.h"

#include <stdlib.h>
#include <string.h>

#define TAG_EVENTS  502
#define LANES       64 /* concurrent communications that are drawn */
#define FIRST_LANE  10 /* threads of a process: 0 compute, 1 input, 2 checkpoint, lanes */
#define FLUSH_BYTES ((size_t)1 << 20)

typedef struct writer {
    bp_draft draft;
    bp_buffer text;
    int64_t origin; /* of the time, on rank 0's clock */
    bool began;     /* an event was written: a comma comes first */
} writer;

static bp_err flush(writer *self)
{
    bp_err err =
        bp_draft_write(&self->draft, self->text.data ? self->text.data : "", self->text.bytes);

    bp_buffer_clear(&self->text);
    return err;
}

static void separate(writer *self)
{
    bp_buffer_printf(&self->text, self->began ? ",\n" : "\n");
    self->began = true;
}

static void name_process(writer *self, const rank_trace *rank, int pid)
{
    char name[160];

    if (rank->computes)
        snprintf(name, sizeof name, "rank %d on %s: stage %d, data %d, tensor %d", pid, rank->host,
                 rank->pipeline_at, rank->data_at, rank->tensor_at);
    else
        snprintf(name, sizeof name, "rank %d on %s: coordinator", pid, rank->host);
    json_t *text = bp_json_string(name);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    separate(self);
    bp_buffer_printf(&self->text,
                     "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":%s}}",
                     pid, quoted);
    separate(self);
    bp_buffer_printf(
        &self->text,
        "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":%d}}",
        pid, pid);
    free(quoted);
    json_decref(text);
}

static void name_thread(writer *self, int pid, int tid, bp_trace_track track, int lane)
{
    char number[16] = "";

    if (lane > 0)
        snprintf(number, sizeof number, " %d", lane + 1);
    separate(self);
    bp_buffer_printf(&self->text,
                     "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":"
                     "{\"name\":\"%s%s\"}}",
                     pid, tid, bp_trace_track_name(track), number);
}

static void write_event(writer *self, const bp_trace_event *event, int pid, int tid)
{
    separate(self);
    bp_buffer_printf(
        &self->text, "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
        bp_trace_name((bp_trace_kind)event->kind), pid, tid,
        1e-3 * (double)(event->begin - self->origin), 1e-3 * (double)(event->end - event->begin));
    if (event->chunk >= 0)
        bp_buffer_printf(&self->text, ",\"args\":{\"number\":%d,\"chunk\":%d}", event->number,
                         event->chunk);
    else if (event->number >= 0)
        bp_buffer_printf(&self->text, ",\"args\":{\"number\":%d}", event->number);
    else if (event->flops > 0 || event->bytes > 0)
        bp_buffer_printf(&self->text, ",\"args\":{\"flops\":%.9g,\"bytes\":%.9g}",
                         (double)event->flops, (double)event->bytes);
    bp_buffer_printf(&self->text, "}");
}

/* By track, then by begin; an event comes before those that it contains. */
static int compare_events(const void *a, const void *b)
{
    const bp_trace_event *x = a, *y = b;

    if (x->track != y->track)
        return x->track < y->track ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? 0 : x->end > y->end ? -1 : 1;
}

/* The first free lane. */
static int find_lane(int64_t ends[LANES], const bp_trace_event *event, int *lanes)
{
    int lane = 0;

    while (lane < LANES - 1 && ends[lane] > event->begin)
        lane++;
    ends[lane] = event->end;
    *lanes = lane >= *lanes ? lane + 1 : *lanes;
    return lane;
}

static bp_err write_rank(writer *self, const rank_trace *rank, int pid, bp_trace_event *events)
{
    static const int TIDS[BP_TRACE_TRACKS] = {
        [BP_TRACE_COMPUTE] = 0, [BP_TRACE_READER] = 1, [BP_TRACE_WRITER] = 2};
    int64_t ends[LANES] = {0};
    bool named[BP_TRACE_TRACKS] = {false};
    int lanes = 0;
    bp_err err = BP_OK;

    name_process(self, rank, pid);
    if (rank->events > 1)
        qsort(events, (size_t)rank->events, sizeof *events, compare_events);
    for (int64_t k = 0; k < rank->events && err == BP_OK; k++) {
        bp_trace_event *event = &events[k];
        int tid = TIDS[event->track], before = lanes;

        event->begin += rank->clock_offset;
        event->end += rank->clock_offset;
        if (event->track == BP_TRACE_COMMUNICATION) {
            int lane = find_lane(ends, event, &lanes);
            tid = FIRST_LANE + lane;
            if (lanes > before)
                name_thread(self, pid, tid, BP_TRACE_COMMUNICATION, lane);
        } else if (!named[event->track]) {
            name_thread(self, pid, tid, (bp_trace_track)event->track, 0);
            named[event->track] = true;
        }
        write_event(self, event, pid, tid);
        if (self->text.bytes > FLUSH_BYTES)
            err = flush(self);
    }
    return err;
}

static bp_err begin(writer *self, const trainer *training, const char *path,
                    const rank_trace *ranks)
{
    const rank_trace *own = ranks[0].computes ? &ranks[0] : &ranks[1];
    int64_t dropped = 0;
    bp_err err = bp_draft_open(&self->draft, path);

    for (int r = 0; r < training->mesh->size; r++)
        dropped += ranks[r].dropped;
    if (dropped > 0)
        BP_WARN("timeline.events_lost",
                "the timeline lacks its last events, %lld of them: at train.trace; a step has more "
                "than fit, use fewer micro-batches",
                (long long)dropped);
    bp_buffer_printf(&self->text,
                     "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"first_step\":%lld,"
                     "\"ranks\":%d,\"dropped\":%lld},\"traceEvents\":[",
                     (long long)own->first_step, training->mesh->size, (long long)dropped);
    return err;
}

/* Writes one rank's events after another. What has been sent is received even after an error. */
static bp_err write_all(writer *self, const trainer *training, const char *path,
                        const rank_trace *ranks, bp_trace_event *buffer)
{
    bp_err err = begin(self, training, path, ranks);

    for (int r = 0; r < training->mesh->size; r++) {
        int64_t bytes = ranks[r].events * (int64_t)sizeof *buffer, count, dropped;

        if (r > 0 && bytes > 0)
            bp_recv(buffer, bytes, r, TAG_EVENTS, training->mesh->world);
        else if (bytes > 0)
            memcpy(buffer, bp_trace_events(&count, &dropped), (size_t)bytes);
        if (err == BP_OK)
            err = write_rank(self, &ranks[r], r, buffer);
    }
    bp_buffer_printf(&self->text, "\n]}\n");
    if (err == BP_OK)
        err = flush(self);
    return bp_draft_end(&self->draft, err);
}

bp_err timeline_write(const trainer *self, const tracing *own, int64_t capacity,
                      const rank_trace *mine, const rank_trace *ranks)
{
    const bp_mesh *mesh = self->mesh;
    writer out = {.origin = own->origin};
    int64_t count, dropped;
    bp_err err = BP_OK;

    if (mesh->coordinates) {
        bp_trace_event *buffer = bp_alloc("trace", capacity, sizeof *buffer);

        err = write_all(&out, self, own->path, ranks, buffer);
        if (err == BP_OK)
            bp_log("timeline: %s", own->path);
        bp_buffer_clear(&out.text);
        bp_free(buffer);
    } else if (mine->events > 0) { /* sent when the coordinator is ready for them */
        bp_send(bp_trace_events(&count, &dropped), mine->events * (int64_t)sizeof(bp_trace_event),
                0, TAG_EVENTS, mesh->world);
    }
    return bp_agree(mesh->world, err);
}
