/* What the machine is found to be, and the options. */
#include "base/config/config.h"
#include "math/math.h"
#include "math_test.h"
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

static bp_err precision_for(const char *argument, bp_precision *precision)
{
    const bp_option *tables[] = {bp_math_options, NULL};
    char *arguments[] = {(char *)argument};
    bp_config *config;

    assert_int_equal(bp_config_new(&config, tables, tables), BP_OK);
    bp_err err = bp_config_read(config, NULL, argument ? 1 : 0, arguments);
    if (err == BP_OK)
        err = bp_math_precision(config, precision);
    bp_config_free(&config);
    return err;
}

static void precision_follows_the_cpu(void **state)
{
    bp_precision precision;

    (void)state;
    assert_int_equal(precision_for(NULL, &precision), BP_OK);
    assert_int_equal(precision, bp_math_has_bf16() ? BP_BF16 : BP_F32);
    assert_int_equal(precision_for("math.precision=f32", &precision), BP_OK);
    assert_int_equal(precision, BP_F32);
}

static void bf16_without_hardware_is_a_fault_of_configuration(void **state)
{
    bp_precision precision;

    (void)state;
    if (bp_math_has_bf16()) {
        assert_int_equal(precision_for("math.precision=bf16", &precision), BP_OK);
        assert_int_equal(precision, BP_BF16);
    } else {
        assert_int_equal(precision_for("math.precision=bf16", &precision), BP_ERR_CONFIG);
        assert_non_null(strstr(bp_err_message(), "bf16"));
    }
}

/* The same test runs with ONEDNN_MAX_CPU_ISA=AVX2, which oneDNN obeys. */
static void smaller_instruction_set_has_no_bf16(void **state)
{
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");

    (void)state;
    if (!isa || strcmp(isa, "AVX2") != 0)
        skip();
    assert_false(bp_math_has_bf16());
}

static void options_are_bounded(void **state)
{
    bp_precision precision;

    (void)state;
    assert_int_equal(precision_for("math.precision=f16", &precision), BP_ERR_CONFIG);
    assert_int_equal(precision_for("math.threads=1025", &precision), BP_ERR_CONFIG);
    assert_int_equal(precision_for("math.threads=-1", &precision), BP_ERR_CONFIG);
    assert_int_equal(precision_for("math.threads=1024", &precision), BP_OK);
}

static void cores_are_those_that_the_process_was_given(void **state)
{
    cpu_set_t all, one;
    int cores = bp_math_cores();

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(cores, 1, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(bp_math_cores(), cores); /* a thread that is bound later changes nothing */
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(bp_math_cores(), cores);
}

static void threads_are_as_set(void **state)
{
    (void)state;
    bp_math_set_threads(3);
    assert_int_equal(bp_math_threads(), 3);
    bp_math_set_threads(0);
    assert_int_equal(bp_math_threads(), bp_math_cores());
}

static void denormals_are_flushed_in_every_thread(void **state)
{
    int flushed = 0, threads = 0;

    (void)state;
    bp_math_set_threads(3);
#pragma omp parallel reduction(+ : flushed, threads)
    {
        volatile float tiny = 1e-20f;
        threads += 1;
        flushed += tiny * tiny == 0.0f;
    }
    bp_math_set_threads(0);
    assert_int_equal(threads, 3);
#if defined(__SSE2__)
    assert_int_equal(flushed, 3);
#endif
}

static void machine_has_names(void **state)
{
    (void)state;
    assert_true(strlen(bp_math_library()) > 3);
    assert_true(strncmp(bp_math_library(), "onednn", 6) == 0 ||
                strncmp(bp_math_library(), "blas", 4) == 0);
    assert_true(strlen(bp_math_cpu()) > 0);
    print_message("%s on %s\n", bp_math_library(), bp_math_cpu());
}

/* FLOP/s that a machine may have, under a sanitizer and a load too; none in bf16 where it has not
 * any. */
static void check_peak(double (*peak)(bp_precision precision, double seconds))
{
    double f32 = peak(BP_F32, 0.05), bf16 = peak(BP_BF16, 0.05);

    print_message("%.3g GFLOP/s f32, %.3g bf16\n", f32 / 1e9, bf16 / 1e9);
    assert_true(f32 > 1e5 && f32 < 1e15);
    if (bp_math_has_bf16())
        assert_true(bf16 > 1e5 && bf16 < 1e16);
    else
        assert_true(bf16 == 0.0);
}

static void peaks_of_products_and_of_the_peak_are_measured(void **state)
{
    (void)state;
    check_peak(bp_math_gemm_peak);
    check_peak(bp_math_peak);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precision_follows_the_cpu),
        cmocka_unit_test(bf16_without_hardware_is_a_fault_of_configuration),
        cmocka_unit_test(smaller_instruction_set_has_no_bf16),
        cmocka_unit_test(options_are_bounded),
        cmocka_unit_test(cores_are_those_that_the_process_was_given),
        cmocka_unit_test(threads_are_as_set),
        cmocka_unit_test(denormals_are_flushed_in_every_thread),
        cmocka_unit_test(machine_has_names),
        cmocka_unit_test(peaks_of_products_and_of_the_peak_are_measured),
    };

    return cmocka_run_group_tests(tests, NULL, no_leaks);
}
