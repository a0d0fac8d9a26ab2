#!/usr/bin/env python3
"""Prints what is made of the descriptions of operations: generate.py KIND [--template FILE] FILE.toml… [--among FILE.toml…] >OUT

Kinds: table (operations.h: numbers, rows, attributes), rows (operations.c), header (the public functions in tensord.h),
functions (the client's functions), manual (tensord-operations.7.scd), contracts (for tensorctl ops), tolerances (for tests).
"""
import argparse
import re
import sys
import textwrap

import describe

NOTE = "/* Made by proto/ops/generate.py from the descriptions beside it. */"
WIDTH = 120


def comment(text, indent=""):
    """A C comment that fits the line, or several lines with a star before each."""
    text = text.replace("*/", "* /")
    if len(indent) + len(text) + 6 <= WIDTH:
        return f"{indent}/* {text} */"
    lines = textwrap.wrap(text, WIDTH - len(indent) - 3, break_long_words=False, break_on_hyphens=False)
    lines[-1] += " */"
    if len(indent) + 3 + len(lines[-1]) > WIDTH:
        *lines, last = lines
        lines += textwrap.wrap(last, WIDTH - len(indent) - 6, break_long_words=False, break_on_hyphens=False)
    return indent + "/* " + f"\n{indent} * ".join(lines)


def text(words):
    """A C string of any length, one literal for each line of source."""
    escaped = words.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?")
    parts = textwrap.wrap(escaped, 100, drop_whitespace=False, break_on_hyphens=False) or [""]
    return "\n        ".join(f'"{part}"' for part in parts)


def enums_of(files):
    return [enum for file in files for enum in file.enums.values()]


def sets_of(operations):
    """The structs of attributes, each with the operations that have it."""
    sets = {}
    for operation in operations:
        if operation.attributes:
            sets.setdefault(operation.struct, []).append(operation)
    return sets


# ---- operations.h ----


def print_struct(name, operations):
    operation = operations[0]
    print(comment("Attributes of " + ", ".join(each.name for each in operations) + "."))
    print(f"struct {name}_attributes {{")
    for each in operation.attributes:
        words = f" /* {each.contract} */" if each.contract else ""
        print(f"    {each.c_type} {each.name};{words}")
    print("};")
    print_read(name, operation)
    print_write(name, operation)


def read_scalar(each, ints, floats):
    if each.columns == "f":
        return f"in->floats[{floats}]"
    if each.type == "bool":
        return f"in->ints[{ints}] != 0"
    if each.c_type == "int64_t":
        return f"in->ints[{ints}]"
    return f"({each.c_type})in->ints[{ints}]"


def print_read(name, operation):
    print(f"static inline void {name}_attributes_read(const struct op_attributes *in, struct {name}_attributes *out) {{")
    ints = floats = 0
    for each in operation.scalars:
        if each.columns == "if":
            print(f"    out->{each.name}.i = in->ints[{ints}];")
            print(f"    out->{each.name}.f = in->floats[{floats}];")
        else:
            print(f"    out->{each.name} = {read_scalar(each, ints, floats)};")
        ints += "i" in each.columns
        floats += "f" in each.columns
    print_read_floats(operation)
    if operation.int_lists:
        print_read_lists(operation.int_lists, ints)
    print("}")


def behind(column, count):
    return f"in->{column} + {count}" if count else f"in->{column}"


def print_read_lists(lists, ints):
    """Lists come after all scalars; each but the last has its count before it."""
    at = behind("ints", ints)
    count = f"in->n_ints - {ints}" if ints else "in->n_ints"
    if len(lists) > 1:
        print(f"    const int64_t *next = {at};")
        for each in lists[:-1]:
            if each.type == "string":
                print(f"    out->{each.name} = (const char *)(next + 1);")
                print("    next += 1 + *next;")
                continue
            print(f"    out->{each.name}.count = (unsigned)*next++;")
            print(f"    out->{each.name}.values = next;")
            print(f"    next += out->{each.name}.count;")
        at, count = "next", "in->n_ints - (unsigned)(next - in->ints)"
    if lists[-1].type == "string":
        print(f"    out->{lists[-1].name} = (const char *){f'({at})' if '+' in at else at};")
        return
    print(f"    out->{lists[-1].name}.count = {count};")
    print(f"    out->{lists[-1].name}.values = {at};")


def print_read_floats(operation):
    for each in operation.lists:
        if each.type == "floats":
            print(f"    out->{each.name}.count = in->n_floats{f' - {operation.floats_min}' if operation.floats_min else ''};")
            print(f"    out->{each.name}.values = {behind('floats', operation.floats_min)};")


def print_write(name, operation):
    print(fold(f"static inline void {name}_attributes_write(const struct {name}_attributes *in, struct {packed(operation)} *out)",
               " {"))
    ints = floats = 0
    for each in operation.scalars:
        if each.columns == "if":
            print(f"    out->ints[{ints}] = in->{each.name}.i;")
            print(f"    out->floats[{floats}] = in->{each.name}.f;")
        elif each.columns == "f":
            print(f"    out->floats[{floats}] = in->{each.name};")
        else:
            cast = "(int32_t)" if each.c_type.startswith("enum") else "(int64_t)" if each.type == "seed" else ""
            print(f"    out->ints[{ints}] = {cast}in->{each.name};")
        ints += "i" in each.columns
        floats += "f" in each.columns
    print(f"    out->n_ints = {ints};")
    print(f"    out->n_floats = {floats};")
    for each in operation.lists:
        if each.type == "floats":
            print(f"    out->n_floats += op_floats_write(out->floats + out->n_floats, &in->{each.name});")
    for each in operation.int_lists:
        counted = each is not operation.int_lists[-1]
        if counted:
            print(f"    out->ints[out->n_ints++] = {list_ints(each)};")
        write, of = ("op_string_write", "") if each.type == "string" else ("op_ints_write", "&")
        print(f"    out->n_ints += {write}(out->ints + out->n_ints, {of}in->{each.name});")
    print("}")


def packed(operation):
    return "op_packed_long" if operation.is_long else "op_packed"


def list_ints(each):
    """How many integers the list has."""
    return f"op_string_ints(in->{each.name})" if each.type == "string" else f"in->{each.name}.count"


def print_list(operations):
    print(" \\\n".join(f'    X({each.id}, {each.number}, "{each.name}")' for each in sorted(operations, key=lambda o: o.number)))


def table(files):
    operations = describe.operations_of(files)
    print(NOTE)
    print("#pragma once\n")
    print("/* X(ID, number, \"name\"), by number. */")
    print("#define OP_LIST(X) \\")
    print_list(operations)
    print()
    print_others(operations, describe.families_of(files))
    print("\n/* X(rule), for each rule of shapes that a description names. */")
    print("#define OP_RULES(X) \\")
    print(" \\\n".join(f"    X({rule})" for rule in sorted({each.shape for each in operations})))
    print("\nenum opcode {\n    OP_INVALID = 0,")
    for each in sorted(operations, key=lambda o: o.number):
        print(f"    OP_{each.id} = {each.number},")
    print(f"    OP_CODE_MAX = {max(each.number for each in operations) + 1} /* one more than the highest */\n}};\n")
    for enum in enums_of(files):
        print(comment(enum.contract + " Wire values."))
        print(f"enum op_{enum.name} {{")
        for value in enum.values:
            print(f"    OP_{enum.name.upper()}_{value['name'].upper()} = {value['number']}, /* {value['contract']} */")
        print(f"    OP_{enum.name.upper()}_COUNT\n}};\n")
    print_formulas(operations)
    for name, of in sets_of(operations).items():
        print_struct(name, of)
        print()


def print_macro(words, name, rows, parameters="X"):
    print(comment(words))
    print(f"#define {name}({parameters}) \\")
    print(" \\\n".join(f"    X({', '.join(str(each) for each in row)})" for row in rows) + "\n")


def print_others(operations, families):
    """Lists of what has a definition by its name in each part that deals with operations: the linker finds one that is missing."""
    others = [each for each in operations if not each.file.formulas]
    kernels = [each for each in others if each.family not in ("free", "view", "kernel")]
    print_macro("X(ID, name): operations that are not made of a formula.", "OP_OTHERS", [(each.id, each.name) for each in others])
    print_macro("X(ID, name): of these, the ones that a backend answers for by their number: free and views are the engine's own, and clients bring their kernels.",
                "OP_KERNELS", [(each.id, each.name) for each in kernels])
    made = [(name.upper(), name) for name in families if name not in ("free", "kernel")]
    print_macro("X(FAMILY, name): families whose results follow from their operations: all but free and clients' kernels.", "OP_FAMILIES", made)
    print_macro("X(FAMILY, name): of these, the ones that are launched.", "OP_KERNEL_FAMILIES",
                [each for each in made if each[1] != "view"])
    print("/* How the engine binds an operation. Each family that is launched has one normal form of launch (engine/device/launch.h). */")
    print("enum op_family {\n    OP_FAMILY_NONE,")
    for name, family in families.items():
        if family.launch:
            print(comment(f"{family.what[0].upper()}{family.what[1:]}. Launch: {family.launch}", "    "))
            print(f"    OP_FAMILY_{name.upper()},")
        else:
            print(f"    OP_FAMILY_{name.upper()}, /* {family.what} */")
    print("};\n")


def print_formulas(operations):
    """From these lists each device makes its kernels, so that it has no table of its own."""
    operations = [each for each in operations if each.file.formulas]
    formulas = [(each.name, len(each.inputs), dtype, "bool" if each.dtype == "compared" else dtype)
                for each, dtype in describe.formulas_of(operations)]
    print_macro("X(ID, inputs, flop): elementwise operations.", "OP_ELEMENTWISE",
               [(each.id, len(each.inputs), each.flop) for each in operations])
    print_macro("X(name, inputs, dtype, dtype of the result): formula_<name>_<dtype>() of engine/device/formula.h.", "OP_FORMULAS",
               [row for row in formulas if row[2] not in describe.HALVES])
    print_macro("The same for dtypes that compute by the formula for f32.", "OP_FORMULAS_HALF",
               [row for row in formulas if row[2] in describe.HALVES])
    print_macro("X(ID, DTYPE, formula): which of them computes an operation in a dtype.", "OP_FORMULA_TABLE",
               [(each.id, dtype.upper(), name) for each in operations for dtype, name in each.formulas()])


# ---- operations.c ----


def mask(dtypes):
    return " | ".join(f"BIT({each.upper()})" for each in dtypes) or "0"


def print_attribute_row(each):
    values = f", .values = op_{each.type}_names, .n_values = OP_{each.type.upper()}_COUNT" if each.enum else ""
    kind = "ENUM" if each.enum else each.type.upper()
    print(f'    {{"{each.name}", OP_ATTRIBUTE_{kind}{values}}},')


def rows(files):
    operations = describe.operations_of(files)
    print(NOTE)
    print('#include "proto/ops/op_rules.h"\n')
    print(f'_Static_assert(OP_INPUTS_MAX == {describe.INPUTS_MAX}, "what contracts say");')
    print(f"_Static_assert(OP_PACKED_INTS == {describe.PACKED_INTS} && OP_PACKED_FLOATS == {describe.PACKED_FLOATS} &&")
    print(f'               OP_LIST_MAX == {describe.LIST_MAX["ints"]}, "what the generator reckons with");')
    print("#define BIT(name) (UINT32_C(1) << DTYPE_##name)")
    for name, of in describe.DTYPE_SETS.items():
        print(f"#define DTYPES_{name.upper().replace(' ', '_')} ({mask(of)})")
    print()
    for enum in enums_of(files):
        names = ", ".join(f'"{value["name"]}"' for value in enum.values)
        print(f"static const char *const op_{enum.name}_names[] = {{{names}}};\n")
    for each in operations:
        if len(each.outputs) > 1:
            print_outputs(each)
    for name, of in sets_of(operations).items():
        print(f"static const struct op_attribute {name}_rows[] = {{")
        for each in of[0].scalars + of[0].lists:
            print_attribute_row(each)
        print("};")
    print("\nconst struct op_info op_rows[OP_CODE_MAX] = {")
    for each in operations:
        print_row(each)
    print("};")


def print_outputs(each):
    rules = ", ".join(f"OP_DTYPE_{output.dtype.upper()}" for output in each.outputs[1:])
    print(f"static const enum op_dtype_rule {each.name}_further[] = {{{rules}}};\n")


def print_row(each):
    roles = {"integer": 0, "bool": 0}
    for i, given in enumerate(each.inputs):
        if given.dtypes:
            roles[given.dtypes] |= 1 << i
    print(f"    [OP_{each.id}] = {{")
    print(f'        .name = "{each.name}", .family = OP_FAMILY_{each.family.upper()}, .dtype = OP_DTYPE_{each.dtype.upper()},')
    print(f"        .dtypes = DTYPES_{each.dtypes.upper().replace(' ', '_')}, .shape = op_rule_{each.shape},")
    print(f"        .inputs_min = {each.inputs_min}, .inputs_max = {'OP_INPUTS_MAX' if each.variadic else len(each.inputs)}, .n_outputs = {len(each.outputs)},")
    print(f"        .work = OP_WORK_{each.work.upper()}, .flop = {each.flop}, .passes = {each.passes},")
    if len(each.outputs) > 1:
        print(f"        .further = {each.name}_further,")
    if each.outputs and each.outputs[0].variadic:
        print("        .outputs_vary = true,")
    if each.keeps:
        print(f"        .keeps = {' & '.join('DTYPES_' + name.upper().replace(' ', '_') for name in each.keeps)},")
    if any(roles.values()):
        print(f"        .index_inputs = {roles['integer']}, .bool_inputs = {roles['bool']},")
    if each.attributes:
        floats = "OP_VARIES" if any(a.type == "floats" for a in each.lists) else each.floats_min
        print(f"        .ints = {'OP_VARIES' if each.int_lists else each.ints_min}, .ints_min = {each.ints_min}, "
              f".floats = {floats}, .floats_min = {each.floats_min}, .dtype_at = {each.dtype_position},")
        print(f"        .attributes = {each.struct}_rows, .n_attributes = {len(each.attributes)},")
    print("    },")


# ---- the client's functions ----


def parameters(each):
    """Of the function in C, in the order of the description: (declaration, name of the parameter)."""
    given = []
    if not each.inputs:
        given.append("td_device *device")
    for tensor in each.inputs:
        given += [f"td_tensor *const *{tensor.name}", f"int {count_of(each, tensor)}"] if tensor.variadic else [f"td_tensor *{tensor.name}"]
    for attribute in each.attributes:
        if attribute.in_c:
            given.append(parameter(each, attribute))
    return given


def count_of(operation, given):
    """The parameter with a list's length: plain where there is one such list, else it says whose it is."""
    lists = [each for each in operation.attributes if each.is_list and each.type != "string" and each.in_c]
    lists += [each for each in operation.inputs if each.variadic]
    kinds = ["rank" if getattr(each, "type", "") == "shape" else "count" for each in lists]
    kind = kinds[lists.index(given)]
    return kind if kinds.count(kind) == 1 else f"n_{given.name}"


def parameter(operation, each):
    if each.type == "string":
        return f"const char *{each.name}"
    if each.is_list:
        return f"int {count_of(operation, each)}, const {'double' if each.type == 'floats' else 'int64_t'} *{each.name}"
    plain = {"int": "int64_t", "axis": "int", "bool": "int", "dtype": "td_dtype", "seed": "uint64_t", "float": "double"}
    return f"{plain.get(each.type, 'td_' + each.type)} {each.name}"


def prototype(each):
    """One output is what the function returns. Of several, each is written where a pointer says, and the code is returned."""
    if len(each.outputs) == 1:
        return f"td_tensor *td_{each.function}({', '.join(parameters(each))})"
    outputs = [f"td_tensor **{output.name}" for output in each.outputs]
    return f"int td_{each.function}({', '.join(parameters(each) + outputs)})"


def prototypes(each):
    return each.prototypes if each.function == "by hand" else [] if each.function == "none" else [prototype(each)]


def fold(declaration, end):
    """A declaration over as many lines as it needs, broken between parameters."""
    start, given = declaration[:declaration.index("(") + 1], declaration[declaration.index("(") + 1:-1]
    return fold_list(start, given.split(", "), ")" + end)


def fold_list(start, pieces, end):
    """Pieces with commas between them, in lines that begin below the first one."""
    lines, line = [], start
    for i, piece in enumerate(pieces):
        piece += ", " if i + 1 < len(pieces) else end
        if len(line) + len(piece.rstrip()) > WIDTH:
            lines.append(line.rstrip())
            line = " " * len(start)
        line += piece
    return "\n".join(lines + [line])


def member(operation, each):
    if each.is_list and each.type != "string":
        return f".{each.name} = {{(unsigned){count_of(operation, each)}, {each.name}}}"
    if each.type == "bool":
        return f".{each.name} = {each.name} != 0"
    if each.type in ("dtype",) or each.enum:
        return f".{each.name} = ({each.c_type}){each.name}"
    return f".{each.name} = {each.name}"


def print_function(each):
    print(fold(prototype(each), " {"))
    if len(each.outputs) > 1:
        print(f"    td_tensor **const outputs[] = {{{', '.join(output.name for output in each.outputs)}}};")
    for attribute in each.attributes:
        if attribute.is_list and attribute.in_c:
            print_list_check(each, attribute)
    entry = [f".opcode = OP_{each.id}"]
    if each.attributes:
        members = [member(each, a) for a in each.attributes if a.in_c]
        print(fold_list(f"    struct {each.struct}_attributes attributes = {{", members, "};"))
        print(f"    struct {packed(each)} packed;")
        print(f"    {each.struct}_attributes_write(&attributes, &packed);")
        entry += [".ints = packed.ints", ".n_ints = packed.n_ints"]
        if any(a.columns in ("f", "if", "d") for a in each.attributes):
            entry += [".floats = packed.floats", ".n_floats = packed.n_floats"]
    print_enqueue(each, entry)
    print("}\n")


def print_list_check(each, attribute):
    """A first input that is NULL is told before a list that cannot be one."""
    guard = f"{each.inputs[0].name} && " if each.inputs else ""
    count, name = attribute.name if attribute.type == "string" else count_of(each, attribute), attribute.name
    takes = {"shape": f"shape(OP_{each.id}, {count}, {name})", "axes": f"axes(OP_{each.id}, {count}, {name})",
             "string": f'string(OP_{each.id}, "{name}", {name})'}
    takes = takes.get(attribute.type, f'list(OP_{each.id}, "{name}", {attribute.most}, {count}, {name})')
    print(f"    if ({guard}!call_takes_{takes})")
    print(f"        return {refused(each)};")
    if guard:
        print(f"    if (!{each.inputs[0].name})")
        print(f"        {count} = " + ('"";' if attribute.type == "string" else "0;"))


def refused(each):
    return "NULL" if len(each.outputs) == 1 else f"call_none({len(each.outputs)}, outputs)"


def print_enqueue(each, entry):
    names = [given.name for given in each.inputs]
    if each.variadic:
        print(f"    if (!call_takes_inputs(OP_{each.id}, count, {names[0]}))")
        print(f"        return {refused(each)};")
        entry += [".n_inputs = (unsigned)count", f".inputs = {names[0]}"]
    elif names:
        optional = each.inputs[-1].optional
        count = f"{names[-1]} ? {len(names)} : {len(names) - 1}" if optional else str(len(names))
        print(f"    td_tensor *inputs[] = {{{', '.join(names)}}};")
        entry += [f".n_inputs = {count}", ".inputs = inputs"]
    print(fold_list("    struct batch_entry entry = {", entry, "};"))
    device = "NULL" if names else "device"
    if len(each.outputs) == 1:
        print(f"    return call_enqueue({device}, &entry);")
        return
    print(f"    return call_enqueue_several({device}, &entry, {len(each.outputs)}, outputs);")


def functions(files):
    print(NOTE)
    print('#include "client/lib/call.h"\n')
    for enum in enums_of(files):
        for value in enum.values:
            name = f"{enum.name.upper()}_{value['name'].upper()}"
            print(f'_Static_assert((int)TD_{name} == OP_{name}, "one number, two headers");')
        print()
    for each in describe.operations_of(files):
        if each.function not in ("by hand", "none"):
            print_function(each)


# ---- the public header ----


def print_public_enum(enum):
    print(comment(enum.contract))
    print(f"typedef enum td_{enum.name} {{")
    for i, value in enumerate(enum.values):
        comma = "," if i + 1 < len(enum.values) else ""
        print(f"    TD_{enum.name.upper()}_{value['name'].upper()} = {value['number']}{comma} /* {value['contract']} */")
    print(f"}} td_{enum.name};\n")


def header(files, template):
    before, after = open(template, encoding="utf-8").read().split("@OPERATIONS@\n")
    print(before, end="")
    for file in files:
        if all(each.function == "none" for each in file.operations):
            continue
        print(f"/* ---- {file.title.lower()} ----\n *")
        print("\n".join(textwrap.wrap(file.contract, WIDTH - 3, initial_indent=" * ", subsequent_indent=" * ",
                                      break_on_hyphens=False)) + " */\n")
        for enum in file.enums.values():
            print_public_enum(enum)
        for each in file.operations:
            if each.function != "none":
                several = " Returns 0, or an error's code with all results NULL." if len(each.outputs) > 1 else ""
                print(comment(each.contract + several))
                for line in prototypes(each):
                    print(fold("TD_API " + line, ";"))
        print()
    print(after, end="")


# ---- the manual page and tensorctl ops ----


def dtype_words(each):
    names = {"any": "all but the f8 formats", "every": "all", "number": "integers and floats",
             "stored number": "integers, floats and f8", "float": "floats"}
    return names.get(each.dtypes, each.dtypes)


def attribute_words(each):
    words = f"{each.name}: " + (" | ".join(v["name"] for v in each.enum.values) if each.enum else each.type)
    if each.default is not None:
        words += f", default {str(each.default).lower()}"
    return words + (f" ({each.contract})" if each.contract else "")


def input_words(each):
    kind = {"bool": "bool", "integer": "integers", None: ""}[each.dtypes]
    words = [kind] if kind else []
    words += [f"{int(not each.optional)} to {describe.INPUTS_MAX}"] if each.variadic else ["may be left out"] if each.optional else []
    return each.name + (f" ({', '.join(words)})" if words else "")


def result_words(each):
    """The dtypes of what an operation gives."""
    if len(each.outputs) == 1:
        return describe.DTYPE_RULES[each.dtype]
    return "; ".join(f"{output.name}: {describe.DTYPE_RULES[output.dtype]}" for output in each.outputs)


def cost_words(each):
    if each.work == "none":
        return "not known: it is the client's" if each.family == "kernel" else "nothing to compute"
    return f"{each.flop} flop for each {describe.WORKS[each.work]}"


def output_words(each):
    return f"{'Result' if len(each.outputs) == 1 else 'Results'}: {result_words(each)}"


def scdoc(words):
    return re.sub(r"([_*\\]|^[-|#\[\]])", r"\\\1", words)


def manual(files):
    print("tensord-operations(7)\n")
    print("# NAME\n\ntensord-operations - the operations that tensord runs\n")
    print("# DESCRIPTION\n")
    print("Each operation by its name on the wire, with its function in C, the inputs, the attributes, the dtypes that it")
    print("computes in and what its result has. *tensorctl ops* lists what the devices of a daemon have of them.\n")
    for file in files:
        print(f"# {file.title.upper()}\n\n{scdoc(file.contract)}\n")
        for each in file.operations:
            print(f"## {scdoc(each.name)}\n")
            for line in prototypes(each):
                print(f"\t*{scdoc(line)}*\n")
            print(scdoc(each.contract) + "\n")
            facts = [f"Inputs: {', '.join(input_words(i) for i in each.inputs)}."] if each.inputs else []
            if each.attributes:
                facts.append(f"Attributes: {'; '.join(attribute_words(a) for a in each.attributes)}.")
            facts.append(f"Dtypes: {dtype_words(each)}. {output_words(each)}.")
            facts.append(f"Cost: {cost_words(each)}. Since {each.since}.")
            print(scdoc(" ".join(facts)) + "\n")
    print("# SEE ALSO\n\n*tensord*(8), *tensorctl*(1)")


def contracts(files):
    print(NOTE)
    print('#include "client/tensorctl/tensorctl.h"\n')
    print("const struct operation_contract operation_contracts[] = {")
    for each in sorted(describe.operations_of(files), key=lambda o: o.number):
        print(f'    {{.name = "{each.name}", .number = {each.number}, .family = "{each.family}", .since = "{each.since}",')
        print(f"     .prototypes = {text('; '.join(prototypes(each)))},")
        print(f"     .inputs = {text('; '.join(input_words(i) for i in each.inputs))},")
        print(f"     .outputs = {text('; '.join(output.name for output in each.outputs))},")
        print(f"     .attributes = {text('; '.join(attribute_words(a) for a in each.attributes))},")
        print(f"     .dtypes = {text(dtype_words(each))}, .result = {text(result_words(each))},")
        print(f"     .cost = {text(cost_words(each))},")
        print(f"     .contract = {text(each.contract)}}},")
    print("};\nconst size_t operation_contracts_count = sizeof operation_contracts / sizeof *operation_contracts;")


# ---- tests ----


def tolerances(files):
    print(NOTE)
    print('#include "tests/device/tolerance.h"\n\n#include "proto/ops/op.h"\n')
    print("const struct tolerance tolerances[OP_CODE_MAX] = {")
    for each in describe.operations_of(files):
        given = each.tolerance
        ulps = ", ".join(str(given.get(dtype, 0)) for dtype in describe.FLOATS)
        print(f"    [OP_{each.id}] = {{.ulps = {{{ulps}}}, .accumulate = {given.get('accumulate', 0)}, "
              f".zero_signs = {str(given.get('zero_signs', True)).lower()}}},"
              + (f" /* {given['reason']} */" if given else ""))
    print("};")


def functions_called(files):
    """A program that does not link where the client library lacks a function that its header declares."""
    print(NOTE)
    print("#include <tensord.h>\n\n#include <stdio.h>\n")
    print("static const struct {\n    const char *name;\n    void (*function)(void);\n} functions[] = {")
    for each in sorted(describe.operations_of(files), key=lambda o: o.number):
        for line in prototypes(each):
            name = re.search(r"\b(td_\w+)\(", line).group(1)
            print(f'    {{"{name}", (void (*)(void)){name}}},')
    print("};\n\nint main(void) {\n    for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)")
    print('        printf("%s%s\\n", functions[i].name, functions[i].function ? "" : " is missing");')
    print("    return 0;\n}")


KINDS = {"table": table, "rows": rows, "header": header, "functions": functions, "manual": manual, "contracts": contracts,
         "tolerances": tolerances, "functions-called": functions_called}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--template")
    parser.add_argument("--among", nargs="*", default=[], help="more descriptions, of which nothing is printed")
    parser.add_argument("files", nargs="+")
    given = parser.parse_args()
    files = describe.read(given.files, given.among)
    sys.stdout.reconfigure(encoding="utf-8")
    KINDS[given.kind](files, *([given.template] if given.template else []))


if __name__ == "__main__":
    main()
