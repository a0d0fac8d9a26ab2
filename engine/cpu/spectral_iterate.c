/* Sweeps along the diagonals until what is beside the main one is nothing; they are collected, and applied to the vectors. */
#include <math.h>

#include "engine/cpu/spectral.h"
#include "engine/cpu/sweep.h"

enum { SWEEPS_EACH = 60 }; /* allowed for each value; 2 are usual */
/* Rotations of a step without vectors, and multiplications of a step that applies rotations. */
static const int64_t rotations_most = 100000;
static const double rotate_work = 5e7;

static struct diagonals active_part(const struct place *place) {
    const struct spectral_state *state = state_of(place);
    double *values = part(place, place->job->spectral.values_at), *beside = part(place, place->job->spectral.beside_at);
    int64_t n = state->high - state->low + 1;
    return state->upwards ? (struct diagonals){n, -1, values + state->high, beside + state->high - 1}
                          : (struct diagonals){n, 1, values + state->low, beside + state->low};
}

/* Whether the element beside the diagonal at i may be taken for 0. */
static bool negligible(const struct place *place, int64_t i) {
    const struct job *job = place->job;
    const double *values = part(place, job->spectral.values_at), *beside = part(place, job->spectral.beside_at);
    double epsilon = job->wide ? 0x1p-53 : 0x1p-30;
    double side = fabs(beside[i]);
    return side <= epsilon * (fabs(values[i]) + fabs(values[i + 1])) ||
           side <= 0x1p-10 * epsilon * state_of(place)->norm;
}

/* Finds the last part whose elements beside the diagonal all count; false: there is none, and the values are found. */
static bool find_part(const struct place *place) {
    const struct job *job = place->job;
    const double *values = part(place, job->spectral.values_at);
    double *beside = part(place, job->spectral.beside_at);
    struct spectral_state *state = state_of(place);
    int64_t end_before = state->low;
    while (state->high > 0 && negligible(place, state->high - 1)) {
        beside[--state->high] = 0;
    }
    if (state->high == 0) {
        return false;
    }
    for (state->low = state->high - 1; state->low > 0 && !negligible(place, state->low - 1);) {
        state->low--;
    }
    if (state->low > 0) {
        beside[state->low - 1] = 0;
    }
    if (state->high < end_before) { /* a new part; the direction of an old one stays */
        state->upwards = fabs(values[state->low]) < fabs(values[state->high]);
    }
    return true;
}

/* Collects sweeps, some of them at most. */
static bool collect_sweeps(const struct place *place) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    struct spectral_state *state = state_of(place);
    for (int64_t done = 0; state->collected < SWEEPS_MOST && done < rotations_most;) {
        if (!find_part(place)) {
            state->iterating = false;
            return true;
        }
        if (++state->sweeps > SWEEPS_EACH * job->n) {
            state->most = (double)NAN; /* it has no values */
            return true;
        }
        struct diagonals b = active_part(place);
        char *rotations[2] = {NULL, NULL};
        for (int side = 0; side < 2 && plan->vectors; side++) {
            rotations[side] = (char *)part(place, plan->rotations_at[side]) + 2 * state->rotations * job->part;
            struct cpu_sweep *sweep = (struct cpu_sweep *)part(place, plan->sweeps_at[side]) + state->collected;
            *sweep = (struct cpu_sweep){state->upwards ? state->high : state->low, b.n - 1, b.step, rotations[side]};
        }
        if (is_svd(job)) {
            sweep_general(job->wide, &b, rotations[state->upwards ? RIGHT : LEFT],
                          rotations[state->upwards ? LEFT : RIGHT]);
        } else {
            sweep_symmetric(job->wide, &b, rotations[LEFT]);
        }
        done += b.n;
        state->rotations += plan->vectors ? b.n - 1 : 0;
        state->collected += plan->vectors;
    }
    return true;
}

/* Applies what is collected to some blocks of vectors. */
static void apply_sweeps(const struct place *place) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    const struct cpu_kernels *kernels = job->base.cpu->kernels;
    cpu_rotate_function *rotate = job->wide ? kernels->rotate_f64 : kernels->rotate_f32;
    struct spectral_state *state = state_of(place);
    int64_t blocks = divided_up(job->n, plan->rows), all = is_svd(job) ? 2 * blocks : blocks;
    double each = (double)state->rotations * (double)plan->rows * 4, done = 0;
    for (; state->applied < all && (done == 0 || done + each <= rotate_work); done += each) {
        int side = state->applied < blocks ? LEFT : RIGHT;
        char *block = spectral_block(place, side, state->applied++ - (side == LEFT ? 0 : blocks));
        rotate(block, part(place, plan->sweeps_at[side]), state->collected);
    }
    if (state->applied == all) {
        state->collected = state->rotations = state->applied = 0;
    }
}

bool spectral_iterate(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct spectral_state *state = state_of(place);
    (void)index;
    if (isnan(state->most)) {
        return spectral_write_nan(place);
    }
    if (state->norm == 0) { /* the first time */
        const double *values = part(place, job->spectral.values_at), *beside = part(place, job->spectral.beside_at);
        for (int64_t i = 0; i < job->n; i++) {
            state->norm = fmax(state->norm, fabs(values[i]));
            state->norm = i + 1 < job->n ? fmax(state->norm, fabs(beside[i])) : state->norm;
        }
        state->iterating = state->norm > 0;
        state->norm = state->iterating ? state->norm : 1;
        return true;
    }
    if (state->collected == SWEEPS_MOST || (!state->iterating && state->collected > 0) || state->applied > 0) {
        apply_sweeps(place);
        return true;
    }
    return collect_sweeps(place);
}

bool spectral_iterate_again(const struct place *place) {
    const struct spectral_state *state = state_of(place);
    return state->iterating || state->collected > 0;
}
