/* Progress and remaining time of a fit, from products with known numbers of operations, at the
 * speed of the largest one so far. Called by laplace_factors.c and laplace_posterior.c. */
#include "uncertainty/methods/laplace/laplace_priv.h"

#include "base/process/clock.h"
#include "base/process/signals.h"
#include "run/stop_request.h"

#include <math.h>

/* The eigenvectors' textbook operation count runs at this share of the speed of sums of products
 * (0.7 to 1.1 of it on one and two cores, 1,024 to 4,096 entries). */
#define EIGEN_SPEED 0.8
/* The expected total time of a step past its estimate, as a multiple of its time so far. */
#define OVERRUN 1.1

static double square(double x)
{
    return x * x;
}

static double eigen_seconds(const laplace_course *course)
{
    double V = (double)course->V, C = (double)course->C;

    return 16.0 / 3 * (V * square(V) + C * square(C)) /
           (EIGEN_SPEED * course->gram_work / course->gram_seconds);
}

/* Four products per sample. */
static double sample_seconds(const laplace_course *course)
{
    double V = (double)course->V, C = (double)course->C;

    return 4 * (double)course->samples * V * C * (V + C) /
           (course->gram_work / course->gram_seconds);
}

void laplace_course_step(laplace_course *course, laplace_step step)
{
    course->step = step;
    course->began = bp_clock_now();
}

void laplace_course_measure(laplace_course *course, double rows, double seconds)
{
    course->gram_work += rows * square((double)course->V);
    course->gram_seconds += seconds;
}

static bp_fit_progress progress_of(const laplace_course *course, double share)
{
    static const char *const NAMES[] = {"states of the text", "output factor", "eigenvectors",
                                        "samples"};
    double passed = bp_clock_now() - course->began, estimated = eigen_seconds(course), left;

    if (course->step == LAPLACE_EIGEN)
        share = passed / fmax(estimated, OVERRUN * passed);
    share = share > 1 ? 1 : share;
    left = share > 0 ? passed * (1 - share) / share : NAN;
    if (course->step == LAPLACE_FACTORS)
        left += estimated;
    if (course->step == LAPLACE_FACTORS || course->step == LAPLACE_EIGEN)
        left += sample_seconds(course);
    if (course->step == LAPLACE_SAMPLES && !(share > 0))
        left = sample_seconds(course);
    return (bp_fit_progress){.step = (int)course->step + 1,
                             .steps = LAPLACE_STEPS,
                             .name = NAMES[course->step],
                             .share = share,
                             .left = left};
}

static void report(laplace_course *course, double share)
{
    const bp_fit_listener *listener = course->listener;
    bp_fit_progress progress = progress_of(course, share);

    if (listener && listener->update(listener->context, &progress))
        course->stopped = true;
    if (bp_signals_stop_asked())
        course->stopped = true;
}

bp_err laplace_course_stopped(void)
{
    return bp_stop_request_stopped("while a Laplace approximation was fitted");
}

bp_err laplace_course_report(laplace_course *course, double share)
{
    report(course, share);
    return course->stopped ? laplace_course_stopped() : BP_OK;
}

bool laplace_course_stop(void *context)
{
    laplace_course *course = context;

    report(course, 0);
    return course->stopped;
}
