/*
 * tested_device.h - the device that a test uses: CTest runs some tests once for each.
 */
#ifndef DP_TESTS_SUPPORT_TESTED_DEVICE_H
#define DP_TESTS_SUPPORT_TESTED_DEVICE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/algo_choices.h"
#include "kernels/device.h"

/* DP_TEST_DEVICE, or `otherwise` where it is not set. Skips the test if this machine has no such
 * device. */
static inline const char *tested_device_or(const char *otherwise)
{
    const char *name = getenv("DP_TEST_DEVICE"), *why_not = "it is not built in";
    const struct dp_plugin *plugin;

    if (name == NULL) {
        return otherwise;
    }
    plugin = dp_plugin_find(&dp_devices, name, strlen(name));
    if (plugin == NULL || !((const struct dp_device *)plugin)->available(&why_not)) {
        printf("skipped: device %s: %s\n", name, why_not);
        exit(77);
    }
    return name;
}

static inline const char *tested_device(void)
{
    return tested_device_or("cpu");
}

/* Whether the tested device's libraries are those of tests/cuda_on_host. */
static inline bool libraries_on_host(void)
{
    const struct dp_device *device = NULL;
    char machine[DP_ALGO_CHOICE_MACHINE] = "";

    if (dp_device_find(tested_device_or("ref"), &device) == DP_OK && device->machine != NULL) {
        device->machine(machine, sizeof(machine));
    }
    return strncmp(machine, "the host", strlen("the host")) == 0;
}

#endif
