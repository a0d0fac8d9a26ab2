"""Reads the descriptions of operations, checks them, and completes them with their file's defaults.

README.md explains each field. An error in a description ends the program with one line that names the file and the operation.
"""
import re
import tomllib

DTYPES = ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "u16", "u32", "u64", "c64", "c128"]
INTEGERS = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
HALVES = ["f16", "bf16"]
F8 = ["f8e4m3", "f8e5m2"]
COMPLEX = ["c64", "c128"]
DTYPE_SETS = {
    "bool": ["bool"],
    "integer": INTEGERS,
    "float": FLOATS,
    "real": ["f32", "f64"],
    "complex": COMPLEX,
    "real or complex": ["f32", "f64"] + COMPLEX,
    "float or complex": FLOATS + COMPLEX,
    "number": INTEGERS + FLOATS,
    "number or complex": INTEGERS + FLOATS + COMPLEX,
    "stored number": INTEGERS + FLOATS + F8,
    "stored number or complex": INTEGERS + FLOATS + F8 + COMPLEX,
    "ordered": ["bool"] + INTEGERS + FLOATS + F8,
    "ordered or complex": ["bool"] + INTEGERS + FLOATS + F8 + COMPLEX,
    "bits": ["bool"] + INTEGERS,
    "any": ["bool"] + INTEGERS + FLOATS,
    "any or complex": ["bool"] + INTEGERS + FLOATS + COMPLEX,
    "every": DTYPES,
}
DTYPE_RULES = {
    "none": "there is no result",
    "attribute": "the attribute `dtype`",
    "same": "the dtype of the first input",
    "promoted": "the dtype to which the inputs promote",
    "floating": "the dtype to which the inputs promote; f32 for integers and bool",
    "real": "the dtype to which the inputs promote; of complex numbers that of their parts: f32 for c64, f64 for c128",
    "magnitude": "the dtype to which the inputs promote; f32 for integers and bool; of complex numbers that of their parts",
    "complex": "the complex dtype whose parts have the input's precision: c64 for f32, c128 for f64",
    "compared": "bool, computed in the dtype to which the inputs promote",
    "logical": "bool, computed in bool",
    "tested": "bool, computed in the dtype to which the inputs promote; f32 for integers and bool",
    "accumulated": "i64 for signed integers and bool, u64 for unsigned integers, else the input's dtype",
    "position": "i64",
    "searched": "i64, computed in the dtype to which the inputs promote",
    "rule": "as its attributes say",
    "product": "the dtype to which the inputs promote; f32 for f8",
    "computed": "the dtype to which the inputs promote; f32 for f16 and bf16",
}
# The quantity with which an operation's arithmetic grows.
WORKS = {
    "none": "",
    "result": "element of the result",
    "input": "element of the input",
    "products": "element of the result, times the extent of the axis that it sums over",
    "cubes": "element of the first input, times the lesser extent of its last two axes",
    "attention": "element of the first input, times the number of keys",
    "convolution": "element of the result, times the elements of the weight for one output channel",
    "convolution of x": "element of x, times the elements of the weight for one of its channels",
    "convolution of gradient": "element of the gradient, times the elements of the result for one of its channels",
}
# Types of attributes: columns on the wire (i, f: one integer, one float; l, d: a list of integers, a list of floats), and the type in C.
TYPES = {
    "int": ("i", "int64_t"),
    "axis": ("i", "int64_t"),
    "bool": ("i", "bool"),
    "dtype": ("i", "enum dtype"),
    "seed": ("i", "uint64_t"),
    "scalar": ("if", "struct op_scalar"),
    "float": ("f", "double"),
    "shape": ("l", "struct op_ints"),
    "axes": ("l", "struct op_ints"),
    "ints": ("l", "struct op_ints"),
    "string": ("l", "const char *"),
    "floats": ("d", "struct op_floats"),
}
FIELDS = {"number", "since", "family", "inputs", "outputs", "dtype", "dtypes", "shape", "attributes", "contract", "function",
          "prototypes", "tolerance", "work", "flop", "passes", "formula", "layouts", "derivative"}
OUTPUT_DTYPE_RULES = ["position", "same", "real", "computed"]
INPUTS_MAX = 8192
OUTPUTS_MAX = 16  # OP_OUTPUTS_NAMED in op.h
ARGUMENTS_MAX = 3  # of a formula: inputs, and attributes
INTS_MAX = 1024
# How many entries of a list the function in C takes if the description does not say `most`: proto/ops/op.h has the constants.
LIST_MAX = {"shape": 8, "axes": 8, "ints": 128, "string": 128, "floats": 128}
# The room in struct op_packed.
PACKED_INTS, PACKED_FLOATS = 32, 6


class Wrong(Exception):
    """An error in a description."""


class Input:
    def __init__(self, given):
        given = {"name": given} if isinstance(given, str) else given
        unknown = set(given) - {"name", "dtypes", "optional", "variadic"}
        if unknown:
            raise Wrong(f"an input has no field {sorted(unknown)[0]}")
        self.name = given["name"]
        self.optional = given.get("optional", False)
        self.variadic = given.get("variadic", False)
        self.dtypes = given.get("dtypes")  # None: an operand, which promotes with the others
        if self.dtypes not in (None, "bool", "integer", "own"):
            raise Wrong(f"input {self.name}: dtypes are bool, integer or own where they are not the operation's")


class Output:
    """An output. Its dtype follows the operation's rule; an output after the first may have another rule."""

    def __init__(self, given, dtype, first):
        given = {"name": given} if isinstance(given, str) else given
        unknown = set(given) - {"name", "dtype", "variadic"}
        if unknown:
            raise Wrong(f"an output has no field {sorted(unknown)[0]}")
        self.name = given["name"]
        self.dtype = given.get("dtype", dtype)
        self.variadic = given.get("variadic", False)
        if first and "dtype" in given:
            raise Wrong(f"output {self.name}: the first output has the operation's dtype")
        if self.dtype not in ((dtype,) if first else (dtype, *OUTPUT_DTYPE_RULES)):
            raise Wrong(f"output {self.name}: dtype is {' or '.join(OUTPUT_DTYPE_RULES)} where it is not the operation's")


class Attribute:
    def __init__(self, given, enums):
        unknown = set(given) - {"name", "type", "default", "contract", "c", "count", "most"}
        if unknown:
            raise Wrong(f"an attribute has no field {sorted(unknown)[0]}")
        self.name, self.type = given["name"], given["type"]
        self.enum = enums.get(self.type)
        if not self.enum and self.type not in TYPES:
            raise Wrong(f"attribute {self.name}: {self.type} is no type")
        self.columns, self.c_type = ("i", f"enum op_{self.type}") if self.enum else TYPES[self.type]
        self.default = given.get("default")
        self.contract = given.get("contract", "")
        self.in_c = given.get("c", True)
        self.is_list = self.columns in ("l", "d")
        if "most" in given and not (self.type in ("ints", "floats") and 0 < given["most"] <= LIST_MAX[self.type]):
            raise Wrong(f"attribute {self.name}: most is 1 to {LIST_MAX['ints']} entries of ints or floats")
        self.most = given.get("most", LIST_MAX.get(self.type, 0))


class Enum:
    def __init__(self, name, given):
        self.name, self.contract, self.values = name, given["contract"], given["values"]


class Operation:
    def __init__(self, name, fields, file):
        unknown = set(fields) - FIELDS
        if unknown:
            raise Wrong(f"there is no field {sorted(unknown)[0]}")
        for field in ("number", "since", "family", "dtype", "dtypes", "shape", "contract"):
            if field not in fields:
                raise Wrong(f"{field} is missing")
        self.name, self.file = name, file
        self.id = name.upper()
        self.number, self.since, self.family = fields["number"], fields["since"], fields["family"]
        self.inputs = [Input(given) for given in fields["inputs"]]
        self.dtype, self.dtypes, self.shape = fields["dtype"], fields["dtypes"], fields["shape"]
        given = fields.get("outputs", ["result"])
        self.outputs = [Output(each, self.dtype, i == 0) for i, each in enumerate(given)]
        self.contract = " ".join(fields["contract"].split())
        self.function = fields.get("function", name)
        self.prototypes = fields.get("prototypes", [])
        self.work = fields.get("work", "none" if self.family in ("free", "view", "kernel", "program") else "result")
        self.flop = fields.get("flop", 1)
        self.passes = fields.get("passes", 4)
        self.tolerance = fields.get("tolerance", {})
        self.formula = fields.get("formula", "none")
        self.layouts = fields.get("layouts", "few")
        self.derivative = fields.get("derivative")  # None: there is no rule yet, so asking through the operation is an error
        given = fields.get("attributes", [])
        if isinstance(given, str):
            self.struct, members = given, [{"name": key, **value} for key, value in file.sets[given].items()]
        else:
            self.struct, members = name, given
        self.attributes = [Attribute(member, file.known_enums) for member in members]
        self.check()

    def check(self):
        if self.dtype not in DTYPE_RULES:
            raise Wrong(f"{self.dtype} is no rule for dtypes")
        if self.dtypes not in DTYPE_SETS:
            raise Wrong(f"{self.dtypes} is no set of dtypes")
        if self.work not in WORKS:
            raise Wrong(f"{self.work} is nothing that work grows with: {', '.join(WORKS)} are")
        if self.work.startswith(("products", "convolution")) and len(self.inputs) < 2:
            raise Wrong("products have two inputs")
        if self.work == "input" and not self.inputs:
            raise Wrong("its work grows with the input, and it has none")
        if not (isinstance(self.flop, int) and 0 <= self.flop < 65536) or not (isinstance(self.passes, int) and 0 < self.passes <= 8):
            raise Wrong(f"flop is 0 to 65535 and passes are 1 to 8, not {self.flop} and {self.passes}")
        if not 0 < self.number < 65536:
            raise Wrong(f"{self.number} is no number for an operation")
        self.check_formula()
        self.check_derivative()
        if len(self.outputs) > OUTPUTS_MAX:
            raise Wrong(f"{len(self.outputs)} outputs, {OUTPUTS_MAX} are possible")
        if any(each.variadic for each in self.outputs) and len(self.outputs) > 1:
            raise Wrong("only one output may be variadic, and then it is the only one")
        if self.tolerance and "reason" not in self.tolerance:
            raise Wrong("the tolerance has no reason")
        if any(each.variadic for each in self.inputs[:-1]):
            raise Wrong("only the last input may be variadic")
        optional = [each.optional for each in self.inputs]
        if optional != sorted(optional):
            raise Wrong("only the last inputs may be optional")
        if self.function == "by hand" and not self.prototypes:
            raise Wrong("functions by hand need prototypes")
        self.check_names()
        if sum(each.type == "floats" for each in self.attributes) > 1:
            raise Wrong("only one attribute may be floats: nothing would say where the first list ends")
        if self.ints_most > INTS_MAX:
            raise Wrong(f"the attributes may be more than {INTS_MAX} integers")
        if self.dtype == "attribute" and not any(each.type == "dtype" for each in self.attributes):
            raise Wrong("no attribute is a dtype")

    def check_derivative(self):
        if self.derivative in (None, "none"):
            return
        known = [each.name for each in self.inputs + self.outputs]
        for name in self.derivative:
            if name not in known:
                raise Wrong(f"derivative: {name} is neither an input nor an output")

    def check_formula(self):
        if self.formula == "none":
            return
        if self.family != "elementwise" or len(self.inputs) + len(self.attributes) > ARGUMENTS_MAX:
            raise Wrong(f"formulas are of elementwise operations with up to {ARGUMENTS_MAX} inputs and attributes")
        if any(each.type != "float" for each in self.attributes) or (self.attributes and set(self.computed()) - set(FLOATS)):
            raise Wrong("attributes of formulas are floats, and these formulas compute in floats")
        if self.layouts not in ("all", "few"):
            raise Wrong(f"layouts are all or few, not {self.layouts}")
        unknown = set(self.formula) - set(DTYPES) - set(DTYPE_SETS) - {"modular"}
        if unknown:
            raise Wrong(f"{sorted(unknown)[0]} is neither a dtype nor a set of dtypes")

    def check_names(self):
        """Checks the names, which are members of one struct and parameters of one function in C."""
        names = [each.name for each in self.attributes]
        if self.function != "none":
            names += [each.name for each in self.inputs + (self.outputs if len(self.outputs) > 1 else [])]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise Wrong(f"{sorted(twice)[0]} stands for two things: inputs, outputs and attributes have different names")

    @property
    def variadic(self):
        return bool(self.inputs) and self.inputs[-1].variadic

    @property
    def keeps(self):
        """Sets of dtypes: if all inputs have one type, with a dtype that is in all sets, the result has that type."""
        plain = self.shape == "broadcast" and len(self.outputs) == 1 and not self.attributes and not any(each.dtypes for each in self.inputs)
        sets = {"same": [self.dtypes], "promoted": [self.dtypes], "floating": [self.dtypes, "float or complex"],
                "real": [self.dtypes, "any"]}
        return sets.get(self.dtype, []) if plain else []

    @property
    def inputs_min(self):
        return sum(not each.optional for each in self.inputs)

    @property
    def scalars(self):
        return [each for each in self.attributes if not each.is_list]

    @property
    def lists(self):
        """The list of floats, which is the rest of its column, and then the lists of integers, all in one column."""
        return [each for each in self.attributes if each.columns == "d"] + self.int_lists

    @property
    def int_lists(self):
        return [each for each in self.attributes if each.columns == "l"]

    @property
    def ints_min(self):
        return sum("i" in each.columns for each in self.scalars)

    @property
    def floats_min(self):
        return sum("f" in each.columns for each in self.scalars)

    @property
    def ints_most(self):
        """The number of integers with the longest lists; each list except the last one has its count before it."""
        return self.ints_min + sum(each.most + 1 for each in self.int_lists) - bool(self.int_lists)

    @property
    def is_long(self):
        """Whether its attributes may need more room than struct op_packed has."""
        floats = self.floats_min + sum(each.most for each in self.lists if each.columns == "d")
        return self.ints_most > PACKED_INTS or floats > PACKED_FLOATS

    @property
    def dtype_position(self):
        """The place of the result's dtype among the integers."""
        ints = [each for each in self.scalars if "i" in each.columns]
        return next((i for i, each in enumerate(ints) if each.type == "dtype"), 0)

    def computed(self):
        """The dtypes in which the operation's formulas compute."""
        accepted = DTYPE_SETS[self.dtypes]
        floats = [each for each in FLOATS + COMPLEX if each in accepted]
        return {"floating": floats, "tested": floats, "logical": ["bool"]}.get(self.dtype, accepted)

    def formulas(self):
        """(dtype, name of the formula) for each dtype in which a formula computes."""
        if self.formula == "none":
            return []
        return [(dtype, self.formula_of(dtype)) for dtype in self.computed()]

    def formula_of(self, dtype):
        """The formula that computes it in a dtype: its own, or another one, which is named for the dtype or for a set of dtypes; or that
        of unsigned integers for signed ones."""
        if dtype in self.formula:
            return self.formula[dtype]
        others = [name for key, name in self.formula.items() if key in DTYPE_SETS and key not in DTYPES and dtype in DTYPE_SETS[key]]
        modular = self.formula.get("modular") and dtype in INTEGERS and dtype[0] == "i"
        return f"{others[0] if others else self.name}_{'u' + dtype[1:] if modular else dtype}"


class Family:
    """What the operations have in common that the engine binds in the same way: `what` they are, and the normal form of their
    `launch` ("": they have none of their own)."""

    def __init__(self, path, name, fields):
        if not isinstance(fields, dict) or not set(fields) <= {"what", "launch"} or "what" not in fields:
            raise SystemExit(f"{path}: the family {name} has `what`, and may have `launch`")
        self.what, self.launch = fields["what"], " ".join(fields.get("launch", "").split())


class File:
    """Operations of one kind, in the order of the file."""

    def __init__(self, path, enums=()):
        """`enums` are those of other files, which its attributes may have, too."""
        with open(path, "rb") as source:
            table = tomllib.load(source)
        self.path = path
        self.title = table.pop("title")
        self.contract = " ".join(table.pop("contract").split())
        default = table.pop("default", {})
        self.formulas = "formula" in default  # its operations are computed by formulas
        self.sets = table.pop("attributes", {})
        self.families = {name: Family(path, name, fields) for name, fields in table.pop("family", {}).items()}
        self.enums = {name: Enum(name, given) for name, given in table.pop("enum", {}).items()}
        self.known_enums = {**dict(enums), **self.enums}
        self.operations = []
        for name, fields in table.items():
            try:
                if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                    raise Wrong("a name has small letters, digits and underscores")
                self.operations.append(Operation(name, {**default, **fields}, self))
            except (Wrong, KeyError, TypeError) as error:
                raise SystemExit(f"{path}: {name}: {error}") from None


def read(paths, among=()):
    """Reads all files, in the order given; numbers and names are unique. Families and enumerations may also be in the files `among`."""
    files, enums = [], {}
    for path in [*among, *paths]:
        files.append(File(path, enums))
        enums.update(files[-1].enums)
    families = families_of(files)
    files = files[len(among):]
    numbers, names = {}, {}
    for operation in operations_of(files):
        if operation.family not in families:
            raise SystemExit(f"{operation.file.path}: {operation.name}: {operation.family} is no family")
        for seen, key in ((numbers, operation.number), (names, operation.name)):
            if key in seen:
                raise SystemExit(f"{operation.file.path}: {operation.name}: {seen[key].name} has {key} already")
            seen[key] = operation
    return files


def formulas_of(operations):
    """(operation, dtype) for each formula, including formulas that other operations name."""
    own = {name: (each, dtype) for each in operations for dtype, name in each.formulas() if name == f"{each.name}_{dtype}"}
    for each in operations:
        for dtype, name in each.formulas():
            if name not in own:
                raise SystemExit(f"{each.file.path}: {each.name}: there is no formula {name} for {dtype}")
    return list(own.values())


def families_of(files):
    """How the engine binds an operation, by the family's name."""
    families = {}
    for file in files:
        for name, family in file.families.items():
            if name in families:
                raise SystemExit(f"{file.path}: another file has the family {name}")
            families[name] = family
    return families


def operations_of(files):
    return [operation for file in files for operation in file.operations]
