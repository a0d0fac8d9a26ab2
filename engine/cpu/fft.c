/* Fourier transforms along an axis.
 *
 * A line whose length suits it is transformed by itself in the first-level cache (rows_fft_line.c). Of others, some lines are transformed together in a
 * block in the cache (rows_fft.c, rows_fft_passes.c). A long line, or one of few, is taken as a matrix, row by row: its
 * columns are transformed and multiplied by roots of unity, then its rows, and the results are those of the line, column by column.
 * So any length has blocks that are shared out among threads, and between which the job can be left. Lengths with a large prime factor are
 * convolutions (engine/device/fft.h): two transforms of another length. A block's steps follow from the shapes alone, and so do the results. */
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/fft_plan.h"

enum {
    WHOLE_MOST = 4096,     /* numbers of a line in a block */
    FEW_LINES = 4,         /* fewer are taken as matrices, */
    MATRIX_LEAST = 256,    /* from so many numbers on */
    LINE_BYTES = 1 << 16,  /* of a line that is transformed by itself */
    LINES_BATCH = 1 << 14, /* numbers of such lines that are a batch */
    GROUP = 1 << 20,       /* numbers of the lines that are on their way together */
    PIECE = 1 << 15,       /* numbers of blocks between two looks whether to stop */
    CHIRP_BATCH = 1 << 10, /* numbers of the chirp that are computed between two looks */
    ROUNDS_MOST = 7,
    UNFOLD_PIECE = 64, /* of a real transform, elements that are in the first-level cache together, twice */
    /* A load waits for an earlier store whose address has the same last 12 bits: so parts and places begin with others. */
    PLACE_ALIGNMENT = 4096,
    PLACE_OFFSET = 1024,
};

enum way { WAY_CHIRP, WAY_WHOLE, WAY_COLUMNS, WAY_ROWS };
/* What is transformed: lines; the filter, of which there is one; lines times the chirp, whose transform times the filter's is then
 * transformed back. */
enum purpose { FOR_RESULT, FOR_FILTER, FOR_FILTERED, FOR_UNFILTERED };

struct round {
    enum way way;
    enum purpose purpose;
};

struct job {
    struct cpu_job base;
    const struct launch *launch;
    const struct cpu_fft *functions;
    struct fft_plan plan;
    char *workspace;
    struct round rounds[ROUNDS_MOST];
    int n_rounds, prepared; /* the first rounds are run once, the others for each group of lines */
    int round;
    int64_t line; /* the first one of the group */
};

/* ---- the plan ---- */

static int64_t place(struct fft_plan *plan, int64_t bytes) {
    int64_t at = plan->bytes;
    plan->bytes += (bytes + 63) / 64 * 64;
    return at;
}

/* The divisor that is next to the root, from below. */
static int64_t middle_divisor(int64_t n) {
    int64_t divisor = (int64_t)sqrt((double)n) + 1;
    while (divisor > 1 && (n % divisor != 0 || divisor > n / divisor)) {
        divisor--;
    }
    return divisor;
}

static bool fits_whole(int64_t numbers, int64_t lines) {
    return numbers <= WHOLE_MOST && (lines >= FEW_LINES || numbers < MATRIX_LEAST);
}

/* Eights in place of fours and twos, which need not be in the cache as often. */
static void length_widen(struct fft_length *length) {
    int twos = 0, radices = 0;
    uint8_t odd[FFT_RADICES_MOST];
    int n_odd = 0;
    for (int i = 0; i < length->radices; i++) {
        const uint8_t radix = length->radix[i];
        twos += radix == 4 ? 2 : radix == 2;
        if (radix % 2 != 0) {
            odd[n_odd++] = radix;
        }
    }
    for (; twos > 0; radices++) {
        const int bits = twos == 4 || twos == 2 ? 2 : twos < 2 ? 1 : 3;
        length->radix[radices] = (uint8_t)(1 << bits);
        twos -= bits;
    }
    memcpy(length->radix + radices, odd, (size_t)n_odd);
    length->radices = radices + n_odd;
}

/* Whether lines of so many numbers, which lie together and are all there, can be transformed by themselves. */
static bool fits_line(const struct fft_plan *plan, int64_t numbers) {
    const struct fft_request *request = &plan->request;
    const int64_t whole = request->in == FFT_HERMITIAN ? request->n / 2 + 1 : request->n;
    return request->inner == 1 && request->n_in == whole && numbers % (CPU_FFT_LANES * CPU_FFT_LANES) == 0 &&
           numbers * plan->size <= LINE_BYTES;
}

static void plan_lengths(struct fft_plan *plan, bool eights) {
    const struct fft_request *request = &plan->request;
    struct fft_length all;
    plan->chirped = !fft_factor(request->n, &all);
    plan->numbers = plan->chirped ? fft_room(2 * request->n - 1) : request->n;
    plan->paired = request->halved && !plan->chirped && request->n % 2 == 0 && request->n >= 4 &&
                   (fits_whole(request->n / 2, plan->lines) || fits_line(plan, request->n / 2));
    if (plan->paired) {
        plan->numbers /= 2;
    }
    plan->lined = !plan->chirped && fits_line(plan, plan->numbers) && (plan->paired || !request->halved);
    plan->cut = !plan->lined && !fits_whole(plan->numbers, plan->lines);
    int64_t rows = plan->cut     ? middle_divisor(plan->numbers)
                   : plan->lined ? CPU_FFT_LANES * middle_divisor(plan->numbers / CPU_FFT_LANES / CPU_FFT_LANES)
                                 : plan->numbers;
    fft_factor(rows, &plan->columns);
    fft_factor(plan->numbers / rows, &plan->rows);
    if (eights) {
        length_widen(&plan->columns);
        length_widen(&plan->rows);
    }
}

static const struct cpu_fft *functions_of(const struct fft_plan *plan, const struct cpu *cpu) {
    return plan->request.wide ? cpu->kernels->fft_f64 : cpu->kernels->fft_f32;
}

static void plan_make(struct fft_plan *plan, const struct launch *launch, const struct cpu *cpu) {
    *plan = (struct fft_plan){.request = fft_request_make(launch)};
    const struct fft_request *request = &plan->request;
    plan->size = request->wide ? 16 : 8;
    plan->lines = request->outer * request->inner;
    plan_lengths(plan, functions_of(plan, cpu)->eights);
    int64_t longest = plan->columns.n > plan->rows.n ? plan->columns.n : plan->rows.n;
    plan->group = plan->lined ? plan->lines : GROUP / plan->numbers; /* such lines take no room in the workspace */
    plan->group = plan->group < 1 ? 1 : plan->group < plan->lines ? plan->group : plan->lines;
    plan->column_roots_at = place(plan, plan->columns.n * plan->size);
    plan->row_roots_at = place(plan, plan->rows.n * plan->size);
    plan->column_groups_at = place(plan, fft_groups(&plan->columns) * (int64_t)sizeof(int32_t));
    plan->row_groups_at = place(plan, fft_groups(&plan->rows) * (int64_t)sizeof(int32_t));
    plan->pair_roots_at = place(plan, plan->paired ? (plan->numbers + 1) * plan->size : 0);
    plan->places_at = place(plan, plan->paired ? plan->numbers * (int64_t)sizeof(int32_t) : 0);
    plan->high_at = place(plan, plan->cut ? plan->columns.n * 16 : 0);
    plan->low_at = place(plan, plan->cut ? plan->rows.n * 16 : 0);
    plan->chirp_at = place(plan, plan->chirped ? request->n * plan->size : 0);
    plan->filter_at = place(plan, plan->chirped ? plan->numbers * plan->size : 0);
    plan->middle_at = place(plan, plan->cut ? plan->group * plan->numbers * plan->size : 0);
    plan->spread_at = place(plan, plan->chirped ? plan->group * plan->numbers * plan->size : 0);
    plan->turns_at = place(plan, plan->lined ? plan->numbers * plan->size : 0);
    plan->place_bytes = CPU_FFT_LANES * (longest + 1) * plan->size / 2;
    if (plan->lined) {
        plan->place_bytes = cpu_fft_line_work(plan->numbers) * plan->size / 8; /* of four places */
    }
    plan->place_bytes = (plan->place_bytes + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT + PLACE_OFFSET;
    plan->blocks_at = place(plan, 4 * plan->place_bytes * cpu->team.threads);
}

/* ---- where numbers come from and go to ---- */

/* The numbers of lanes on their way: lane v is a whole line, a column or a row. `first` is the number of the first of them in the group, or on
 * the line `line` of the group. */
struct lanes {
    enum way way;
    int64_t n, line, first;
};

/* Lane by lane: the line, and the index of its first element there. */
static void lines_index(const struct fft_plan *plan, const struct lanes *lanes, bool store, struct cpu_fft_lines *out) {
    out->lanes = lanes->n;
    out->step = lanes->way == WAY_COLUMNS ? plan->rows.n : lanes->way == WAY_ROWS && store ? plan->columns.n : 1;
    for (int64_t v = 0; v < lanes->n; v++) {
        int64_t own = lanes->first + v;
        out->first[v] = lanes->way == WAY_WHOLE ? 0 : lanes->way == WAY_ROWS && !store ? own * plan->rows.n : own;
    }
}

/* Lines in the workspace, one after another. */
static void lines_inside(const struct fft_plan *plan, const struct lanes *lanes, bool store, char *memory,
                         struct cpu_fft_lines *out) {
    lines_index(plan, lanes, store, out);
    out->stride = 1;
    out->limit = out->n = plan->numbers;
    out->beside = lanes->way == WAY_COLUMNS || (lanes->way == WAY_ROWS && store);
    for (int64_t v = 0; v < lanes->n; v++) {
        int64_t line = lanes->way == WAY_WHOLE ? lanes->first + v : lanes->line;
        out->base[v] = memory + line * plan->numbers * plan->size;
    }
}

/* Lines of the tensor, which has `extent` elements of `size` bytes on each. */
static void lines_of_tensor(const struct job *job, const struct lanes *lanes, bool store, struct cpu_fft_lines *out) {
    const struct fft_plan *plan = &job->plan;
    const struct fft_request *request = &plan->request;
    const struct operand *operand = store ? &job->launch->output : &job->launch->inputs[0];
    int64_t size = (int64_t)dtype_size((enum dtype)operand->dtype), extent = operand->shape[1], inner = request->inner;
    lines_index(plan, lanes, store, out);
    out->stride = inner;
    out->limit = store ? request->n_out : request->n_in;
    out->n = request->n;
    int64_t begin = job->line + (lanes->way == WAY_WHOLE ? lanes->first : lanes->line);
    out->beside = lanes->way == WAY_WHOLE ? begin % inner + lanes->n <= inner : inner == 1 && out->step > 1;
    for (int64_t v = 0; v < lanes->n; v++) {
        int64_t line = lanes->way == WAY_WHOLE ? begin + v : begin;
        out->base[v] = (char *)operand->data + (line / inner * extent * inner + line % inner) * size;
    }
}

/* Whether pairs of real numbers are in memory as complex numbers are, all of them whole. */
static bool pairs_lie_together(const struct cpu_fft_lines *lines) {
    return lines->stride == 1 && !lines->beside && lines->limit % 2 == 0;
}

/* Whether the first or the last pass can go to these lines itself: complex numbers beside each other, in full lanes, none of them left out. */
static bool lines_are_end(const struct cpu_fft_lines *lines, const struct fft_length *length, int64_t size,
                          struct cpu_fft_end *end) {
    const int64_t last = lines->first[lines->lanes - 1] + (length->n - 1) * lines->step;
    if (!lines->beside || lines->lanes < CPU_FFT_LANES || length->radices < 2 || last >= lines->limit) {
        return false;
    }
    *end = (struct cpu_fft_end){.pairs = true,
                                .re = lines->base[0] + lines->first[0] * lines->stride * size,
                                .apart = 2 * lines->step * lines->stride,
                                .re_factor = 1,
                                .im_factor = 1};
    return true;
}

static bool lanes_read_there(const struct job *job, enum purpose purpose, const struct lanes *lanes,
                             const struct fft_length *length, struct cpu_fft_end *from) {
    const struct fft_request *request = &job->plan.request;
    struct cpu_fft_lines lines;
    if (purpose != FOR_RESULT || lanes->way == WAY_ROWS || request->in != FFT_COMPLEX) {
        return false;
    }
    lines_of_tensor(job, lanes, false, &lines);
    if (!lines_are_end(&lines, length, job->plan.size, from)) {
        return false;
    }
    from->im_factor = request->swap ? -1 : 1;
    return true;
}

static bool lanes_written_there(const struct job *job, enum purpose purpose, const struct lanes *lanes,
                                const struct fft_length *length, struct cpu_fft_end *to) {
    const struct fft_request *request = &job->plan.request;
    struct cpu_fft_lines lines;
    if (purpose != FOR_RESULT || lanes->way == WAY_COLUMNS || request->out != FFT_COMPLEX || job->plan.paired) {
        return false;
    }
    lines_of_tensor(job, lanes, true, &lines);
    if (!lines_are_end(&lines, length, job->plan.size, to)) {
        return false;
    }
    to->re_factor = request->scale;
    to->im_factor = request->swap ? -request->scale : request->scale;
    return true;
}

/* Numbers into place 0 of the block. */
static void lanes_load(const struct job *job, enum purpose purpose, const struct lanes *lanes, int64_t n,
                       const struct cpu_fft_block *block) {
    const struct fft_plan *plan = &job->plan;
    const struct fft_request *request = &plan->request;
    struct cpu_fft_lines lines;
    if (lanes->way == WAY_ROWS || purpose == FOR_FILTER || purpose == FOR_UNFILTERED) {
        int64_t at = lanes->way == WAY_ROWS  ? plan->middle_at
                     : purpose == FOR_FILTER ? plan->filter_at
                                             : plan->spread_at;
        lines_inside(plan, lanes, false, job->workspace + at, &lines);
        job->functions->load(&lines, FFT_COMPLEX, 1, n, block->re[0], block->im[0]);
        return;
    }
    lines_of_tensor(job, lanes, false, &lines);
    if (plan->paired && request->in == FFT_REAL && pairs_lie_together(&lines)) {
        lines.limit /= 2;
        job->functions->load(&lines, FFT_COMPLEX, 1, n, block->re[0], block->im[0]);
    } else if (plan->paired && request->in == FFT_REAL) {
        /* Even elements are real parts, odd ones imaginary parts; the other place is free. */
        lines.step = 2;
        job->functions->load(&lines, FFT_REAL, 1, n, block->re[0], block->re[1]);
        for (int64_t v = 0; v < lanes->n; v++) {
            lines.first[v] = 1;
        }
        job->functions->load(&lines, FFT_REAL, 1, n, block->im[0], block->re[1]);
    } else if (plan->paired) {
        job->functions->load(&lines, FFT_HERMITIAN, 1, n + 1, block->re[1], block->im[1]);
        job->functions->fold(n, lanes->n, job->workspace + plan->pair_roots_at, block->re[1], block->im[1],
                             block->re[0], block->im[0]);
    } else {
        job->functions->load(&lines, request->in, request->swap ? -1 : 1, n, block->re[0], block->im[0]);
        if (purpose == FOR_FILTERED) {
            lines.limit = lines.n; /* of a Hermitian line more than is in memory */
            job->functions->multiply(&lines, job->workspace + plan->chirp_at, n, block->re[0], block->im[0]);
        }
    }
}

/* Half of the transform of n pairs of real numbers, from both of its ends. */
static void half_store(const struct job *job, const struct cpu_fft_lines *lines, int64_t n,
                       const struct cpu_fft_block *block) {
    const struct fft_plan *plan = &job->plan;
    const double scale = plan->request.scale / 2;
    const char *places = job->workspace + plan->places_at, *roots = job->workspace + plan->pair_roots_at;
    char *re = block->re[1], *im = block->im[1];
    for (int64_t begin = 0; begin <= n / 2; begin += UNFOLD_PIECE) {
        const int64_t left = n / 2 + 1 - begin, count = left < UNFOLD_PIECE ? left : UNFOLD_PIECE;
        const int64_t bytes = count * lines->lanes * plan->size / 2;
        job->functions->unfold(n, begin, begin + count, lines->lanes, (const int32_t *)(const void *)places, roots,
                               block->re[0], block->im[0], re, im);
        job->functions->store(lines, FFT_COMPLEX, begin, count, scale, scale, re, im);
        job->functions->store(lines, FFT_COMPLEX, n + 1 - begin - count, count, scale, scale, re + bytes, im + bytes);
    }
}

/* Numbers that are pairs of real ones. */
static void pairs_store(const struct job *job, struct cpu_fft_lines *lines, int64_t n,
                        const struct cpu_fft_block *block, bool at) {
    const double scale = job->plan.request.scale;
    if (pairs_lie_together(lines)) {
        lines->limit /= 2;
        job->functions->store(lines, FFT_COMPLEX, 0, n, scale, scale, block->im[at], block->re[at]);
        return;
    }
    lines->step = 2; /* parts are swapped */
    job->functions->store(lines, FFT_REAL, 0, n, scale, 0, block->im[at], block->re[at]);
    for (int64_t v = 0; v < lines->lanes; v++) {
        lines->first[v] = 1;
    }
    job->functions->store(lines, FFT_REAL, 0, n, scale, 0, block->re[at], block->im[at]);
}

static void lanes_store(const struct job *job, enum purpose purpose, const struct lanes *lanes, int64_t n,
                        const struct cpu_fft_block *block, bool at) {
    const struct fft_plan *plan = &job->plan;
    const struct cpu_fft *functions = job->functions;
    struct cpu_fft_lines lines;
    double scale = plan->request.scale;
    void *re = block->re[at], *im = block->im[at];
    if (lanes->way == WAY_COLUMNS) {
        lines_inside(plan, lanes, true, job->workspace + plan->middle_at, &lines);
        functions->twiddle((const double *)(const void *)(job->workspace + plan->high_at),
                           (const double *)(const void *)(job->workspace + plan->low_at), n, plan->rows.n, lanes->first,
                           &lines, re, im);
    } else if (purpose == FOR_FILTER) {
        lines_inside(plan, lanes, true, job->workspace + plan->filter_at, &lines);
        functions->store(&lines, FFT_COMPLEX, 0, n, 1, 1, re, im);
    } else if (purpose == FOR_FILTERED) {
        lines_inside(plan, lanes, true, job->workspace + plan->spread_at, &lines);
        functions->multiply(&lines, job->workspace + plan->filter_at, n, re, im);
        functions->store(&lines, FFT_COMPLEX, 0, n, 1, 1, im, re);
    } else if (purpose == FOR_UNFILTERED) {
        lines_of_tensor(job, lanes, true, &lines);
        functions->multiply(&lines, job->workspace + plan->chirp_at, n, im, re); /* parts are swapped */
        scale /= (double)plan->numbers;
        functions->store(&lines, plan->request.out, 0, n, scale, plan->request.swap ? -scale : scale, im, re);
    } else {
        lines_of_tensor(job, lanes, true, &lines);
        if (plan->paired && plan->request.in == FFT_REAL) {
            half_store(job, &lines, n, block);
        } else if (plan->paired) {
            pairs_store(job, &lines, n, block, at);
        } else {
            functions->store(&lines, plan->request.out, 0, n, scale, plan->request.swap ? -scale : scale, re, im);
        }
    }
}

/* ---- rounds ---- */

static int64_t round_lines(const struct job *job, const struct round *round) {
    int64_t left = job->plan.lines - job->line;
    return round->purpose == FOR_FILTER ? 1 : left < job->plan.group ? left : job->plan.group;
}

/* Lanes that one line has, and batches of lanes in the round. A batch of columns or rows is of one line. */
static int64_t round_lanes(const struct job *job, const struct round *round) {
    return round->way == WAY_WHOLE     ? round_lines(job, round)
           : round->way == WAY_COLUMNS ? job->plan.rows.n
                                       : job->plan.columns.n;
}

/* Lanes of a batch: fewer lines that are transformed by themselves, if they are long, so that threads can share a few. */
static int64_t batch_lanes(const struct fft_plan *plan) {
    const int64_t some = LINES_BATCH / plan->numbers;
    return !plan->lined || some > CPU_FFT_LANES ? CPU_FFT_LANES : some;
}

static int64_t round_batches(const struct job *job, const struct round *round) {
    if (round->way == WAY_CHIRP) {
        return (job->plan.numbers + CHIRP_BATCH - 1) / CHIRP_BATCH;
    }
    const int64_t together = batch_lanes(&job->plan);
    int64_t each = (round_lanes(job, round) + together - 1) / together;
    return round->way == WAY_WHOLE ? each : each * round_lines(job, round);
}

/* Lines of a batch, each by itself. */
static void lines_run(const struct job *job, int64_t first, char *memory) {
    const struct fft_plan *plan = &job->plan;
    const struct fft_request *request = &plan->request;
    const char *tables = job->workspace;
    const int64_t left = plan->lines - first, most = batch_lanes(plan);
    const struct operand *x = &job->launch->inputs[0], *y = &job->launch->output;
    const int64_t x_bytes = x->shape[1] * (int64_t)dtype_size((enum dtype)x->dtype);
    const int64_t y_bytes = y->shape[1] * (int64_t)dtype_size((enum dtype)y->dtype);
    const struct cpu_fft_line line = {
        .n = plan->numbers,
        .columns = plan->columns,
        .rows = plan->rows,
        .column_roots = tables + plan->column_roots_at,
        .row_roots = tables + plan->row_roots_at,
        .column_places = (const int32_t *)(const void *)(tables + plan->column_groups_at),
        .row_places = (const int32_t *)(const void *)(tables + plan->row_groups_at),
        .turns = tables + plan->turns_at,
        .pair_roots = plan->paired ? tables + plan->pair_roots_at : NULL,
        .in = request->in,
        .out = request->out,
        .swap = request->swap,
        .scale = request->scale,
        .x_bytes = x_bytes,
        .y_bytes = y_bytes,
    };
    job->functions->lines(&line, left < most ? left : most, (const char *)x->data + first * x_bytes,
                          (char *)y->data + first * y_bytes, memory);
}

static void batch_run(const struct job *job, const struct round *round, int64_t batch, char *memory) {
    const struct fft_plan *plan = &job->plan;
    if (round->way == WAY_CHIRP) {
        int64_t begin = batch * CHIRP_BATCH, end = begin + CHIRP_BATCH;
        fft_chirp_fill(plan, job->workspace, begin, end < plan->numbers ? end : plan->numbers);
        return;
    }
    if (plan->lined) {
        lines_run(job, batch * batch_lanes(plan), memory);
        return;
    }
    const bool rows = round->way == WAY_ROWS;
    const struct fft_length *length = rows ? &plan->rows : &plan->columns;
    int64_t all = round_lanes(job, round), each = (all + CPU_FFT_LANES - 1) / CPU_FFT_LANES;
    struct lanes lanes = {
        .way = round->way, .line = round->way == WAY_WHOLE ? 0 : batch / each, .first = batch % each * CPU_FFT_LANES};
    lanes.n = all - lanes.first < CPU_FFT_LANES ? all - lanes.first : CPU_FFT_LANES;
    int64_t part = plan->place_bytes;
    struct cpu_fft_block block = {.re = {memory, memory + part}, .im = {memory + 2 * part, memory + 3 * part}};
    struct cpu_fft_end from, to;
    const bool read = lanes_read_there(job, round->purpose, &lanes, length, &from);
    const bool written = lanes_written_there(job, round->purpose, &lanes, length, &to);
    if (!read) {
        lanes_load(job, round->purpose, &lanes, length->n, &block);
    }
    bool moved = length->radices > 0 && !(plan->paired && plan->request.in == FFT_REAL);
    if (!written) {
        to = (struct cpu_fft_end){.re = block.re[1], .im = block.im[1], .apart = lanes.n};
    }
    if (length->radices > 0) {
        const char *groups = job->workspace + (rows ? plan->row_groups_at : plan->column_groups_at);
        job->functions->transform(length, job->workspace + (rows ? plan->row_roots_at : plan->column_roots_at),
                                  (const int32_t *)(const void *)groups, lanes.n, block.re[0], block.im[0],
                                  read ? &from : NULL, moved ? &to : NULL);
    }
    if (!written) {
        lanes_store(job, round->purpose, &lanes, length->n, &block, moved);
    }
}

static bool fft_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    const struct round *round = &job->rounds[job->round];
    int64_t batches = round_batches(job, round), since = 0;
    int64_t begin = cpu_part_begin(batches, lane->part, base->parts);
    int64_t end = cpu_part_begin(batches, lane->part + 1, base->parts);
    int64_t cost = round->way == WAY_CHIRP  ? 8 * CHIRP_BATCH
                   : job->plan.lined        ? job->plan.numbers * batch_lanes(&job->plan)
                   : round->way == WAY_ROWS ? job->plan.rows.n * CPU_FFT_LANES
                                            : job->plan.columns.n * CPU_FFT_LANES;
    char *memory = job->workspace + job->plan.blocks_at + lane->number * 4 * job->plan.place_bytes;
    for (int64_t batch = begin + lane->position; batch < end; batch++) {
        batch_run(job, round, batch, memory);
        lane->position++;
        since += cost;
        if (since >= PIECE && batch + 1 < end) {
            since = 0;
            if (cpu_job_stops(base)) {
                return false;
            }
        }
    }
    return true;
}

/* The next round, of this group of lines or of the next one. */
static bool fft_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    if (++job->round == job->n_rounds) {
        job->line += job->plan.group;
        job->round = job->prepared;
    }
    return job->line < job->plan.lines;
}

static void round_add(struct job *job, enum way way, enum purpose purpose) {
    job->rounds[job->n_rounds++] = (struct round){way, purpose};
}

static void rounds_add(struct job *job, enum purpose purpose) {
    round_add(job, job->plan.cut ? WAY_COLUMNS : WAY_WHOLE, purpose);
    if (job->plan.cut) {
        round_add(job, WAY_ROWS, purpose);
    }
}

static uint64_t fft_workspace(struct device *device, const struct launch *launch) {
    struct fft_plan plan;
    plan_make(&plan, launch, (const struct cpu *)device);
    return (uint64_t)plan.bytes;
}

static int fft_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job = {
        .base = {.cpu = cpu, .run = fft_part, .again = fft_again}, .launch = launch, .workspace = launch->workspace};
    (void)fault;
    plan_make(&job.plan, launch, cpu);
    job.functions = functions_of(&job.plan, cpu);
    fft_tables_fill(&job.plan, job.workspace);
    if (job.plan.chirped) {
        round_add(&job, WAY_CHIRP, FOR_FILTER);
        rounds_add(&job, FOR_FILTER);
        job.prepared = job.n_rounds;
        rounds_add(&job, FOR_FILTERED);
        rounds_add(&job, FOR_UNFILTERED);
    } else {
        rounds_add(&job, FOR_RESULT);
    }
    /* A part has a block of its own, so there are no more parts than threads, in all rounds. */
    double work = (double)(job.plan.lines + 1) * (double)job.plan.numbers * (job.plan.chirped ? 256 : 64);
    unsigned parts = cpu_parts(cpu, work), threads = cpu->team.threads;
    job.base.parts = parts < threads ? parts : threads;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define FOURIER                                                                                                        \
    { {.workspace = fft_workspace}, fft_run }
const struct cpu_kernel cpu_kernel_fft = FOURIER;
const struct cpu_kernel cpu_kernel_ifft = FOURIER;
const struct cpu_kernel cpu_kernel_rfft = FOURIER;
const struct cpu_kernel cpu_kernel_irfft = FOURIER;
