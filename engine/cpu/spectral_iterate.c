/* Sweeps along the diagonals until what is beside the main one is nothing; they are collected, and applied to the vectors. */
#include <math.h>

#include "engine/cpu/spectral.h"
#include "engine/cpu/sweep.h"

enum { SWEEPS_EACH = 60 }; /* allowed for each value; 2 are usual */
/* Rotations of a part without vectors, and multiplications of a part that applies rotations. */
static const int64_t rotations_most = 100000;
static const double rotate_work = 4e6;

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
static void collect_sweeps(const struct place *place) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    struct spectral_state *state = state_of(place);
    struct spectral_sweeps *sweeps = &state->sets[state->collecting];
    for (int64_t done = 0; sweeps->count < SWEEPS_MOST && done < rotations_most;) {
        if (!find_part(place)) {
            state->iterating = false;
            return;
        }
        if (++state->sweeps > SWEEPS_EACH * job->n) {
            state->most = (double)NAN; /* it has no values */
            return;
        }
        struct diagonals b = active_part(place);
        char *rotations[2] = {NULL, NULL};
        for (int side = 0; side < 2 && plan->vectors; side++) {
            rotations[side] =
                (char *)part(place, plan->rotations_at[state->collecting][side]) + 2 * sweeps->rotations * job->part;
            struct cpu_sweep *sweep =
                (struct cpu_sweep *)part(place, plan->sweeps_at[state->collecting][side]) + sweeps->count;
            *sweep = (struct cpu_sweep){state->upwards ? state->high : state->low, b.n - 1, b.step, rotations[side]};
        }
        if (is_svd(job)) {
            sweep_general(job->wide, &b, rotations[state->upwards ? RIGHT : LEFT],
                          rotations[state->upwards ? LEFT : RIGHT]);
        } else {
            sweep_symmetric(job->wide, &b, rotations[LEFT]);
        }
        done += b.n;
        sweeps->rotations += plan->vectors ? b.n - 1 : 0;
        sweeps->count += plan->vectors;
    }
}

/* The blocks of vectors, and how many of them a part turns. */
static int64_t blocks_of(const struct place *place, int64_t *each) {
    const struct job *job = place->job;
    const struct spectral_state *state = state_of(place);
    int64_t blocks = divided_up(job->n, job->spectral.rows);
    double work = (double)state->sets[!state->collecting].rotations * (double)job->spectral.rows * 4;
    *each = work > 0 && rotate_work / work < (double)blocks ? (int64_t)(rotate_work / work) + 1 : blocks;
    return is_svd(job) ? 2 * blocks : blocks;
}

/* Applies the set of sweeps that is complete to some blocks of vectors. */
static void apply_sweeps(const struct place *place, int64_t some) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    const struct cpu_kernels *kernels = job->base.cpu->kernels;
    cpu_rotate_function *rotate = job->wide ? kernels->rotate_f64 : kernels->rotate_f32;
    const struct spectral_state *state = state_of(place);
    int64_t each, all = blocks_of(place, &each), blocks = divided_up(job->n, plan->rows);
    for (int64_t block = some * each; block < least((some + 1) * each, all); block++) {
        int side = block < blocks ? LEFT : RIGHT;
        rotate(spectral_block(place, side, block - (side == LEFT ? 0 : blocks)),
               part(place, plan->sweeps_at[!state->collecting][side]), state->sets[!state->collecting].count);
    }
}

static void iterate_begin(const struct place *place) {
    const struct job *job = place->job;
    struct spectral_state *state = state_of(place);
    const double *values = part(place, job->spectral.values_at), *beside = part(place, job->spectral.beside_at);
    for (int64_t i = 0; i < job->n; i++) {
        state->norm = fmax(state->norm, fabs(values[i]));
        state->norm = i + 1 < job->n ? fmax(state->norm, fabs(beside[i])) : state->norm;
    }
    state->iterating = state->norm > 0;
    state->norm = state->iterating ? state->norm : 1;
}

/* Part 0 collects sweeps, while the other parts apply those that were collected in the rounds before. */
bool spectral_iterate(const struct place *place, int64_t index) {
    struct spectral_state *state = state_of(place);
    (void)index;
    if (place->part > 0) {
        apply_sweeps(place, place->part - 1);
    } else if (isnan(state->most)) {
        return spectral_write_nan(place);
    } else if (state->norm == 0) { /* the first time */
        iterate_begin(place);
    } else if (state->iterating) {
        collect_sweeps(place);
    }
    return true;
}

int64_t spectral_iterate_again(const struct place *place, int64_t index) {
    struct spectral_state *state = state_of(place);
    const struct spectral_sweeps *collected = &state->sets[state->collecting];
    (void)index;
    state->sets[!state->collecting] = (struct spectral_sweeps){0}; /* they have been applied */
    if (isnan(state->most)) {
        return 1;
    }
    if (collected->count == 0 || (state->iterating && collected->count < SWEEPS_MOST)) {
        return state->iterating ? 1 : 0;
    }
    state->collecting = !state->collecting;
    int64_t each, all = blocks_of(place, &each);
    return 1 + divided_up(all, each);
}
