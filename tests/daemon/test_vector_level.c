/* The operator chooses the vector level of CPU devices. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

static struct daemon tensord;

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(vector_level, .fini = stop, .timeout = 120);

Test(vector_level, the_one_that_is_in_use_is_listed) {
    struct client client;
    td_device_info info;
    size_t count;
    daemon_start(&tensord,
                 &(struct daemon_options){.environment = (const char *const[]){"TENSORD_CPU_LEVEL=v2", NULL}});
    client_open(&client, tensord.url, "cpu:0");
    cr_assert(!td_devices(client.connection, &info, 1, &count), "%s", td_last_error()->message);
    cr_expect_str_eq(info.capability, "sse4.2");
    client_expect(client_ramp(client.device, 2, 5), (float[]){5, 6}, 2);
    client_close(&client);
}

Test(vector_level, a_word_that_is_none_is_told_as_the_devices_fault) {
    struct daemon_options options = {.flags = (const char *const[]){"--quarantine-after", "1", NULL},
                                     .environment = (const char *const[]){"TENSORD_CPU_LEVEL=v9", NULL}};
    int ended;
    cr_assert(daemon_starts(&tensord, &options, &ended), "the front serves status");
    Tensord__Status *status = status_get(tensord.url);
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    cr_expect_str_eq(device->device->state, "quarantined");
    cr_expect(strstr(device->last_fault, "TENSORD_CPU_LEVEL is \"v9\", which is not one of "), "%s",
              device->last_fault);
    status_free(status);
}
