/* How long the owner thread may go on with its present task before other tasks have their turn. A loop whose length a client
 * decides calls budget_spent() at each step. When the time is over, it keeps the rest of its task for a later turn.
 *
 * A step stands for some 100 ns. The clock is looked at only once in some steps, so a call costs a subtraction. One thread. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { BUDGET_STEPS = 64 }; /* between two looks at the clock */

#define BUDGET_UNLIMITED UINT64_MAX

struct budget {
    uint64_t (*clock)(void); /* nanoseconds */
    /* Each look writes its time here, as a sign that the thread is alive however much it has to do; NULL: nowhere. */
    _Atomic uint64_t *alive;
    uint64_t now_ns; /* of the last look */
    uint64_t until_ns;
    uint64_t looks;
    int steps; /* left until the next look */
};

/* Looks at the clock now. True: the time is over. */
static inline bool budget_look(struct budget *budget) {
    budget->now_ns = budget->clock();
    budget->looks++;
    if (budget->alive)
        atomic_store_explicit(budget->alive, budget->now_ns, memory_order_relaxed);
    bool over = budget->now_ns >= budget->until_ns && budget->until_ns != BUDGET_UNLIMITED;
    budget->steps = over ? 0 : BUDGET_STEPS;
    return over;
}

/* Takes so many steps. True: the time is over. */
static inline bool budget_spent(struct budget *budget, int steps) {
    budget->steps -= steps;
    return budget->steps <= 0 && budget_look(budget);
}

/* The task may take `ns` from the last look on, which was a moment ago. */
static inline void budget_go_on(struct budget *budget, uint64_t ns) {
    budget->until_ns = budget->now_ns + ns;
    budget->steps = BUDGET_STEPS;
}

/* The task may take `ns` from now on; BUDGET_UNLIMITED: any time. */
static inline void budget_begin(struct budget *budget, uint64_t ns) {
    budget->until_ns = BUDGET_UNLIMITED;
    budget_look(budget);
    if (ns < BUDGET_UNLIMITED - budget->now_ns)
        budget->until_ns = budget->now_ns + ns;
}
