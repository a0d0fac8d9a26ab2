#!/usr/bin/env python3
"""Writes the seed corpus: valid sessions, and the malformed inputs of tests/daemon, in the form each target reads.

    tests/fuzz/seed_corpus.py tests/fuzz/corpus
"""
import json
import pathlib
import struct
import sys

OPS = pathlib.Path(__file__).resolve().parents[2] / "proto/ops"
sys.path.insert(0, str(OPS))
import describe  # noqa: E402

MAGIC = 0x31445354
HELLO, WELCOME, ERROR, PING = 1, 2, 3, 4
BATCH, UPLOAD, UPLOAD_CHUNK, FETCH, DONE, WAIT, SYNC = 16, 17, 18, 19, 23, 21, 22
STREAM_OPEN, STREAM_CLOSE, COPY_OUT, COPY_IN, GET_STATUS = 24, 25, 26, 27, 50
KERNEL_COMPILE, KERNEL_COMPILED, KERNEL_RELEASE = 40, 41, 43
PROGRAM_DEFINE, PROGRAM_LOOP, PROGRAM_RELEASE = 44, 45, 46
PUBLISH, OPEN_NAME, LIST_NAMES, REMOVE_NAME, MOVE_NAME = 80, 81, 83, 85, 86
F32, I64, F8E4M3, F8E5M2, U16, U64, C64, C128 = 9, 6, 11, 12, 13, 15, 16, 17
DESCRIBED = 111  # tests/unit/described/described.toml: mode, scales, stride, equation
OPERATIONS = describe.operations_of(describe.read(sorted(OPS.glob("*.toml"))))
(FREE, FULL, ARANGE, EYE, UNIFORM, NORMAL, CAST, COPY, RESHAPE, PERMUTE, TRANSPOSE, SLICE, ADD, EXP, WHERE, SUM, ARGMAX, SOFTMAX,
 MATMUL, LINEAR, CONCAT, STACK, TAKE, ALONG, ONE_HOT, KERNEL, PROGRAM) = (
    next(each.number for each in OPERATIONS if each.name == name) for name in (
        "free", "full", "arange", "eye", "uniform", "normal", "cast", "copy", "reshape", "permute_dims", "matrix_transpose",
        "slice", "add", "exp", "where", "sum", "argmax", "softmax", "matmul", "linear", "concat", "stack", "take",
        "take_along_axis", "one_hot", "kernel", "program"))


# ---- protobuf by hand ----

def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def number(field, value):
    return varint(field << 3) + varint(value)


def fixed(field, value):
    return varint(field << 3 | 1) + struct.pack("<Q", value & (1 << 64) - 1)


def data(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def zigzag(values):
    return b"".join(varint((v << 1) ^ (v >> 63)) for v in values)


# ---- messages ----

def hello(low=2, high=2, client=b"seed", token=b""):
    return number(1, low) + number(2, high) + data(3, client) + (data(5, token) if token else b"")


def head(opcode, inputs=0, ints=0, floats=0, flags=0, consume=0):
    return opcode | (inputs & 255) << 16 | (ints & 255) << 24 | (floats & 255) << 32 | flags << 40 | consume << 48


def wide(inputs=0, ints=0, consume=0):
    entries = 1 + (max(inputs - 16, 0) + 63) // 64
    return [inputs >> 8 | ints >> 8 << 12] + [consume >> 64 * i & (1 << 64) - 1 for i in range(entries - 1)]


def batch(first, heads, inputs=(), ints=(), floats=(), labels=(), stream=0, sequence=None, wide=()):
    message = fixed(1, first) + fixed(2, first if sequence is None else sequence)
    if stream:
        message += number(3, stream)
    message += data(4, struct.pack(f"<{len(heads)}Q", *heads))
    if inputs:
        message += data(5, struct.pack(f"<{len(inputs)}Q", *inputs))
    if ints:
        message += data(6, struct.pack(f"<{len(ints)}q", *ints))
    if floats:
        message += data(7, struct.pack(f"<{len(floats)}d", *floats))
    message += b"".join(data(8, label) for label in labels)
    return message + (data(9, struct.pack(f"<{len(wide)}Q", *wide)) if wide else b"")


def upload(identity, dtype, shape, sequence, label=b""):
    message = fixed(1, identity) + number(2, dtype) + data(3, zigzag(shape))
    return message + (data(5, label) if label else b"") + fixed(6, sequence)


def copy_in(identity, dtype, shape, ticket):
    return fixed(1, identity) + number(2, dtype) + data(3, zigzag(shape)) + data(5, ticket) + fixed(7, identity)


def launch(first, kinds, inputs=(), numbers=(), outputs=(), kernel=1, grid=(1, 1, 1), block=(1, 1, 1), further=0, label=b""):
    """`outputs`: pairs of dtype and shape."""
    ints = [kernel, 0]
    for values in grid, block, kinds, numbers:
        ints += [len(values), *values]
    for dtype, shape in outputs:
        ints += [dtype, len(shape), *shape]
    flags = bool(label) | (2 if len(ints) > 255 or len(inputs) > 255 else 0)
    return batch(first, [head(KERNEL, len(inputs), len(ints), flags=flags) | further << 42], inputs=inputs, ints=ints,
                 labels=[label] if label else (), wide=wide(len(inputs), len(ints)) if flags & 2 else ())


def string(text):
    """A string as integers, with the zero bytes at its end."""
    text += bytes(8 - len(text) % 8)
    return list(struct.unpack(f"<{len(text) // 8}q", text))


def described(mode, equation, count=None, stride=(2, 3), scales=(1.0,)):
    """A tensor and one operation on it with attributes of all types; `count`: what is said of the length of `mode`."""
    ints = [1, len(mode) if count is None else count, *mode, len(stride), *stride, *equation]
    flags = 2 if len(ints) > 255 or len(scales) > 254 else 0
    return batch(1, [head(FULL, 0, 3, 1), head(DESCRIBED, 1, len(ints), 1 + len(scales), flags)], inputs=[1],
                 ints=[F32, 0, 4, *ints], floats=[1, 0.5, *scales],
                 wide=[len(ints) >> 8 << 12 | (1 + len(scales)) >> 8 << 24] if flags else ())


def frame(kind, message=b"", payload=b"", sequence=0, magic=MAGIC, flags=0, reserved=0, lengths=None):
    message_bytes, payload_bytes = lengths or (len(message), len(payload))
    header = struct.pack("<IHHIIQQ", magic, kind, flags, message_bytes, reserved, payload_bytes, sequence)
    return header + message + payload


# ---- sessions ----

PAYLOAD = struct.pack("<4f", 1, 2, 3, 4)


def full(first, value=1.0, extents=(4,)):
    return batch(first, [head(FULL, 0, 2 + len(extents), 1)], ints=[F32, int(value), *extents], floats=[value])


def good_session():
    return [
        (HELLO, hello(), b""),
        (UPLOAD, upload(1, F32, [2, 2], 1, b"x"), PAYLOAD[:8]),
        (UPLOAD_CHUNK, fixed(1, 1) + number(2, 8), PAYLOAD[8:]),
        (STREAM_OPEN, number(1, 1) + number(2, 2), b""),
        (BATCH, batch(2, [head(FULL, 0, 3, 1, 1), head(ADD, 2), head(MATMUL, 2, consume=1), head(FREE, 1)],
                      inputs=[1, 2, 3, 1, 2], ints=[F32, 1, 2], floats=[1.0], labels=[b"forward/one"]), b""),
        (WAIT, fixed(1, 4), b""),
        (SYNC, b"", b""),
        (FETCH, fixed(1, 4), b""),
        (PING, b"", b""),
        (STREAM_CLOSE, number(1, 1), b""),
    ]


def publish(ids, names, only_new=False):
    return (data(1, b"".join(struct.pack("<Q", i) for i in ids)) + b"".join(data(2, n) for n in names) +
            (number(3, 1) if only_new else b""))


def names_session():
    return [
        (UPLOAD, upload(1, F32, [2, 2], 1), PAYLOAD),
        (BATCH, batch(2, [head(ADD, 2), head(TRANSPOSE, 1)], inputs=[1, 1, 1], sequence=2), b""),
        (PUBLISH, publish([1, 2, 3], [b"a", b"b", b"c"]), b""),
        (PUBLISH, publish([2], [b"a"]), b""),
        (PUBLISH, publish([1, 2], [b"new", b"b"], True), b""),
        (OPEN_NAME, fixed(1, 4) + data(2, b"a"), b""),
        (OPEN_NAME, fixed(1, 5) + data(2, b"none"), b""),
        (LIST_NAMES, b"", b""),
        (LIST_NAMES, data(1, b"a"), b""),
        (MOVE_NAME, data(1, b"a") + data(3, b"b"), b""),
        (MOVE_NAME, data(1, b"b") + data(3, b"a") + data(4, b"tcp"), b""),
        (REMOVE_NAME, data(1, b"a"), b""),
        (REMOVE_NAME, data(1, b"a"), b""),
        (FETCH, fixed(1, 4), b""),
    ]


def define(identity, parameters, operations, outputs, consumed=(), captures=()):
    """`parameters`: dtype, rank and extents of each; `operations`: a batch."""
    return (fixed(1, identity) + data(2, zigzag(parameters)) + data(3, b"".join(map(varint, consumed))) +
            data(4, struct.pack(f"<{len(captures)}Q", *captures)) + data(5, operations) +
            data(6, struct.pack(f"<{len(outputs)}Q", *outputs)))


def loop(identity, body, carried=(), sliced=(), stacked=()):
    return fixed(1, identity) + fixed(2, body) + b"".join(
        data(field, b"".join(map(varint, values))) for field, values in ((3, carried), (4, sliced), (5, stacked)))


def run(first, program, times, inputs, further=0, consume=0):
    return batch(first, [head(PROGRAM, len(inputs), 2, consume=consume) | further << 42], inputs=inputs,
                 ints=[program, times])


def programs_session():
    """x and y, a captured tensor, and programs of them: a chain that is fused, one with an index, loops."""
    chain = batch(4, [head(ADD, 2), head(EXP, 1), head(ADD, 2), head(SUM, 1, 3)], inputs=[1, 3, 4, 5, 2, 6],
                  ints=[1, 0, 1], sequence=0)
    take = batch(2, [head(TAKE, 2, 1), head(ADD, 2)], inputs=[1, 1, 2, 2], ints=[0], sequence=0)
    return [
        (HELLO, hello(), b""),
        (BATCH, full(1), b""),
        (BATCH, batch(2, [head(FULL, 0, 3, 1)] * 2, ints=[F32, 0, 4] * 2, floats=[2, 3]), b""),
        (PROGRAM_DEFINE, define(1, [F32, 1, 4, F32, 1, 4], chain, [6, 7, 6], [0], [3]), b""),
        (BATCH, run(4, 1, 1, [1, 2], further=2), b""),
        (PROGRAM_LOOP, loop(2, 1, [0, 0], [], [1]), b""),
        (BATCH, batch(7, [head(PROGRAM, 2, 2) | 2 << 42], inputs=[1, 2], ints=[2, 5], sequence=5), b""),
        (PROGRAM_DEFINE, define(3, [I64, 1, 4], take, [3]), b""),
        (PROGRAM_DEFINE, define(4, [F32, 1, 4], chain, [9]), b""),
        (BATCH, batch(10, [head(PROGRAM, 1, 2), head(PROGRAM, 1, 2)], inputs=[1, 2], ints=[3, 1, 4, 1], sequence=6), b""),
        (PROGRAM_RELEASE, fixed(1, 1), b""),
        (PROGRAM_RELEASE, fixed(1, 1), b""),
        (FETCH, fixed(1, 6), b""),
    ]


def malformed_messages():
    """(name, type, message, payload) after Hello."""
    big = (1 << 63) - 1
    yield "second_hello", HELLO, hello(), b""
    yield "server_frame", WELCOME, b"", b""
    yield "control_request", GET_STATUS, b"", b""
    yield "inputs_missing", BATCH, batch(1, [head(ADD, 2)]), b""
    yield "inputs_left", BATCH, batch(1, [head(ADD, 2)], inputs=[1, 1, 1]), b""
    yield "label_missing", BATCH, batch(1, [head(ADD, 2, flags=1)], inputs=[1, 1]), b""
    yield "label_long", BATCH, batch(1, [head(ADD, 2, flags=1)], inputs=[1, 1], labels=[b"l" * 400]), b""
    yield "label_nul", BATCH, batch(1, [head(ADD, 2, flags=1)], inputs=[1, 1], labels=[b"a\0b"]), b""
    yield "wide_missing", BATCH, batch(1, [head(ADD, 2, flags=2)], inputs=[1, 1]), b""
    yield "wide_left", BATCH, batch(1, [head(ADD, 2)], inputs=[1, 1], wide=[0]), b""
    yield "wide", BATCH, batch(2, [head(CONCAT, 300, 1, flags=2)], inputs=[1] * 300, ints=[0],
                               wide=wide(300, 1, 1 << 283)), b""
    yield "wide_ints", BATCH, batch(2, [head(RESHAPE, 1, 300, flags=2)], inputs=[1], ints=[1] * 300, wide=wide(1, 300)), b""
    yield "wide_ones", BATCH, batch(1, [head(ADD, 2, flags=2)], inputs=[1, 1], wide=[(1 << 64) - 1] * 70), b""
    yield "wide_many", BATCH, batch(1, [head(FREE, flags=2)], wide=[33] + [0] * 133), b""
    yield "head_ones", BATCH, batch(1, [(1 << 64) - 1], inputs=[1]), b""
    yield "empty_batch", BATCH, b"", b""
    yield "id_zero", BATCH, full(0), b""
    yield "id_wraps", BATCH, batch((1 << 64) - 1, [head(ADD, 2), head(ADD, 2)], inputs=[1, 1, 1, 1]), b""
    yield "own_input", BATCH, batch(1, [head(COPY, 1)], inputs=[1]), b""
    yield "negative_extent", BATCH, full(1, extents=(-1,)), b""
    yield "overflow", BATCH, full(1, extents=(1 << 32, 1 << 32)), b""
    yield "rank_9", BATCH, full(1, extents=(1,) * 9), b""
    yield "stream_unknown", BATCH, batch(1, [head(FULL, 0, 3, 1)], ints=[F32, 0, 1], floats=[0], stream=9), b""
    yield "sequence_gap", BATCH, batch(1, [head(FULL, 0, 3, 1)], ints=[F32, 0, 1], floats=[0], sequence=99), b""
    yield "packed_too_long", BATCH, b"\x22\x80\xa0\x94\xa5\x1d\x01\x02\x03", b""
    yield "no_protobuf", BATCH, b"\xff" * 60, b""
    yield "upload_dtype", UPLOAD, upload(1, 99, [4], 1), PAYLOAD
    yield "upload_overflow", UPLOAD, upload(1, F32, [1 << 32, 1 << 32], 1), PAYLOAD
    yield "upload_too_much", UPLOAD, upload(1, F32, [2], 1), PAYLOAD
    yield "upload_huge", UPLOAD, upload(1, F32, [big], 1), PAYLOAD
    yield "upload_unfinished", UPLOAD, upload(1, F32, [16], 1), PAYLOAD
    yield "chunk_unknown", UPLOAD_CHUNK, fixed(1, 9) + number(2, 0), PAYLOAD
    yield "fetch_zero", FETCH, fixed(1, 0), b""
    yield "stream_zero", STREAM_OPEN, number(1, 0), b""
    yield "stream_close_unknown", STREAM_CLOSE, number(1, 5), b""
    yield "copy_out", COPY_OUT, fixed(1, 1) + data(2, b"cpu:1") + data(3, b"t" * 16), b""
    yield "copy_ticket", COPY_OUT, fixed(1, 1) + data(2, b"cpu:1") + data(3, b"t"), b""
    yield "compile", KERNEL_COMPILE, fixed(1, 1) + data(2, b"__global__ void f() {}") + data(3, b"f"), b""
    yield "compiled", KERNEL_COMPILED, b"", b""
    yield "release", KERNEL_RELEASE, fixed(1, 1), b""
    yield "define_empty", PROGRAM_DEFINE, b"", b""
    yield "define_types", PROGRAM_DEFINE, define(1, [F32, 9, 1], batch(1, [head(ADD, 2)], inputs=[1, 1]), [1]), b""
    yield "define_later", PROGRAM_DEFINE, define(1, [F32, 0], batch(2, [head(ADD, 2)], inputs=[2, 1]), [2]), b""
    yield "define_batch", PROGRAM_DEFINE, define(1, [F32, 0], batch(2, [head(ADD, 2)], inputs=[1]), [2]), b""
    yield "define_itself", PROGRAM_DEFINE, define(1, [F32, 0], run(2, 1, 1, [1]), [2]), b""
    yield "loop_wrong", PROGRAM_LOOP, loop(2, 1, [0], [9], [big]), b""
    yield "run_none", BATCH, run(1, 1, big, []), b""
    yield "launch", BATCH, launch(1, [2, 1, 3, 4, 5], [1, 1], [7, 8], [(F32, [4])], further=1, label=b"l"), b""
    yield "launch_types", BATCH, launch(1, [2, 2], outputs=[(99, [4]), (F32, [-1, big])], further=1), b""
    yield "launch_counts", BATCH, launch(1, [2, 1], [], [0], [(F32, [4])] * 3), b""
    yield "launch_many", BATCH, launch(1, [2] * 65, outputs=[(F32, [4])] * 65, further=63), b""
    yield "launch_grid", BATCH, launch(1, [2], outputs=[(F32, [4])], grid=(0, 1), block=(1,) * 9), b""
    yield "launch_ids", BATCH, launch((1 << 64) - 1, [2, 2], outputs=[(F32, [4])] * 2, further=1), b""
    yield "launch_ranks", BATCH, launch(1, [2], outputs=[(F32, [1] * 300)]), b""
    yield "launch_lists", BATCH, batch(1, [head(KERNEL, 0, 4)], ints=[1, 0, big, -1]), b""
    yield "string", BATCH, described(string(b"bilinear"), string("…ij->i".encode())), b""
    yield "string_length", BATCH, described(string(b"mode"), string(b"eq"), count=big), b""
    yield "string_length_negative", BATCH, described(string(b"mode"), string(b"eq"), count=-1), b""
    yield "string_no_end", BATCH, described([-1], [0x6161616161616161]), b""
    yield "string_nul", BATCH, described(string(b"a\0b"), string(b"\0c")), b""
    yield "string_utf8", BATCH, described(string(b"\xc3("), string(b"\xed\xa0\x80")), b""
    yield "string_long", BATCH, described(string(b"m" * 1023), string(b"e" * 1024)), b""
    yield "floats_many", BATCH, described(string(b""), string(b""), scales=[1.0] * 1023), b""
    yield "floats_too_many", BATCH, described(string(b""), string(b""), scales=[1.0] * 1100), b""
    yield "publish_none", PUBLISH, b"", b""
    yield "publish_uneven", PUBLISH, publish([1, 2], [b"a"]), b""
    yield "publish_unknown", PUBLISH, publish([7, 0], [b"a", b"b"]), b""
    yield "publish_names", PUBLISH, publish([1, 1, 1], [b"", b"a\nb", b"\xff" * 300]), b""
    yield "open_zero", OPEN_NAME, fixed(1, 0) + data(2, b"a"), b""
    yield "copy_in", COPY_IN, copy_in(1, F32, [4], b"t" * 16), b""


def malformed_frames():
    yield "magic", frame(PING, magic=0)
    yield "type", frame(9)
    yield "flags", frame(PING, flags=1)
    yield "reserved", frame(PING, reserved=1)
    yield "payload_ones", frame(PING, lengths=(0, (1 << 64) - 1))
    yield "payload_tebibyte", frame(UPLOAD, lengths=(8, 1 << 40))
    yield "message_ones", frame(BATCH, lengths=((1 << 32) - 1, 0))


# ---- scripts of operations (fuzz_script.c) ----

def op(opcode, inputs=(), ints=(), floats=(), consume=0):
    counts = len(inputs) | len(ints) << 2 | len(floats) << 6
    return bytes([opcode & 255, opcode >> 8, counts, consume, *inputs, *ints, *floats])


def scripts():
    yield "elementwise", op(ADD, [1, 1]) + op(EXP, [3]) + op(SUM, [4], [1, 0]) + op(FREE, [3])
    yield "matmul", op(TRANSPOSE, [1]) + op(MATMUL, [1, 3]) + op(MATMUL, [3, 1]) + op(SOFTMAX, [5], [1])
    yield "linear", op(LINEAR, [1, 1], [1]) + op(SUM, [1], [0, 1]) + op(LINEAR, [1, 1, 4], [2]) + op(LINEAR, [4, 1], [0])
    yield "views", op(RESHAPE, [1], [3, 2]) + op(PERMUTE, [3], [1, 0]) + op(SLICE, [4], [0, 2, 1, 0, 3, 2]) + op(COPY, [5])
    yield "create", op(ARANGE, [], [F32, 0, 8, 1], [64, 96, 68]) + op(EYE, [], [F32, 3, 4, 1]) + \
        op(UNIFORM, [], [F32, 1, 2, 3, 4], [64, 68]) + op(NORMAL, [], [F32, 1, 2, 100], [64, 68])
    yield "index", op(TAKE, [1, 2], [1]) + op(ONE_HOT, [2], [4, F32]) + op(ALONG, [3, 2], [0]) + op(ARGMAX, [1], [0, 1])
    yield "join", op(CONCAT, [1, 1, 1], [0]) + op(STACK, [1, 3], [0]) + op(STACK, [1, 1], [1]) + op(CAST, [5], [I64])
    yield "errors", op(ADD, [1, 2]) + op(ADD, [99, 0]) + op(ADD, [4, 5]) + op(FULL, [], [F32, 0, 0xf5, 0xf5], [0]) + \
        op(FULL, [], [F32, 0, 0xf2], [0]) + op(CAST, [1], [0xf0]) + op(RESHAPE, [1], [0xef, 0xef]) + op(WHERE, [1, 1, 1])
    yield "consume", op(EXP, [1], consume=1) + op(ADD, [3, 3], consume=3) + op(ADD, [4, 1]) + op(FREE, [4, 4])
    yield "empty", op(FULL, [], [F32, 0, 0, 4], [64]) + op(SUM, [3], [0, 0]) + op(MATMUL, [3, 3]) + op(ARGMAX, [3], [0])
    yield "f8", op(CAST, [1], [F8E4M3]) + op(TRANSPOSE, [3]) + op(MATMUL, [3, 4]) + op(CAST, [1], [F8E5M2]) + \
        op(MATMUL, [4, 6]) + op(CONCAT, [3, 6], [0]) + op(CONCAT, [6, 6], [1]) + op(ADD, [3, 3]) + op(CAST, [9], [F32]) + \
        op(ARANGE, [], [F8E5M2, 0, 8, 1], [64, 96, 68]) + op(FULL, [], [F8E4M3, 1, 3], [64]) + op(TAKE, [13, 2], [0])
    yield "unsigned", op(CAST, [1], [U64]) + op(ADD, [3, 3]) + op(SUM, [4], [0, 1]) + op(TAKE, [1, 3], [0]) + op(CAST, [1], [U16]) + \
        op(ADD, [7, 2]) + op(ADD, [3, 2]) + op(ONE_HOT, [3], [4, U64]) + op(FULL, [], [U64, 0xf5, 2], [96]) + op(CONCAT, [3, 4], [0])
    yield "complex", op(CAST, [1], [C64]) + op(TRANSPOSE, [3]) + op(MATMUL, [3, 4]) + op(CAST, [5], [C128]) + op(ADD, [6, 5]) + \
        op(SUM, [7], [0, 1]) + op(CAST, [8], [F32]) + op(EXP, [6]) + op(FULL, [], [C128, 1, 3], [64]) + op(TAKE, [6, 2], [0])
    yield "attributes", op(DESCRIBED, [1], [7, 1, 65, 2, 3, 4, 66], [64, 65]) + op(DESCRIBED, [3], [7, 1, 0, 0, 0], [64]) + \
        op(DESCRIBED, [3], [7, 2, 65, 66, 0, 67], [64]) + op(DESCRIBED, [3], [7, 0xf2, 65, 0, 67], [64]) + op(DESCRIBED, [1])
    yield "slices", op(SLICE, [2], [0xf0, 0xf0, 0xf0]) + op(SLICE, [2], [0xf2, 0xf0, 0xef]) + op(SLICE, [2], [0, 3, 0])


def records(frames):
    out = b""
    for kind, message, payload in frames:
        out += struct.pack("<BHH", kind, len(message), len(payload)) + message + payload
    return out


def stream(frames):
    return b"".join(frame(kind, message, payload, i) for i, (kind, message, payload) in enumerate(frames))


# ---- files of tensors ----

def tensors_file(header, payload=b"", length=None):
    if not isinstance(header, bytes):
        header = json.dumps(header, ensure_ascii=False).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + payload


def tensors_files():
    def one(dtype="U8", shape=(4,), offsets=(0, 4)):
        return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}

    yield "good", tensors_file({"__metadata__": {"format": "pt"}, "x": one(), "Ω": one("F32", (0, 2), (4, 4)),
                                "y": one("BF16", (), (4, 6))}, b"123456")
    yield "none", tensors_file({})
    yield "cut", tensors_file({"x": one()}, b"123")
    yield "longer", tensors_file({"x": one()}, b"12345")
    yield "hole", tensors_file({"x": one(offsets=(1, 5))}, b"12345")
    yield "overlap", tensors_file({"x": one(), "y": one(offsets=(2, 6))}, b"123456")
    yield "overflow", tensors_file({"x": one("F64", (1 << 61,), (0, 0))})
    yield "dtype", tensors_file({"x": one("U16", (2,))}, b"1234")
    yield "duplicate", tensors_file(b'{"x":1,"x":2}')
    yield "name", tensors_file({"a\nb": one()}, b"1234")
    yield "nested", tensors_file(b"[" * 5000)
    yield "length", tensors_file(b"{}", length=(1 << 64) - 1)


# ---- saved programs ----

def crc64(content):
    total = (1 << 64) - 1
    for byte in content:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (0xc96c5795d7870f42 if total & 1 else 0)
    return struct.pack("<Q", total ^ (1 << 64) - 1)


def program_message(definition, captured=()):
    return data(1, definition) + data(2, zigzag(captured)) + data(3, b"seed")


def program_file(message, elements=(), version=1, place=0, length=None):
    behind = b"".join(one + crc64(one) for one in elements)
    whole = 32 + len(message) + 8 + len(behind) if length is None else length
    head = b"TSDPROG\n" + struct.pack("<IIQQ", version, place, len(message), whole) + message
    return head + crc64(head) + behind


def saved_programs():
    """(name, first byte and the rest): whole files, and messages in a head that is right."""
    chain = batch(4, [head(ADD, 2), head(EXP, 1), head(ADD, 2), head(SUM, 1, 3, flags=1)], inputs=[1, 3, 4, 5, 2, 6],
                  ints=[1, 0, 1], sequence=0, labels=[b"loss"])
    good = program_message(define(0, [F32, 1, 4, F32, 1, 4], chain, [6, 7, 6, 1, 3], [0], [0]), [F32, 1, 4])
    weights = struct.pack("<4f", 1, 2, 3, 4)
    yield "good", b"\0" + program_file(good, [weights])
    yield "cut", b"\0" + program_file(good, [weights])[:-9]
    yield "damaged", b"\0" + program_file(good, [weights]).replace(b"loss", b"lose")
    yield "version", b"\0" + program_file(good, [weights], version=3)
    yield "place", b"\0" + program_file(good, [weights], place=7)
    yield "length", b"\0" + program_file(good, [weights], length=(1 << 64) - 1)
    yield "data_missing", b"\0" + program_file(good)
    yield "no_program", b"\0" + b"\x93NUMPY" * 12

    def message(name, *arguments, captured=()):
        return "message_" + name, b"\1" + program_message(define(0, *arguments), captured)

    one = [F32, 0]
    yield "message_good", b"\1" + good
    yield "message_empty", b"\1"
    yield "message_operations_missing", b"\1" + data(1, b"") + data(2, b"")
    yield message("nothing_done", one, batch(2, [], sequence=0), [1])
    yield message("no_result", one, batch(2, [head(EXP, 1)], inputs=[1]), [])
    yield message("result_unknown", one, batch(2, [head(EXP, 1)], inputs=[1]), [3])
    yield message("input_later", one, batch(2, [head(ADD, 2)], inputs=[1, 2]), [2])
    yield message("input_zero", one, batch(2, [head(ADD, 2)], inputs=[1, 0]), [2])
    yield message("first_output", one, batch(9, [head(EXP, 1)], inputs=[1]), [2])
    yield message("columns", one, batch(2, [head(ADD, 2)], inputs=[1]), [2])
    yield message("unknown_operation", one, batch(2, [head(60000, 1)], inputs=[1]), [2])
    yield message("free", one, batch(2, [head(FREE, 1)], inputs=[1]), [1])
    yield message("run", one, run(2, 1, 1, [1]), [2])
    yield message("launch", [], launch(1, [2, 1, 3, 4, 5], [], [7, 8], [(F32, [4])]), [1])
    yield message("outputs", one, batch(2, [head(EXP, 1) | 63 << 42], inputs=[1]), [2])
    yield message("outputs_wide", one, batch(2, [head(EXP, 1, flags=2)] * 40, inputs=[1] * 40, wide=[127 << 36] * 40), [2])
    yield message("types_end", [F32, 3, 1], batch(2, [], sequence=0), [1])
    yield message("types_huge", [F32, 2, 1 << 40, 1 << 40], batch(2, [], sequence=0), [1])
    yield message("consumed", one, batch(2, [], sequence=0), [1], [3])
    yield message("consumed_twice", one * 2, batch(3, [], sequence=0), [1], [0, 0])
    yield message("captured_uneven", one, batch(3, [], sequence=0), [1], [], [0, 0], captured=one)
    def kernel(name, source=b"// a source\n"):
        return data(5, data(2, source) + data(3, name))

    def kernels(name, *packed, number=1, first=1, captured=()):
        launched = batch(first + 1, [head(KERNEL, 1, 17)] * 2, inputs=[1, first + 1], sequence=0,
                         ints=[1, 0, 3, 1, 1, 1, 3, 32, 1, 1, 2, 1, 2, 0, F32, 1, 4] + [number, 0, 3, 1, 1, 1, 3, 32, 1, 1, 2, 1, 2, 0, F32, 1, 4])
        definition = define(0, [F32, 1, 4], launched, [first + 2], [], [0] * (first - 1))
        return "kernels_" + name, program_message(definition, captured) + b"".join(packed)

    def kernels_message(*arguments, **others):
        name, packed = kernels(*arguments, **others)
        return name, b"\2" + packed

    two = kernel(b"scale<float>"), kernel(b"g", b'extern "C" __global__ void g(float *x, const float *y) {}\n')
    file = kernels("file", *two, number=2, first=2, captured=[F32, 1, 4])[1]
    yield "kernels_file", b"\0" + program_file(file, [weights], version=2)
    yield "kernels_version_1", b"\0" + program_file(file, [weights])
    yield "kernels_cut", b"\0" + program_file(file, [weights], version=2)[:150]
    yield "kernels_named", b"\1" + kernels("named", *two, number=2)[1]
    yield kernels_message("two", *two, number=2)
    yield kernels_message("alike", two[0], two[0], number=2)
    yield kernels_message("number_zero", two[0], number=0)
    yield kernels_message("number_large", *two, number=3)
    yield kernels_message("number_negative", *two, number=-1 << 63)
    yield kernels_message("unused", *two)
    yield kernels_message("missing")
    yield kernels_message("many", *[two[0]] * 257)
    yield kernels_message("name_empty", kernel(b""))
    yield kernels_message("name_long", kernel(b"k" * 256))
    yield kernels_message("name_nul", kernel(b"k\0k"))
    yield kernels_message("name_escape", kernel(b"k\x1b[2J"))
    yield kernels_message("name_not_utf8", kernel(b"k\xff"))
    yield kernels_message("source_nul", kernel(b"k", b"//\0"))
    yield kernels_message("source_empty", kernel(b"k", b""))
    yield kernels_message("torn", kernel(b"k")[:-3])
    yield message("many_parameters", one * 5000, batch(5001, [], sequence=0), [1])


def write(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def main():
    top = pathlib.Path(sys.argv[1])
    good = stream(good_session())
    for name, schedule in ("whole", b""), ("bytes", b"\x01"), ("pieces", b"\x07\x20\x03\x40"):
        write(top / "frame", "good_" + name, bytes([len(schedule)]) + schedule + good)
    large = frame(UPLOAD, b"m" * 100, b"p" * 20000, 2) + frame(PING, sequence=1)
    write(top / "frame", "direct_payload", b"\x02\xff\xfe" + large)
    write(top / "frame", "direct_payload_whole", b"\x00" + large)
    for name, text in malformed_frames():
        write(top / "frame", name, b"\x01\x05" + frame(PING, sequence=1) + text)
        write(top / "request", "raw_" + name, b"\x00" + frame(HELLO, hello(), sequence=1) + text)
    write(top / "request", "raw_good", b"\x00" + good)
    write(top / "request", "raw_cut", b"\x00" + good[:200])
    write(top / "request", "raw_no_hello", b"\x00" + frame(PING))
    write(top / "request", "raw_version", b"\x00" + frame(HELLO, hello(9, 9)))
    for token in b"granted", b"denied", b"again, granted", b"again, denied", b"silence", b"g\0":
        text = frame(HELLO, hello(token=token), sequence=1) + frame(PING, sequence=2)
        write(top / "request", "raw_login_" + token.decode().replace(", ", "_").replace("\0", "_nul"), b"\x00" + text)
    write(top / "request", "frames_good", b"\x01" + records(good_session()[1:]))
    write(top / "request", "frames_names", b"\x01" + records(names_session()))
    write(top / "request", "frames_programs", b"\x01" + records(programs_session()[1:]))
    for name, kind, message, payload in malformed_messages():
        write(top / "request", "frames_" + name, b"\x01" + records([(kind, message, payload), (PING, b"", b"")]))
    for name, content in tensors_files():
        write(top / "safetensors", name, content)
    for name, content in saved_programs():
        write(top / "saved_program", name, content)
    for name, script in scripts():
        write(top / "request", "operations_" + name, b"\x02" + script)


if __name__ == "__main__":
    main()
