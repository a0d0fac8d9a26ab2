/* Which of a fused launch's operations are in chains (chain.h), and launches on few elements, all of whose operations are chains or single rows. */
#include "engine/cpu/fused.h"

enum {
    /* Of so many elements, quotients by one number are products in the row function, and so quicker than in a chain of few elements. */
    QUOTIENTS = 64,
    /* Results that stay in registers; with fewer of them choosing the steps of a tile's chain takes as long as it saves. */
    STAY_LEAST = 3,
};

static const uint8_t chain_operations[OP_CODE_MAX] = {
    [OP_ADD] = CPU_CHAIN_ADD,       [OP_SUBTRACT] = CPU_CHAIN_SUBTRACT, [OP_MULTIPLY] = CPU_CHAIN_MULTIPLY,
    [OP_DIVIDE] = CPU_CHAIN_DIVIDE, [OP_MAXIMUM] = CPU_CHAIN_MAXIMUM,   [OP_MINIMUM] = CPU_CHAIN_MINIMUM,
    [OP_SQUARE] = CPU_CHAIN_SQUARE, [OP_NEGATIVE] = CPU_CHAIN_NEGATIVE, [OP_ABS] = CPU_CHAIN_ABS,
    [OP_SQRT] = CPU_CHAIN_SQRT,     [OP_RELU] = CPU_CHAIN_RELU,         [OP_RECIPROCAL] = CPU_CHAIN_RECIPROCAL,
};

/* And those that chains of tiles have as well. */
static const uint8_t tile_operations[OP_CODE_MAX] = {
#define TILE_OPERATION(NAME, name) [OP_##NAME] = CPU_CHAIN_##NAME,
    CPU_CHAIN_FUNCTIONS(TILE_OPERATION)};

/* Forms of a note, beside those of steps: the chain loads the first operand before, since it is not the result so far. And a bit: the result stays in a
 * register. */
enum { NOTE_LOADS_ELEMENTS = CPU_CHAIN_SELF + 1, NOTE_LOADS_ONE, NOTE_LOADS_SELF, NOTE_LOADS = NOTE_LOADS_ELEMENTS };
enum { NOTE_STAYS = 1 << 8 };

/* The name of an operation in chains of n elements, or of tiles; CPU_CHAIN_NONE: it is in none. */
static unsigned operation_chains(const struct fused_operation *operation, int64_t n, bool tiles) {
    unsigned dtype = operation->output.dtype, name = chain_operations[operation->opcode];
    name = name || !tiles ? name : tile_operations[operation->opcode];
    for (unsigned k = 0; k < operation->n_inputs; k++) {
        name = operation->inputs[k].dtype == dtype && operation->inputs[k].as == dtype ? name : CPU_CHAIN_NONE;
    }
    bool quotient = !tiles && n >= QUOTIENTS && operation->opcode == OP_DIVIDE && !operation->inputs[1].column;
    bool floats = dtype == DTYPE_F32 || (dtype == DTYPE_F64 && !tiles);
    return operation->output.column && floats && !quotient ? name : CPU_CHAIN_NONE;
}

/* Whether an input is what the operation before, of a chain, has for a result. */
static bool operand_follows(const struct fused_operand *input, const struct fused_operation *before) {
    const struct fused_operand *output = &before->output;
    bool same = input->in_slot ? output->in_slot && input->slot == output->slot
                               : !output->in_slot && input->data == output->data;
    return before->note && input->dtype == output->dtype && input->column && same;
}

/* What the operation's step in a chain is; 0: it can be in none. */
static uint16_t operation_note(const struct fused_launch *launch, uint32_t i, bool tiles) {
    static const struct fused_operation none;
    const struct fused_operation *operation = &launch->operations[i], *before = i ? operation - 1 : &none;
    const struct fused_operand *inputs = operation->inputs;
    unsigned name = operation_chains(operation, launch->columns, tiles), form;
    bool first = operand_follows(&inputs[0], before);
    bool second = operation->n_inputs == 2 && operand_follows(&inputs[1], before);
    if (!name) {
        return 0;
    }
    if (operation->n_inputs == 1 || (first && second)) {
        name = name == CPU_CHAIN_SQUARE ? CPU_CHAIN_MULTIPLY : name;
        form = first ? CPU_CHAIN_SELF : NOTE_LOADS_SELF;
    } else if (second) {
        form = inputs[0].column ? CPU_CHAIN_OF_ELEMENTS : CPU_CHAIN_OF_ONE;
    } else {
        form = inputs[1].column ? (first ? CPU_CHAIN_ELEMENTS : NOTE_LOADS_ELEMENTS)
                                : (first ? CPU_CHAIN_ONE : NOTE_LOADS_ONE);
    }
    return (uint16_t)CPU_CHAIN_WHAT(name, form);
}

static bool same_slot(const struct fused_operand *a, const struct fused_operand *b) {
    return a->in_slot && b->in_slot && a->slot == b->slot;
}

/* Whether only the next operation, of the same chain, reads operation i's result: it has it in a register. */
static bool operation_stays(const struct fused_launch *launch, uint32_t i, bool last) {
    const struct fused_operand *output = &launch->operations[i].output;
    bool stays = output->in_slot && output->slot < FUSED_SLOTS_MAX, written = false;
    for (uint32_t j = i + 1; j < launch->n && stays && !written; j++) {
        const struct fused_operation *other = &launch->operations[j];
        for (unsigned k = 0; k < other->n_inputs; k++) {
            stays &= !same_slot(&other->inputs[k], output) ||
                     (j == i + 1 && !last && operand_follows(&other->inputs[k], &launch->operations[i]));
        }
        written = same_slot(&other->output, output);
    }
    return stays;
}

/* Operations first … end - 1 have notes, and would be a chain of tiles: they keep them if enough results stay in registers. */
static void tiles_chain(struct fused_launch *launch, uint32_t first, uint32_t end) {
    unsigned stay = 0;
    for (uint32_t i = first; i < end; i++) {
        if (operation_stays(launch, i, i + 1 == end)) {
            launch->operations[i].note |= NOTE_STAYS;
            stay++;
        }
    }
    for (uint32_t i = first; i < end && stay < STAY_LEAST; i++) {
        launch->operations[i].note = 0;
    }
}

/* Notes of each operation that is in a chain what its step is; of others, 0. Short rows would be less than a block of a tile's chain. */
void cpu_fused_ready(const struct device *device, struct fused_launch *launch) {
    const struct cpu_kernels *kernels = ((const struct cpu *)device)->kernels;
    const bool tiles = !launch->plain || launch->columns > FUSED_TILE;
    if (tiles ? !*kernels->chain_tile || launch->columns < CPU_CHAIN_BLOCK : !kernels->chain[0]) {
        return;
    }
    for (uint32_t i = 0; i < launch->n; i++) {
        launch->operations[i].note = operation_note(launch, i, tiles);
    }
    for (uint32_t i = 0, end; i < launch->n && tiles; i = end + 1) {
        for (end = i; end < launch->n && launch->operations[end].note; end++) {
        }
        tiles_chain(launch, i, end);
    }
}

static inline cpu_chain_function *chain_of(const struct cpu_kernels *kernels, const struct fused_operation *operation) {
    return operation->note ? kernels->chain[operation->output.dtype == DTYPE_F64] : NULL;
}

bool fused_note_stays(uint16_t note) {
    return note & NOTE_STAYS;
}

bool fused_note_loads(uint16_t note, uint8_t *what) {
    unsigned form = CPU_CHAIN_FORM(note);
    bool loads = form >= NOTE_LOADS;
    form = form == NOTE_LOADS_SELF ? CPU_CHAIN_SELF : loads ? form - NOTE_LOADS : form;
    *what = (uint8_t)CPU_CHAIN_WHAT(note % NOTE_STAYS / CPU_CHAIN_WHAT(1, 0), form);
    return loads;
}

uint8_t fused_load(const struct fused_operand *input) {
    return CPU_CHAIN_WHAT(CPU_CHAIN_LOAD, input->column ? CPU_CHAIN_ELEMENTS : CPU_CHAIN_ONE);
}

/* Adds the steps of an operation, one or two. Returns the place of the next one. */
static inline struct cpu_chain_step *chain_add(struct cpu_chain_step *step, const struct fused_operation *operation) {
    const void *first = operation->inputs[0].data, *second = operation->inputs[1].data;
    uint8_t what;
    if (fused_note_loads(operation->note, &what)) {
        step->with = first;
        step->what = fused_load(&operation->inputs[0]);
        step->out = NULL;
        step++;
    }
    step->with = CPU_CHAIN_FORM(what) >= CPU_CHAIN_OF_ELEMENTS ? first : second;
    step->what = what;
    step->out = operation->output.data;
    return step + 1;
}

/* ---- few elements ---- */

/* An operation that is in no chain, on n elements. */
static void plain_operation(const struct fused_operation *operation, int64_t n) {
    uint64_t parameters[2];
    struct cpu_row run = {.n = n, .data = {operation->output.data}, .stride = {1}};
    for (unsigned k = 0; k < operation->n_inputs; k++) {
        run.data[1 + k] = operation->inputs[k].data;
        run.stride[1 + k] = operation->inputs[k].column;
    }
    for (unsigned p = 0; p < operation->n_floats; p++) {
        parameters[p] = cpu_parameter(operation->floats[p], operation->inputs[0].as);
        run.data[1 + operation->n_inputs + p] = (char *)&parameters[p];
        run.stride[1 + operation->n_inputs + p] = 0;
    }
    ((cpu_row_function *)operation->kernel)(&run);
}

void fused_few(const struct cpu_kernels *kernels, const struct fused_launch *launch) {
    struct cpu_chain_step steps[2 * FUSED_OPERATIONS_MAX], *next;
    const struct fused_operation *operation = launch->operations, *end = operation + launch->n;
    while (operation < end) {
        cpu_chain_function *chain = chain_of(kernels, operation);
        if (!chain) {
            plain_operation(operation++, launch->columns);
            continue;
        }
        const unsigned dtype = operation->output.dtype;
        next = steps;
        do {
            next = chain_add(next, operation++);
        } while (operation < end && operation->note && operation->output.dtype == dtype);
        chain(launch->columns, steps, (unsigned)(next - steps));
    }
}
