/* The watchdog's thread: sends heartbeats, receives those of others if it is an observer, and
 * exits. Called by watchdog.c. */
#include "run/watchdog/watchdog_priv.h"

#include "base/buffer.h"
#include "base/process/clock.h"
#include "base/process/thread.h"
#include "run/status/run_progress.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_HEARTBEATS 5 /* with many ranks, rank 0 answers one heartbeat in this many */
#define MANY_RANKS        64
#define GREETING_SECONDS  30.0 /* within which a first datagram comes, or a warning */
#define SPEAKER_SECONDS   2.0  /* for others to write their backtraces */
#define OTHERS_SECONDS    4.0
#define MOST_SECONDS      7.0 /* whatever a file system does */

/* ---- sending ---- */

static void send_to(const watchdog *self, int rank, wire_packet *packet)
{
    packet->to = rank;
    packet->confirmed = self->confirmed[rank].sin_port != 0;
    if (packet->confirmed)
        wire_send(self->fd, &self->confirmed[rank], packet);
    else
        wire_send_all(self->fd, &self->places[self->rank], &self->places[rank], packet);
}

/* What this rank is doing; of rank 0 the answer to others' heartbeats, too. */
static wire_packet heartbeat_packet(watchdog *self, wire_kind kind)
{
    wire_packet packet = wire_packet_of(self->token, kind, self->rank);
    bp_heartbeat now;

    bp_heartbeat_read(&now);
    packet.sequence = ++self->sequence;
    packet.heartbeat = (bp_watch_heartbeat){.phase = now.phase,
                                            .step = now.step,
                                            .steps = now.steps,
                                            .progress = now.progress,
                                            .collectives = now.collectives,
                                            .busy_ns = now.busy_ns,
                                            .commit_ns = now.commit_ns,
                                            .waits = now.waits,
                                            .peers = atomic_load(&self->peers)};
    (void)snprintf(packet.name, sizeof packet.name, "%s", now.collective);
    return packet;
}

/* Drops late and duplicate heartbeats. */
static void note_heartbeat(watchdog *self, const wire_packet *packet)
{
    if (packet->sequence <= self->sequences[packet->from])
        return;
    self->sequences[packet->from] = packet->sequence;
    memcpy(self->collectives[packet->from], packet->name, WIRE_NAME_BYTES);
    bp_watch_receive(self->watch, packet->from, &packet->heartbeat, bp_clock_now());
}

void watchdog_heartbeat(watchdog *self)
{
    wire_packet packet = heartbeat_packet(self, WIRE_HEARTBEAT);

    if (self->rank == 0)
        note_heartbeat(self, &packet);
    else
        send_to(self, 0, &packet);
}

/* ---- leaving ---- */

static void *report(void *argument)
{
    watchdog *self = argument;

    watchdog_report(self);
    atomic_store(&self->reported, true);
    return NULL;
}

/* The report may hang with a file system: this thread goes on, and ends the process in any case. */
static void begin_to_leave(watchdog *self, bool speaks)
{
    pthread_t thread;

    atomic_store(&self->exits, true);
    self->speaks = speaks;
    self->exits_at = bp_clock_now();
    if (self->diagnosis.cause != NO_LAUNCHER)
        self->exits_at += speaks ? SPEAKER_SECONDS : OTHERS_SECONDS;
    if (bp_thread_start(&thread, "diagnosis", report, self) == BP_OK) {
        (void)pthread_detach(thread);
        return;
    }
    (void)watchdog_report_line(self); /* not without a word */
    atomic_store(&self->reported, true);
}

static void leave_if_due(watchdog *self, double now)
{
    if (now < self->exits_at ||
        (!atomic_load(&self->reported) && now < self->exits_at + MOST_SECONDS))
        return;
    if (self->first_of_host)
        watchdog_launcher_guard(&self->launcher);
    _exit(BP_ERR_STOPPED);
}

void watchdog_leave_now(watchdog *self)
{
    begin_to_leave(self, true);
    for (;; bp_clock_sleep(0.01))
        leave_if_due(self, bp_clock_now());
}

static void order_all(watchdog *self)
{
    wire_packet packet = wire_packet_of(self->token, WIRE_ORDER, self->rank);

    packet.is = self->diagnosis.is;
    packet.heartbeat = self->diagnosis.heartbeat;
    memcpy(packet.name, self->diagnosis.collective, sizeof packet.name);
    for (int rank = 0; rank < self->size; rank++)
        if (rank != self->rank)
            send_to(self, rank, &packet);
}

static void pass_diagnosis(watchdog *self, const bp_watch_diagnosis *diagnosis)
{
    self->diagnosis.is = *diagnosis;
    self->diagnosis.heartbeat = *bp_watch_last(self->watch, diagnosis->rank);
    memcpy(self->diagnosis.collective, self->collectives[diagnosis->rank], WIRE_NAME_BYTES);
    order_all(self);
    begin_to_leave(self, true);
}

/* ---- receiving ---- */

/* An answer tells a rank rank 0's address, and that rank 0 is alive. */
static void receive_heartbeat(watchdog *self, const wire_packet *packet,
                              const struct sockaddr_in *from)
{
    int each = self->size > MANY_RANKS ? ANSWER_HEARTBEATS : 1;

    if (!packet->confirmed || (packet->sequence + packet->from) % each == 0) {
        wire_packet answer = heartbeat_packet(self, WIRE_ANSWER);

        answer.to = packet->from;
        wire_send(self->fd, from, &answer);
    }
    note_heartbeat(self, packet);
}

static void receive(watchdog *self, const wire_packet *packet, const struct sockaddr_in *from)
{
    self->confirmed[packet->from] = *from;
    if (packet->kind == WIRE_HEARTBEAT && self->rank == 0) {
        receive_heartbeat(self, packet, from);
    } else if (packet->kind == WIRE_ANSWER && packet->from == 0) {
        note_heartbeat(self, packet);
    } else if (packet->kind == WIRE_LEAVE && (self->rank == 0 || packet->from == 0)) {
        bp_watch_leave(self->watch, packet->from);
    } else if (packet->kind == WIRE_ORDER && !atomic_load(&self->exits)) {
        self->diagnosis.is = packet->is;
        self->diagnosis.heartbeat = packet->heartbeat;
        memcpy(self->diagnosis.collective, packet->name, sizeof packet->name);
        begin_to_leave(self, false);
    }
}

/* ---- checking ---- */

/* "rank 3 on host n2, rank 4 on host n2 and 12 more" */
static void warn_of_unknown(const watchdog *self)
{
    const wire_place *mine = &self->places[self->rank];
    bp_buffer list = {0};
    int missing = 0;

    for (int rank = 0; rank < self->size; rank++)
        if (!bp_watch_is_known(self->watch, rank) && missing++ < 3)
            bp_buffer_printf(&list, "%srank %d on host %s", missing > 1 ? ", " : "", rank,
                             self->places[rank].host);
    if (missing > 3)
        bp_buffer_printf(&list, " and %d more", missing - 3);
    if (missing > 0)
        run_progress_note(json_pack(
            "{s:o}", "warning",
            json_sprintf(
                "the watchdog has received nothing from %s, and can name it only where all "
                "others wait: at UDP port %d of host %s; is there a firewall between the "
                "nodes?",
                list.data, (int)ntohs(mine->port), mine->host)));
    bp_buffer_clear(&list);
}

/* How long has this rank waited for others without an answer from rank 0? A firewall may block rank
 * 0's answers: then others progress, and so does this rank. */
static double waited_unanswered(watchdog *self, double now)
{
    bp_heartbeat heartbeat;

    bp_heartbeat_read(&heartbeat);
    if (!heartbeat.waits || heartbeat.phase != BP_PHASE_START ||
        heartbeat.progress != self->progress)
        self->moved_at = now;
    self->progress = heartbeat.progress;
    return now - self->moved_at;
}

/* Rank 1 orders the others to leave at once; one that it does not reach leaves by itself a little
 * later. */
static void check_rank_0(watchdog *self, double now)
{
    double limit = WATCHDOG_LONG * self->seconds + LATER_HEARTBEATS * self->heartbeat_seconds,
           seconds;
    bp_watch_diagnosis diagnosis;

    if (bp_watch_diagnose(self->watch, now, &diagnosis)) {
        pass_diagnosis(self, &diagnosis);
        return;
    }
    now = bp_watch_clock_poll(&self->ear, now);
    if (bp_watch_is_known(self->watch, 0) || (seconds = waited_unanswered(self, now)) <= limit)
        return;
    self->diagnosis.cause = NO_WORD;
    self->diagnosis.is = (bp_watch_diagnosis){.reason = BP_WATCH_SILENT, .seconds = seconds};
    begin_to_leave(self, true);
}

static void check_ranks(watchdog *self, double now)
{
    bp_watch_diagnosis diagnosis;
    bp_watch_slow slow;

    if (bp_watch_diagnose(self->watch, now, &diagnosis)) {
        pass_diagnosis(self, &diagnosis);
    } else if (!self->warned && now - self->began > GREETING_SECONDS) {
        self->warned = true;
        warn_of_unknown(self);
    } else if (bp_watch_next_slow(self->watch, &slow)) {
        run_progress_note(json_pack("{s:s, s:i, s:s, s:f, s:f, s:I}", "event", "slow_rank", "rank",
                                    slow.rank, "host", self->places[slow.rank].host, "ratio",
                                    slow.ratio, "seconds", slow.seconds, "step",
                                    (json_int_t)bp_watch_last(self->watch, slow.rank)->step));
    }
}

static void send_and_check(watchdog *self, double now)
{
    watchdog_heartbeat(self);
    if (watchdog_launcher_is_gone(&self->launcher)) {
        self->diagnosis.cause = NO_LAUNCHER;
        begin_to_leave(self, self->first_of_host);
    } else if (self->rank == 0) {
        check_ranks(self, now);
    } else {
        check_rank_0(self, now);
    }
}

/* Waits until `end`, a datagram, or the stop. */
static void wait_until(const watchdog *self, double end)
{
    double seconds = end - bp_clock_now();
    uint64_t woken;
    struct pollfd ways[2] = {{.fd = self->wake, .events = POLLIN},
                             {.fd = self->fd, .events = POLLIN}}; /* one of -1 is ignored */

    if (seconds > 0)
        (void)poll(ways, 2, (int)(seconds * 1000) + 1);
    (void)!read(self->wake, &woken, sizeof woken); /* else it would wake this thread forever */
}

void *watchdog_run(void *argument)
{
    watchdog *self = argument;
    /* ranks heartbeat in turn, not all at once */
    double next = bp_clock_now() + self->heartbeat_seconds * self->rank / self->size, now;
    struct sockaddr_in from;
    wire_packet packet;

    while (atomic_load(&self->exits) || !atomic_load(&self->ends)) {
        now = bp_clock_now();
        if (now >= next) {
            next = now + self->heartbeat_seconds;
            if (!atomic_load(&self->exits))
                send_and_check(self, now);
            else if (self->speaks && self->diagnosis.cause == NO_PROGRESS)
                order_all(self); /* again: datagrams get lost */
        }
        if (atomic_load(&self->exits))
            leave_if_due(self, now);
        wait_until(self, next);
        while (self->fd >= 0 &&
               wire_receive(self->fd, self->token, self->rank, self->size, &packet, &from))
            receive(self, &packet, &from);
    }
    packet = wire_packet_of(self->token, WIRE_LEAVE, self->rank);
    for (int rank = 0; rank < self->size; rank++)
        if (rank != self->rank && (self->rank == 0 || rank == 0))
            send_to(self, rank, &packet);
    return NULL;
}
