/* TensorBoard's event files: records of protocol buffers, written by hand.
 *
 * A record is its length (8 bytes), a checksum of those, the data, and a checksum of the data; all
 * numbers with the lowest byte first. The data is an Event (TensorBoard's event.proto,
 * summary.proto).
 *
 * Called by run_lines.c. */
#include "run/run_tensorboard_priv.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/mem.h"
#include "mesh/mesh.h"
#include "run/run_fields.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PREFIX  "events.out.tfevents."
#define VERSION "brain.Event:2"

/* What follows a field's number in its key. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
/* Fields of Event, of its SessionLog and Summary, and of a Summary's Value. */
enum { EVENT_TIME = 1, EVENT_STEP, EVENT_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SESSION_STATUS = 1, SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE };
#define SESSION_START 1

/* Losses of an objective's terms are added (is_term). */
static const char *const TAGS[] = {"loss", "valid_loss", "lr", "grad_norm", "tokens_per_second",
                                   "mfu",  NULL};

/* ---- protocol buffers ---- */

static void add_fixed(bp_buffer *out, uint64_t value, int bytes)
{
    for (int k = 0; k < bytes; k++) {
        uint8_t byte = (uint8_t)(value >> 8 * k);
        bp_buffer_add(out, &byte, 1);
    }
}

static void add_varint(bp_buffer *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        add_fixed(out, (value & 0x7f) | 0x80, 1);
    add_fixed(out, value, 1);
}

static void add_key(bp_buffer *out, int field, int kind)
{
    add_varint(out, (uint64_t)(field << 3 | kind));
}

static void add_integer(bp_buffer *out, int field, int64_t value)
{
    add_key(out, field, VARINT);
    add_varint(out, (uint64_t)value);
}

static void add_double(bp_buffer *out, int field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    add_key(out, field, FIXED64);
    add_fixed(out, bits, 8);
}

static void add_bytes(bp_buffer *out, int field, const void *data, size_t bytes)
{
    add_key(out, field, BYTES);
    add_varint(out, bytes);
    bp_buffer_add(out, data, bytes);
}

/* A message within a message; it is emptied. */
static void add_message(bp_buffer *out, int field, bp_buffer *message)
{
    add_bytes(out, field, message->data, message->bytes);
    bp_buffer_clear(message);
}

/* ---- records ---- */

/* The mask of TensorFlow's record files: rotated and offset, so that data with embedded checksums
 * is checksummed safely. */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = bp_crc32c(data, bytes);

    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void add_record(bp_buffer *out, bp_buffer *event)
{
    size_t begin = out->bytes;

    add_fixed(out, event->bytes, 8);
    add_fixed(out, masked_crc(out->data + begin, 8), 4);
    if (event->bytes > 0) {
        bp_buffer_add(out, event->data, event->bytes);
        add_fixed(out, masked_crc(event->data, event->bytes), 4);
    }
    bp_buffer_clear(event);
}

static double wall_time(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bp_err write_records(const run_journal *file, bp_buffer *records)
{
    bp_err err = run_journal_append(file, records->data, records->bytes);

    bp_buffer_clear(records);
    return err;
}

/* ---- files ---- */

/* TensorBoard reads a folder's files in the order of their names: seconds since 1970, but more than
 * any existing file has, whatever clocks say. */
static bp_err open_file(run_journal *out, const char *folder)
{
    char host[64] = "", **names = NULL;
    long long seconds = (long long)time(NULL);
    int64_t count = 0;
    bp_err err = bp_dir_make(folder);

    if (err == BP_OK)
        err = bp_dir_list(folder, &names, &count);
    if (err != BP_OK)
        return err;
    for (int64_t k = 0; k < count; k++) {
        long long other = strncmp(names[k], PREFIX, sizeof PREFIX - 1) == 0
                              ? strtoll(names[k] + sizeof PREFIX - 1, NULL, 10)
                              : 0;
        seconds = other >= seconds ? other + 1 : seconds;
    }
    bp_names_free(&names, count);
    bp_host_name(host, sizeof host);
    out->path = bp_sprintf("%s/" PREFIX "%010lld.%s", folder, seconds, host);
    out->fd = open(out->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    return out->fd < 0 ? bp_fail_create("can't open", out->path) : BP_OK;
}

bp_err run_tensorboard_open(run_journal *out, const char *run_dir, int64_t step)
{
    bp_buffer records = {0}, event = {0}, session = {0};
    bp_err err;

    *out = (run_journal){.fd = -1};
    err = open_file(out, bp_path_in(run_dir, "tensorboard").text);
    if (err != BP_OK)
        return err;
    add_double(&event, EVENT_TIME, wall_time());
    add_bytes(&event, EVENT_VERSION, VERSION, strlen(VERSION));
    add_record(&records, &event);
    add_double(&event, EVENT_TIME, wall_time());
    add_integer(&event, EVENT_STEP, step);
    add_integer(&session, SESSION_STATUS, SESSION_START);
    add_message(&event, EVENT_SESSION, &session);
    add_record(&records, &event);
    return write_records(out, &records);
}

static void add_figure(bp_buffer *summary, const char *tag, float figure)
{
    bp_buffer value = {0};
    uint32_t bits;

    if (isnan(figure)) /* null: it was not finite, or is not known */
        return;
    memcpy(&bits, &figure, sizeof bits);
    add_bytes(&value, VALUE_TAG, tag, strlen(tag));
    add_key(&value, VALUE_SIMPLE, FIXED32);
    add_fixed(&value, bits, 4);
    add_message(summary, SUMMARY_VALUE, &value);
}

static bool is_term(const char *key)
{
    return strncmp(key, "loss_", 5) == 0 || strncmp(key, "valid_loss_", 11) == 0;
}

bp_err run_tensorboard_add(run_journal *file, const json_t *line)
{
    bp_buffer records = {0}, event = {0}, summary = {0};
    const char *key;
    json_t *value;

    for (int k = 0; TAGS[k]; k++)
        add_figure(&summary, TAGS[k], (float)bp_json_number(line, TAGS[k]));
    json_object_foreach((json_t *)line, key, value)
    {
        if (is_term(key) && json_is_number(value))
            add_figure(&summary, key, (float)json_number_value(value));
    }
    add_double(&event, EVENT_TIME, wall_time());
    add_integer(&event, EVENT_STEP, json_integer_value(json_object_get(line, "step")));
    add_message(&event, EVENT_SUMMARY, &summary);
    add_record(&records, &event);
    return write_records(file, &records);
}
