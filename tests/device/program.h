/* Random programs: many small operations on a pool of tensors, each done by the device and by the reference. Results
 * that are not determined bit for bit are fetched and adopted at once; all others are left to the queue, and compared
 * now and then and at the end. */
#pragma once

#include "tests/device/suite.h"

enum { PROGRAM_SLOTS = 40 };

struct program {
    struct suite *suite;
    unsigned streams; /* operations go to 0 … streams-1 at random; they must be open */
    bool exact_only;  /* leaves out what must be adopted, so that the queue grows deep */
    int check_percent;
    struct sample slots[PROGRAM_SLOTS];
};

void program_run(struct program *program, int steps);
