/* Sessions for tensorctl top to show: `top_job URL DEVICE COUNT LABEL`. Session i, from 1, holds i MiB under the label and
 * has run i operations. Says "ready", and ends with its standard input. A session that ends before is told in a line. */
#include <stdio.h>
#include <stdlib.h>

#include "client/tensord.h"

enum { COUNT_MAX = 64 };

static int failed(void) {
    fprintf(stderr, "top_job: %s\n", td_last_error()->message);
    return 1;
}

static int job_begin(const char *url, const char *name, int i, const char *label, td_device **device) {
    td_connection *connection;
    if (td_connect(url, NULL, &connection) || td_device_open(connection, name, device))
        return failed();
    for (int n = 0; n < i; n++) {
        td_label(label);
        if (td_wait(td_full(*device, TD_U8, TD_SHAPE(1 << 20), n)))
            return failed();
    }
    return 0;
}

int main(int count, char **arguments) {
    td_device *devices[COUNT_MAX];
    int sessions = count == 5 ? atoi(arguments[3]) : 0;
    if (sessions < 1 || sessions > COUNT_MAX)
        return 2;
    for (int i = 0; i < sessions; i++)
        if (job_begin(arguments[1], arguments[2], i + 1, arguments[4], &devices[i]))
            return 1;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    for (int i = 0; i < sessions; i++)
        if (td_sync(devices[i]))
            printf("%d: %s\n", i + 1, td_last_error()->message);
    return 0;
}
