/* Eigenvalues of symmetric matrices, and singular values.
 *
 * A matrix is scaled by a power of two. LAPACK reduces it in panels to a tridiagonal matrix, or, from its triangle if it is tall, to a
 * bidiagonal one, by reflections from the left and the right. The products of these reflections are the first vectors. Then sweeps of
 * plane rotations make the diagonal: implicit QR iteration with Wilkinson's shift, and Golub's and Kahan's with Demmel's and
 * Kahan's sweep without a shift where the diagonal has zeros (SIAM J. Sci. Stat. Comput. 11, 1990). Both compute in f64, on the diagonals alone.
 * Some sweeps are collected, and then applied to the vectors, some rows at a time, which lie packed so that they stay in the cache
 * meanwhile (after Van Zee, van de Geijn, Quintana-Ortí: "Restructuring the Tridiagonal and Bidiagonal QR Algorithms", 2014).
 *
 * A sweep runs towards the end of its part with the smaller elements, where values come out first. What runs upwards is the mirror image of
 * what runs downwards: for a bidiagonal matrix that is the mirror image of the transpose, so left and right are exchanged. */
#include "engine/cpu/spectral.h"

enum {
    LARGE_BYTES = 64 << 20, /* of a larger matrix LAPACK's panel of two columns may take 50 ms and more */
    PIECE_BYTES = 32 << 20, /* of it are multiplied by a vector in a step, at memory's rate */
};

/* Columns of a panel. For each column LAPACK multiplies the whole rest of the matrix by a vector, at memory's rate, and for a general matrix its
 * transpose, too; so a multiplication counts for 16, or for 64. */
static int64_t panel_extent(const struct job *job) {
    if (job->spectral.large) {
        return PANEL_MOST;
    }
    double n = (double)job->n, wanted = STEP_WORK / ((is_svd(job) ? 64 : 16) * n * n);
    int64_t panel = wanted < 2 ? 2 : wanted < PANEL_MOST ? (int64_t)wanted : PANEL_MOST;
    return least(panel, job->n);
}

void spectral_init(struct job *job) {
    struct spectral_plan *plan = &job->spectral;
    int opcode = job->launch->opcode;
    if (opcode != OP_EIGH && opcode != OP_EIGVALSH && !is_svd(job)) {
        return;
    }
    double n = (double)job->n, each = job->is_complex ? 4 : 1;
    plan->large = n * n * (double)job->size > LARGE_BYTES;
    plan->piece = PIECE_BYTES / job->size;
    plan->updated = (int64_t)(STEP_WORK / (each * 2 * PANEL_MOST));
    plan->vectors = opcode == OP_EIGH || opcode == OP_SVD;
    plan->panel = panel_extent(job);
    plan->panels = plan->panel ? divided_up(job->n, plan->panel) : 0;
    plan->reflected = plan->large ? PANEL_MOST : step_extent(4 * n * n, job->n, PANEL_MOST);
    plan->made = plan->large ? step_extent(each * 4 * n * PANEL_MOST, job->n, INT_MAX / 8 * 8) : job->n;
    plan->rows = CPU_ROTATE_BYTES / job->size;
    if (plan->vectors) {
        const struct operand *left =
            opcode == OP_SVD && job->across ? launch_further(job->launch, 2) : &job->launch->output;
        job->b_rows = job->m;
        job->r = opcode == OP_EIGH ? job->n : left->shape[job->across ? 1 : 2];
    }
}

/* The products of reflections. */
static int64_t make_steps(const struct job *job) {
    const struct spectral_plan *plan = &job->spectral;
    return divided_up(job->n, plan->reflected) * divided_up(job->n, plan->made);
}

static void phases_right(struct job *job, int64_t copies) {
    job_phase(job, spectral_identity, copies);
    job_phase(job, spectral_make_right, make_steps(job));
    job_phase(job, spectral_pack_right, copies);
}

static void phases_left(struct job *job, int64_t copies) {
    job_phase(job, spectral_identity, copies);
    job_phase(job, is_svd(job) ? spectral_make_left : spectral_make_symmetric, make_steps(job));
    job_phase(job, spectral_pack_left, copies);
}

static void phase_reduce(struct job *job) {
    const struct spectral_plan *plan = &job->spectral;
    spectral_step *symmetric = plan->large ? spectral_reduce_symmetric_large : spectral_reduce_symmetric;
    spectral_step *general = plan->large ? spectral_reduce_general_large : spectral_reduce_general;
    if (plan->panels > 0) {
        job_phase(job, is_svd(job) ? general : symmetric, plan->panels);
        job->phases[job->n_phases - 1].again = plan->large ? spectral_reduce_again : NULL;
    }
}

void spectral_phases(struct job *job) {
    const struct spectral_plan *plan = &job->spectral;
    int64_t all = copy_steps(job->m, job->n), copies = copy_steps(job->n, job->n);
    bool svd = is_svd(job), tall = job->m > job->n;
    if (job->n == 0 && job->r == 0) {
        return;
    }
    job_phase(job, svd ? decompose_gather : spectral_gather_symmetric, all);
    if (all > 0) {
        job_phase(job, spectral_begin, 1);
        job_phase(job, spectral_measure, all);
        job->phases[job->n_phases - 1].again = spectral_measure_again;
        job_phase(job, spectral_scale, all);
    }
    if (tall) {
        decompose_qr_phases(job);
        job_phase(job, spectral_take_triangle, copies);
    }
    phase_reduce(job);
    if (plan->vectors && job->n > 0) {
        phases_left(job, copies);
        if (svd) {
            phases_right(job, copies);
        }
    }
    if (job->n > 0) {
        job_phase(job, spectral_iterate, 1);
        job->phases[job->n_phases - 1].again = spectral_iterate_again;
        job_phase(job, spectral_write_values, 1);
    }
    if (job->launch->opcode == OP_EIGH) {
        job_phase(job, spectral_write_eigenvectors, copies);
    } else if (job->launch->opcode == OP_SVD) {
        job_phase(job, spectral_write_right, copies);
        if (!tall) {
            job_phase(job, spectral_write_left, copies);
            return;
        }
        int64_t b = copy_steps(job->b_rows, job->r);
        job_phase(job, spectral_begin_left, b);
        job_phase(job, spectral_fill_left, copies);
        job_phase(job, spectral_reflect_left, job->blocks * job->strips);
        job_phase(job, spectral_scatter_left,
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
    plan->values_at = plan->scratch_at + rounded(2 * PANEL_MOST * job->size);
    plan->beside_at = plan->values_at + numbers;
    plan->order_at = plan->beside_at + numbers;
    from = plan->order_at + numbers;
    for (int side = 0; side < 2; side++) {
        plan->tau_at[side] = from;
        plan->panel_at[side] = plan->tau_at[side] + column;
        from = plan->panel_at[side] + rounded(n * plan->panel * job->size);
        if (!plan->vectors) {
            continue;
        }
        plan->packed_at[side] = from;
        plan->rotations_at[side] = from + divided_up(n, plan->rows) * n * CPU_ROTATE_BYTES;
        plan->sweeps_at[side] = plan->rotations_at[side] + rounded(2 * SWEEPS_MOST * n * job->size);
        from = plan->sweeps_at[side] + rounded(SWEEPS_MOST * (int64_t)sizeof(struct cpu_sweep));
    }
    return from;
}
