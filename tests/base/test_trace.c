/* Spans of work: their own time, their counts, and the events kept of them. */
#include "bp_test.h"

#include "base/process/clock.h"
#include "base/trace.h"

#include <pthread.h>
#include <string.h>

static void scoped(void)
{
    BP_TRACE(BP_TRACE_NORM, 0, 64);
    bp_trace_add(8, 0);
}

static void nothing_is_counted_where_nothing_was_started(void **state)
{
    assert_false(bp_trace_is_on());
    scoped();
    assert_int_equal(bp_trace_now(), 0);
    bp_trace_flight(BP_TRACE_SEND, bp_trace_now(), 1);
    bp_trace_stop();
}

static void an_inner_span_takes_its_time_from_the_outer_one(void **state)
{
    bp_trace_count counts[BP_TRACE_KINDS];
    int64_t total, sum = 0;

    bp_trace_start(0);
    bp_trace_begin(BP_TRACE_PRODUCT_FORWARD, 100, 0);
    bp_trace_begin(BP_TRACE_COPIES, 0, 10);
    bp_clock_sleep(0.02);
    bp_trace_end();
    bp_trace_end();
    scoped();
    bp_trace_counts(BP_TRACE_COMPUTE, counts, &total);
    for (int k = 0; k < BP_TRACE_KINDS; k++)
        sum += counts[k].nanoseconds;
    assert_int_equal(sum, total);
    assert_int_equal(counts[BP_TRACE_PRODUCT_FORWARD].calls, 1);
    assert_true(counts[BP_TRACE_PRODUCT_FORWARD].flops == 100);
    assert_true(counts[BP_TRACE_COPIES].bytes == 10);
    assert_true(counts[BP_TRACE_COPIES].nanoseconds >= 20000000);
    assert_true(counts[BP_TRACE_PRODUCT_FORWARD].nanoseconds < counts[BP_TRACE_COPIES].nanoseconds);
    assert_true(counts[BP_TRACE_NORM].flops == 8 && counts[BP_TRACE_NORM].bytes == 64);
    bp_trace_stop();
}

static void what_lies_in_a_validation_is_its_own(void **state)
{
    bp_trace_count counts[BP_TRACE_KINDS];
    int64_t total;

    bp_trace_start(0);
    bp_trace_begin(BP_TRACE_STEP, 0, 0);
    bp_trace_begin(BP_TRACE_VALIDATION, 0, 0);
    bp_trace_begin(BP_TRACE_PASS_FORWARD, 0, 0);
    bp_trace_begin(BP_TRACE_PRODUCT_FORWARD, 7, 0);
    bp_trace_counts(BP_TRACE_COMPUTE, counts, &total); /* open spans count too */
    assert_int_equal(counts[BP_TRACE_PRODUCT_FORWARD].nanoseconds, 0);
    assert_true(counts[BP_TRACE_VALIDATION].nanoseconds > 0);
    for (int k = 0; k < 4; k++)
        bp_trace_end();
    bp_trace_counts(BP_TRACE_COMPUTE, counts, &total);
    assert_int_equal(counts[BP_TRACE_VALIDATION].calls, 1);
    assert_true(counts[BP_TRACE_VALIDATION].flops == 7);
    assert_int_equal(counts[BP_TRACE_PRODUCT_FORWARD].calls, 0);
    assert_int_equal(counts[BP_TRACE_STEP].nanoseconds, 0); /* they are OTHER's */
    bp_trace_reset();
    bp_trace_counts(BP_TRACE_COMPUTE, counts, &total);
    assert_int_equal(counts[BP_TRACE_VALIDATION].calls, 0);
    bp_trace_stop();
}

static void parts_of_a_checkpoint_are_distinguished(void **state)
{
    bp_trace_count counts[BP_TRACE_KINDS];
    int64_t total;

    bp_trace_start(0);
    bp_trace_begin(BP_TRACE_CHECKPOINT, 0, 0);
    bp_trace_begin(BP_TRACE_WRITER_WAIT, 0, 0);
    bp_trace_begin(BP_TRACE_AGREE, 0, 3);
    for (int k = 0; k < 3; k++)
        bp_trace_end();
    bp_trace_counts(BP_TRACE_COMPUTE, counts, &total);
    assert_int_equal(counts[BP_TRACE_CHECKPOINT].calls, 1);
    assert_int_equal(counts[BP_TRACE_WRITER_WAIT].calls, 1);
    assert_true(counts[BP_TRACE_WRITER_WAIT].bytes == 3);
    assert_int_equal(counts[BP_TRACE_AGREE].calls, 0);
    bp_trace_stop();
}

static void *read_corpus(void *argument)
{
    (void)argument;
    bp_trace_thread(BP_TRACE_READER);
    bp_trace_begin(BP_TRACE_INPUT, 0, 5);
    bp_trace_end();
    bp_trace_thread_end();
    scoped(); /* counted nowhere */
    return NULL;
}

static void helpers_have_a_track_of_their_own(void **state)
{
    bp_trace_count counts[BP_TRACE_KINDS];
    const bp_trace_event *events;
    int64_t total, count, dropped;
    pthread_t helper;

    bp_trace_start(4);
    bp_trace_record(true);
    assert_int_equal(pthread_create(&helper, NULL, read_corpus, NULL), 0);
    assert_int_equal(pthread_join(helper, NULL), 0);
    bp_trace_record(false);
    bp_trace_counts(BP_TRACE_READER, counts, &total);
    assert_int_equal(counts[BP_TRACE_INPUT].calls, 1);
    bp_trace_counts(BP_TRACE_COMPUTE, counts, &total);
    assert_int_equal(counts[BP_TRACE_INPUT].calls, 0);
    events = bp_trace_events(&count, &dropped);
    assert_int_equal(count, 1);
    assert_int_equal(dropped, 0);
    assert_int_equal(events[0].track, BP_TRACE_READER);
    bp_trace_stop();
}

static void events_beyond_the_capacity_are_counted(void **state)
{
    const bp_trace_event *events;
    int64_t count, dropped;

    bp_trace_start(2);
    scoped(); /* before recording */
    bp_trace_record(true);
    bp_trace_begin(BP_TRACE_STEP, 0, 0);
    bp_trace_number(12);
    bp_trace_chunk(1);
    bp_trace_flight(BP_TRACE_REDUCE, bp_trace_now(), 9);
    bp_trace_end();
    scoped();
    bp_trace_record(false);
    scoped();
    events = bp_trace_events(&count, &dropped);
    assert_int_equal(count, 2);
    assert_int_equal(dropped, 1);
    assert_int_equal(events[0].track, BP_TRACE_COMMUNICATION);
    assert_int_equal(events[0].kind, BP_TRACE_REDUCE);
    assert_true(events[0].bytes == 9);
    assert_int_equal(events[1].number, 12);
    assert_int_equal(events[0].chunk, -1);
    assert_int_equal(events[1].chunk, 1);
    assert_true(events[1].begin <= events[0].begin && events[0].end <= events[1].end);
    bp_trace_stop();
}

static void every_kind_and_track_has_a_name_of_its_own(void **state)
{
    for (int k = 0; k < BP_TRACE_KINDS; k++)
        for (int j = 0; j < k; j++)
            assert_string_not_equal(bp_trace_name((bp_trace_kind)k),
                                    bp_trace_name((bp_trace_kind)j));
    for (int k = 0; k < BP_TRACE_TRACKS; k++)
        assert_true(strlen(bp_trace_track_name((bp_trace_track)k)) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_counted_where_nothing_was_started),
        cmocka_unit_test(an_inner_span_takes_its_time_from_the_outer_one),
        cmocka_unit_test(what_lies_in_a_validation_is_its_own),
        cmocka_unit_test(parts_of_a_checkpoint_are_distinguished),
        cmocka_unit_test(helpers_have_a_track_of_their_own),
        cmocka_unit_test(events_beyond_the_capacity_are_counted),
        cmocka_unit_test(every_kind_and_track_has_a_name_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
