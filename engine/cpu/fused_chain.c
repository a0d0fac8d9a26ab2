/* Which of a fused launch's operations are in chains (chain.h), and launches on few elements, all of whose operations are chains or single rows. */
#include "engine/cpu/fused.h"

/* Of so many elements, quotients by one number are products in the row function, and so quicker than in a chain. */
enum { QUOTIENTS = 64 };

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

/* Forms of a note, beside those of steps: the chain loads the first operand before, since it is not the result so far. */
enum { NOTE_LOADS_ELEMENTS = CPU_CHAIN_SELF + 1, NOTE_LOADS_ONE, NOTE_LOADS_SELF, NOTE_LOADS = NOTE_LOADS_ELEMENTS };

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

bool fused_follows(const struct fused_operand *input, const struct fused_operation *before) {
    const struct fused_operand *output = &before->output;
    bool same = input->in_slot ? output->in_slot && input->slot == output->slot
                               : !output->in_slot && input->data == output->data;
    return before->note && input->dtype == output->dtype && input->column && same;
}

/* Notes of each operation that a chain can have what its step is; of others, 0. Short rows would be less than a block of a tile's chain. */
void cpu_fused_ready(const struct device *device, struct fused_launch *launch) {
    static const struct fused_operation none;
    const struct cpu_kernels *kernels = ((const struct cpu *)device)->kernels;
    const bool few = launch->plain && launch->columns <= FUSED_TILE;
    const bool chains =
        few ? kernels->chain[0] != NULL : *kernels->chain_tile != NULL && launch->columns >= CPU_CHAIN_BLOCK;
    for (uint32_t i = 0; i < launch->n && chains; i++) {
        struct fused_operation *operation = &launch->operations[i];
        const struct fused_operation *before = i ? operation - 1 : &none;
        const struct fused_operand *inputs = operation->inputs;
        unsigned name = operation_chains(operation, launch->columns, !few), form;
        if (!name) {
            continue;
        }
        bool first = fused_follows(&inputs[0], before);
        bool second = operation->n_inputs == 2 && fused_follows(&inputs[1], before);
        if (operation->n_inputs == 1 || (first && second)) {
            name = name == CPU_CHAIN_SQUARE ? CPU_CHAIN_MULTIPLY : name;
            form = first ? CPU_CHAIN_SELF : NOTE_LOADS_SELF;
        } else if (second) {
            form = inputs[0].column ? CPU_CHAIN_OF_ELEMENTS : CPU_CHAIN_OF_ONE;
        } else {
            form = inputs[1].column ? (first ? CPU_CHAIN_ELEMENTS : NOTE_LOADS_ELEMENTS)
                                    : (first ? CPU_CHAIN_ONE : NOTE_LOADS_ONE);
        }
        operation->note = (uint8_t)CPU_CHAIN_WHAT(name, form);
    }
}

static inline cpu_chain_function *chain_of(const struct cpu_kernels *kernels, const struct fused_operation *operation) {
    return operation->note ? kernels->chain[operation->output.dtype == DTYPE_F64] : NULL;
}

bool fused_note_loads(uint8_t note, uint8_t *what) {
    unsigned form = CPU_CHAIN_FORM(note);
    bool loads = form >= NOTE_LOADS;
    form = form == NOTE_LOADS_SELF ? CPU_CHAIN_SELF : loads ? form - NOTE_LOADS : form;
    *what = (uint8_t)CPU_CHAIN_WHAT(note / CPU_CHAIN_WHAT(1, 0), form);
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
