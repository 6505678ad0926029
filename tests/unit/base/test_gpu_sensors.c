/* test_gpu_sensors.c - sensors of a GPU by a library that stands in for NVML; and what there is
 * without one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/system/gpu_sensors.h"
#include "runtime/report/resources/gpu_use.h"

static const char bus[] = "00000000:65:00.0";

static void sensors_are_read(void **state)
{
    struct dp_gpu_reading r;
    const char *why_not;
    struct dp_gpu_sensors *sensors = dp_gpu_sensors_open(DP_FAKE_NVML, bus, &why_not);
    char text[128];
    (void)state;

    assert_non_null(sensors);
    dp_gpu_sensors_read(sensors, &r);
    assert_float_equal(r.utilisation, 0.5, 1e-6);
    dp_gpu_sensors_read(sensors, &r);
    assert_float_equal(r.utilisation, 0.6, 1e-6);
    assert_float_equal(r.clock_mhz, 1980, 1e-3);
    assert_float_equal(r.watts, 350.5, 1e-3);
    assert_true(isnan(r.joules)); /* that library counts none */
    assert_true(r.memory == (int64_t)3 << 30);
    dp_gpu_throttle_text(r.throttles, text, sizeof(text));
    assert_string_equal(text, "power limit, temperature");
    dp_gpu_sensors_close(sensors);
    dp_gpu_sensors_close(NULL);
    dp_gpu_throttle_text(-1, text, sizeof(text));
    assert_string_equal(text, "");
}

static void without_a_library_a_driver_or_the_gpu_it_says_why(void **state)
{
    const char *why_not;
    (void)state;

    assert_null(dp_gpu_sensors_open("libnone-of-that-name.so", bus, &why_not));
    assert_string_equal(why_not, "libnone-of-that-name.so does not open");
    assert_null(dp_gpu_sensors_open("libm.so.6", bus, &why_not));
    assert_non_null(strstr(why_not, "NVML has no nvml"));
    assert_null(dp_gpu_sensors_open(DP_FAKE_NVML, "00000000:01:00.0", &why_not));
    assert_non_null(strstr(why_not, "does not know the GPU at 00000000:01:00.0"));
    assert_int_equal(setenv("FAKE_NVML", "off", 1), 0);
    assert_null(dp_gpu_sensors_open(DP_FAKE_NVML, bus, &why_not));
    assert_string_equal(why_not, "NVML does not start: error 9");
    assert_int_equal(unsetenv("FAKE_NVML"), 0);
}

static struct dp_gpu_reading reading(double utilisation, double watts, double joules)
{
    return (struct dp_gpu_reading){utilisation, 1500.0, watts, joules, 1000, 0};
}

static void readings_are_means_and_energy_is_summed(void **state)
{
    struct dp_gpu_use use = {0};
    struct dp_gpu_reading r = reading(0.5, 100.0, 1000.0);
    (void)state;

    assert_true(isnan(dp_gpu_use_utilisation(&use)));
    dp_gpu_use_add(&use, &r, 1000000000);
    r = reading(0.9, 300.0, 1250.0);
    r.throttles = 0x20;
    dp_gpu_use_add(&use, &r, 2000000000);
    assert_float_equal(dp_gpu_use_utilisation(&use), 0.7, 1e-6);
    assert_float_equal(dp_gpu_use_watts(&use), 200.0, 1e-3);
    assert_float_equal(dp_gpu_use_mhz(&use), 1500.0, 1e-3);
    assert_float_equal(dp_gpu_use_joules(&use), 250.0, 1e-3);
    assert_true(use.throttled == 1 && use.throttles == 0x20 && use.memory == 1000);
    /* What the GPU used in a pause does not count. */
    dp_gpu_use_pause(&use);
    r = reading((double)NAN, 300.0, 5000.0);
    dp_gpu_use_add(&use, &r, 9000000000);
    assert_float_equal(dp_gpu_use_joules(&use), 250.0, 1e-3);
    assert_float_equal(dp_gpu_use_utilisation(&use), 0.7, 1e-6);
}

static void energy_is_power_times_time_where_no_counter_counts(void **state)
{
    static const double counters[] = {(double)NAN, 0.0,
                                      7000.0}; /* none, and two that stand still */
    (void)state;

    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        const struct dp_gpu_reading r = reading(0.7, 50.0, counters[i]);
        struct dp_gpu_use use = {0};
        dp_gpu_use_add(&use, &r, 9000000000);
        assert_true(isnan(dp_gpu_use_joules(&use)));
        dp_gpu_use_add(&use, &r, 11000000000);
        assert_float_equal(dp_gpu_use_joules(&use), 100.0, 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sensors_are_read),
        cmocka_unit_test(without_a_library_a_driver_or_the_gpu_it_says_why),
        cmocka_unit_test(readings_are_means_and_energy_is_summed),
        cmocka_unit_test(energy_is_power_times_time_where_no_counter_counts),
    };
    return cmocka_run_group_tests_name("GPU sensors", tests, NULL, NULL);
}
