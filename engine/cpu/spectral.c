/* Eigenvalues of symmetric matrices, and singular values.
 *
 * A matrix is scaled by a power of two. It is reduced in panels to a tridiagonal matrix, or, from its triangle if it is tall, to a
 * bidiagonal one, by reflections from the left and the right: by LAPACK, or a larger one in parts (spectral_large.c), which several threads
 * share. The products of these reflections are the first vectors. Then sweeps of plane rotations make the diagonal: implicit QR iteration
 * with Wilkinson's shift, and Golub's and Kahan's with Demmel's and Kahan's sweep without a shift where the diagonal has zeros (SIAM J. Sci.
 * Stat. Comput. 11, 1990). Both compute in f64, on the diagonals alone. Some sweeps are collected by one thread, while others apply those
 * that were collected before to the vectors, some rows at a time, which lie packed so that they stay in the cache meanwhile (after Van Zee,
 * van de Geijn, Quintana-Ortí: "Restructuring the Tridiagonal and Bidiagonal QR Algorithms", 2014).
 *
 * A sweep runs towards the end of its part with the smaller elements, where values come out first. What runs upwards is the mirror image of
 * what runs downwards: for a bidiagonal matrix that is the mirror image of the transpose, so left and right are exchanged. */
#include "engine/cpu/spectral.h"

enum {
    PARTS_LEAST =
        384, /* rows of a matrix that is reduced in parts; LAPACK takes some milliseconds for a panel of a smaller one */
    PRODUCT_BYTES = 64 << 10, /* of it that are worth a thread to multiply them by a vector */
    MADE_PARTS = 8,           /* strips of columns of the vectors, which threads make at the same time */
};

/* Columns to which a block's reflections are applied in a step. */
static int64_t made_extent(const struct job *job) {
    double each = (job->is_complex ? 4 : 1) * 2 * (double)job->n * (double)job->spectral.reflected;
    return least(step_extent(each, job->n, INT_MAX / 8 * 8), divided_up(job->n, MADE_PARTS * 16) * 16);
}

void spectral_init(struct job *job) {
    struct spectral_plan *plan = &job->spectral;
    int opcode = job->launch->opcode;
    if (opcode != OP_EIGH && opcode != OP_EIGVALSH && !is_svd(job)) {
        return;
    }
    double each = job->is_complex ? 4 : 1;
    plan->in_parts = job->n >= PARTS_LEAST;
    plan->product = PRODUCT_BYTES / job->size;
    plan->products_most = spectral_products(job, job->n * job->n);
    plan->updated = (int64_t)(STEP_WORK / (each * 2 * PANEL_MOST));
    plan->vectors = opcode == OP_EIGH || opcode == OP_SVD;
    plan->panel = least(PANEL_MOST, job->n);
    plan->panels = plan->panel ? divided_up(job->n, plan->panel) : 0;
    plan->rows = CPU_ROTATE_BYTES / job->size;
    if (plan->vectors) {
        const struct operand *left =
            opcode == OP_SVD && job->across ? launch_further(job->launch, 2) : &job->launch->output;
        job->b_rows = job->m;
        job->r = opcode == OP_EIGH ? job->n : left->shape[job->across ? 1 : 2];
    }
}

/* Steps that do not depend on each other. */
static void phase_apart(struct job *job, spectral_step *step, int64_t count) {
    job_phase_together(job, step, count, count);
}

static void phase_in_rounds(struct job *job, spectral_step *step, int64_t count, spectral_again *again) {
    job_phase(job, step, count);
    job->phases[job->n_phases - 1].again = again;
}

/* The product of the reflections of a side. */
static void phases_vectors(struct job *job, spectral_step *join, spectral_step *make, spectral_step *pack) {
    const struct spectral_plan *plan = &job->spectral;
    int64_t copies = copy_steps(job->n, job->n), blocks = divided_up(job->n, plan->reflected);
    int64_t strips = divided_up(job->n, plan->made);
    phase_apart(job, join, blocks);
    phase_apart(job, spectral_identity, copies);
    job_phase_together(job, make, blocks * strips, strips);
    phase_apart(job, pack, copies);
}

static void phase_reduce(struct job *job) {
    const struct spectral_plan *plan = &job->spectral;
    if (plan->panels > 0 && plan->in_parts) {
        phase_in_rounds(job, is_svd(job) ? spectral_reduce_general_large : spectral_reduce_symmetric_large,
                        plan->panels, is_svd(job) ? spectral_general_again : spectral_symmetric_again);
    } else {
        job_phase(job, is_svd(job) ? spectral_reduce_general : spectral_reduce_symmetric, plan->panels);
    }
}

void spectral_phases(struct job *job) {
    struct spectral_plan *plan = &job->spectral;
    int64_t all = copy_steps(job->m, job->n), copies = copy_steps(job->n, job->n);
    bool svd = is_svd(job), tall = job->m > job->n;
    if (job->n == 0 && job->r == 0) {
        return;
    }
    plan->reflected = least(REFLECTED_MOST, job->block);
    plan->made = made_extent(job);
    phase_apart(job, svd ? decompose_gather : spectral_gather_symmetric, all);
    if (all > 0) {
        job_phase(job, spectral_begin, 1);
        phase_in_rounds(job, spectral_measure, all, spectral_measure_again);
        phase_apart(job, spectral_scale, all);
    }
    if (tall) {
        decompose_qr_phases(job);
        phase_apart(job, spectral_take_triangle, copies);
    }
    phase_reduce(job);
    if (plan->vectors && job->n > 0) {
        phases_vectors(job, svd ? spectral_join_left : spectral_join_symmetric,
                       svd ? spectral_make_left : spectral_make_symmetric, spectral_pack_left);
        if (svd) {
            phases_vectors(job, spectral_join_right, spectral_make_right, spectral_pack_right);
        }
    }
    if (job->n > 0) {
        phase_in_rounds(job, spectral_iterate, 1, spectral_iterate_again);
        job_phase(job, spectral_write_values, 1);
    }
    if (job->launch->opcode == OP_EIGH) {
        phase_apart(job, spectral_write_eigenvectors, copies);
    } else if (job->launch->opcode == OP_SVD) {
        phase_apart(job, spectral_write_right, copies);
        if (!tall) {
            phase_apart(job, spectral_write_left, copies);
            return;
        }
        int64_t b = copy_steps(job->b_rows, job->r);
        phase_apart(job, spectral_begin_left, b);
        phase_apart(job, spectral_fill_left, copies);
        job_phase_together(job, spectral_reflect_left, job->blocks * job->strips, job->strips);
        phase_apart(job, spectral_scatter_left,
                    job->across ? b : copy_steps(job->launch->output.shape[2], job->launch->output.shape[1]));
    }
}

int64_t spectral_place(struct job *job, int64_t from) {
    struct spectral_plan *plan = &job->spectral;
    int64_t n = job->n, column = rounded(n * job->size), numbers = rounded(n * (int64_t)sizeof(double));
    if (plan->panel == 0) {
        return from;
    }
    plan->square_at = job->m > n ? from : 0; /* 0: it is a itself */
    from += job->m > n ? rounded(n * n * job->size) : 0;
    plan->state_at = from;
    plan->scratch_at = plan->state_at + rounded(sizeof(struct spectral_state));
    plan->values_at = plan->scratch_at + rounded(SCRATCHES * PANEL_MOST * job->size);
    plan->beside_at = plan->values_at + numbers;
    plan->order_at = plan->beside_at + numbers;
    plan->across_at = plan->order_at + numbers;
    plan->sums_at = plan->across_at + (is_svd(job) && plan->in_parts ? rounded(n * plan->panel * job->size) : 0);
    plan->joined_at = plan->sums_at + (plan->in_parts ? plan->products_most * column : 0);
    from = plan->joined_at;
    if (plan->vectors) {
        from += rounded(divided_up(n, plan->reflected) * plan->reflected * plan->reflected * job->size);
    }
    for (int side = 0; side < 2; side++) {
        plan->tau_at[side] = from;
        plan->panel_at[side] = plan->tau_at[side] + column;
        from = plan->panel_at[side] + rounded(n * plan->panel * job->size);
        plan->packed_at[side] = from;
        from += plan->vectors ? divided_up(n, plan->rows) * n * CPU_ROTATE_BYTES : 0;
        for (int set = 0; set < 2 && plan->vectors; set++) {
            plan->rotations_at[set][side] = from;
            plan->sweeps_at[set][side] = from + rounded(2 * SWEEPS_MOST * n * job->part);
            from = plan->sweeps_at[set][side] + rounded(SWEEPS_MOST * (int64_t)sizeof(struct cpu_sweep));
        }
    }
    return from;
}
