/* Messages in readable form. Fields are found through the schema's descriptors, so a new message needs nothing here. */
#include "proto/wire/batch.h"

#include <inttypes.h>
#include <string.h>

/* An initialised message of each type, for its descriptor: frame types are named as protobuf-c names the messages. */
#define X(NAME, value, message, sender) static const Tensord__##message empty_##NAME = TENSORD__##NAME##__INIT;
FRAME_TABLE(X)
#undef X

static const ProtobufCMessage *const empty_messages[] = {
#define X(NAME, value, message, sender) [value] = &empty_##NAME.base,
    FRAME_TABLE(X)
#undef X
};

static const ProtobufCMessageDescriptor *find_descriptor(unsigned type) {
    const size_t count = sizeof(empty_messages) / sizeof(empty_messages[0]);
    return type < count && empty_messages[type] ? empty_messages[type]->descriptor : NULL;
}

void wire_print_text(FILE *out, const char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f || c == '"' || c == '\\') {
            fprintf(out, "\\x%02x", c);
        } else {
            fputc(c, out);
        }
    }
}

enum { PRINT_BYTES_MAX = 16 };

static void print_bytes(FILE *out, const ProtobufCBinaryData *data) {
    for (size_t i = 0; i < data->len && i < PRINT_BYTES_MAX; i++) {
        fprintf(out, "%02x", data->data[i]);
    }
    if (data->len > PRINT_BYTES_MAX) {
        fprintf(out, "... (%zu bytes)", data->len);
    }
}

static void print_message(FILE *out, const ProtobufCMessage *message);

/* Whether the value gives access: anybody who has it can act as its owner. */
static bool is_secret(const ProtobufCFieldDescriptor *field, const void *value) {
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return !strcmp(field->name, "token") && **(char *const *)value;
    return field->type == PROTOBUF_C_TYPE_BYTES && !strcmp(field->name, "resume_secret") &&
           ((const ProtobufCBinaryData *)value)->len;
}

static void print_value(FILE *out, const ProtobufCFieldDescriptor *field, const void *value) {
    if (is_secret(field, value)) {
        fputs("(hidden)", out);
        return;
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        fprintf(out, "%" PRIu32, *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_ENUM:
        fprintf(out, "%" PRId32, *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        fprintf(out, "%" PRIu64, *(const uint64_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        fprintf(out, "%" PRId64, *(const int64_t *)value);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        fprintf(out, "%g", (double)*(const float *)value);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        fprintf(out, "%g", *(const double *)value);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        fputs(*(const protobuf_c_boolean *)value ? "true" : "false", out);
        break;
    case PROTOBUF_C_TYPE_STRING:
        fputc('"', out);
        wire_print_text(out, *(char *const *)value);
        fputc('"', out);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        print_bytes(out, value);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        fputc('{', out);
        print_message(out, *(const ProtobufCMessage *const *)value);
        fputc('}', out);
        break;
    }
}

static size_t element_size(ProtobufCType type) {
    switch (type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(uint32_t);
    case PROTOBUF_C_TYPE_FLOAT:
        return sizeof(float);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        return sizeof(uint64_t);
    }
}

static void print_repeated(FILE *out, const ProtobufCFieldDescriptor *field, const char *base) {
    size_t count = *(const size_t *)(base + field->quantifier_offset);
    const char *elements = *(const char *const *)(base + field->offset);
    fprintf(out, " %s=[", field->name);
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ", " : "", out);
        print_value(out, field, elements + i * element_size(field->type));
    }
    fputc(']', out);
}

static void print_message(FILE *out, const ProtobufCMessage *message) {
    const char *base = (const char *)message;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            print_repeated(out, field, base);
        } else if (field->type != PROTOBUF_C_TYPE_MESSAGE || *(const void *const *)(base + field->offset)) {
            fprintf(out, " %s=", field->name);
            print_value(out, field, base + field->offset);
        }
    }
}

/* Attributes of an operation that have not been printed yet. */
struct print_attributes {
    const int64_t *ints;
    const double *floats;
    unsigned n_ints, n_floats;
};

static int64_t next_int(struct print_attributes *left) {
    return left->n_ints ? (left->n_ints--, *left->ints++) : 0;
}

static double next_float(struct print_attributes *left) {
    return left->n_floats ? (left->n_floats--, *left->floats++) : 0;
}

static void print_int(FILE *out, int64_t value) {
    if (value == OP_SLICE_NONE) {
        fputs("none", out);
    } else {
        fprintf(out, "%" PRId64, value);
    }
}

/* A string has eight bytes in each integer, up to a zero byte. */
static void print_string(FILE *out, int64_t count, struct print_attributes *left) {
    fputc('"', out);
    for (int64_t i = 0; i < count && left->n_ints; i++) {
        int64_t bytes[2] = {next_int(left), 0};
        wire_print_text(out, (const char *)bytes);
    }
    fputc('"', out);
}

/* Prints a list of integers in brackets; the last list has all integers that are left. */
static void print_list(FILE *out, bool last, bool is_string, struct print_attributes *left) {
    int64_t count = last ? left->n_ints : next_int(left);
    if (is_string) {
        print_string(out, count, left);
        return;
    }
    fputc('[', out);
    for (int64_t i = 0; i < count && left->n_ints; i++) {
        fputs(i ? ", " : "", out);
        print_int(out, next_int(left));
    }
    fputc(']', out);
}

static void print_floats(FILE *out, struct print_attributes *left) {
    fputc('[', out);
    for (const char *separator = ""; left->n_floats; separator = ", ") {
        fprintf(out, "%s%g", separator, next_float(left));
    }
    fputc(']', out);
}

static void print_attribute(FILE *out, const struct op_attribute *attribute, bool last, struct print_attributes *left) {
    if (attribute->type >= OP_ATTRIBUTE_SHAPE) {
        print_list(out, last, attribute->type == OP_ATTRIBUTE_STRING, left);
    } else if (attribute->type == OP_ATTRIBUTE_FLOATS) {
        print_floats(out, left);
    } else if (attribute->type == OP_ATTRIBUTE_FLOAT) {
        fprintf(out, "%g", next_float(left));
    } else if (attribute->type == OP_ATTRIBUTE_SCALAR) {
        next_int(left); /* the same value, for integer dtypes */
        fprintf(out, "%g", next_float(left));
    } else {
        int64_t value = next_int(left);
        if (attribute->type == OP_ATTRIBUTE_DTYPE) {
            fputs(value > 0 && value < DTYPE_COUNT ? dtype_name((enum dtype)value) : "?", out);
        } else if (attribute->type == OP_ATTRIBUTE_ENUM && value >= 0 && value < attribute->n_values) {
            fputs(attribute->values[value], out);
        } else {
            print_int(out, value);
        }
    }
}

static void print_op_arguments(FILE *out, const struct op_request *op) {
    const char *separator = "";
    for (unsigned i = 0; i < op->n_inputs; i++, separator = ", ") {
        fprintf(out, "%s%%%" PRIu64, separator, op->inputs[i]);
    }
    separator = op->n_inputs ? "; " : "";
    struct print_attributes left = {op->ints, op->floats, op->n_ints, op->n_floats};
    const struct op_info *info = op_info(op->opcode);
    for (unsigned i = 0; info && i < info->n_attributes; i++) {
        if (!left.n_ints && !left.n_floats) {
            return;
        }
        fprintf(out, "%s%s=", separator, info->attributes[i].name);
        print_attribute(out, &info->attributes[i], i + 1 == info->n_attributes, &left);
        separator = ", ";
    }
    /* Attributes that the description does not have. */
    for (; left.n_ints; separator = ", ") {
        fputs(separator, out);
        print_int(out, next_int(&left));
    }
    for (; left.n_floats; separator = ", ") {
        fprintf(out, "%s%g", separator, next_float(&left));
    }
}

void wire_print_call(FILE *out, const struct op_request *op) {
    const struct op_info *info = op_info(op->opcode);
    if (info) {
        fprintf(out, "%s(", info->name);
    } else {
        fprintf(out, "operation %u(", op->opcode);
    }
    print_op_arguments(out, op);
    fputc(')', out);
}

static void print_op(FILE *out, const struct op_request *op, uint64_t sequence, uint64_t output) {
    fprintf(out, "  #%" PRIu64 " ", sequence);
    for (unsigned i = 0; i < op_request_outputs(op); i++) {
        fprintf(out, "%%%" PRIu64 "%s", output + i, i + 1 < op_request_outputs(op) ? ", " : " = ");
    }
    wire_print_call(out, op);
    const char *separator = " free ";
    for (unsigned i = 0; i < op->n_inputs; i++) {
        if (op_consumes(op->consume, op->consume_more, i)) {
            fprintf(out, "%s%%%" PRIu64, separator, op->inputs[i]);
            separator = ", ";
        }
    }
    if (op->label) {
        fputs("  [", out);
        wire_print_text(out, op->label);
        fputc(']', out);
    }
    fputc('\n', out);
}

static void print_batch(FILE *out, const Tensord__Batch *batch) {
    uint64_t output = batch->first_output, sequence = batch->first_sequence;
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    int more;
    fprintf(out, " stream=%" PRIu32 " (%zu operations)\n", batch->stream, batch->n_heads);
    batch_cursor_init(&cursor, batch);
    while ((more = batch_cursor_next(&cursor, &op, &fault)) > 0) {
        print_op(out, &op, sequence++, output);
        output += op_request_outputs(&op);
    }
    if (more < 0) {
        fprintf(out, "  malformed: %s\n", fault.message);
    }
}

void wire_print(FILE *out, const char *arrow, const struct frame_header *header, const uint8_t *bytes) {
    const ProtobufCMessageDescriptor *descriptor = find_descriptor(header->type);
    ProtobufCMessage *message =
        descriptor ? protobuf_c_message_unpack(descriptor, NULL, header->message_bytes, bytes) : NULL;
    flockfile(out); /* a batch is many lines, and both directions may print */
    fprintf(out, "%s %s", arrow, frame_type_name(header->type));
    if (header->sequence) {
        fprintf(out, " (%" PRIu64 ")", header->sequence);
    }
    if (header->payload_bytes) {
        fprintf(out, " +%" PRIu64 " bytes", header->payload_bytes);
    }
    if (message && header->type == FRAME_BATCH) {
        print_batch(out, (const Tensord__Batch *)message);
    } else if (message) {
        print_message(out, message);
        fputc('\n', out);
    } else {
        fprintf(out, " malformed message of %" PRIu32 " bytes\n", header->message_bytes);
    }
    funlockfile(out);
    if (message) {
        protobuf_c_message_free_unpacked(message, NULL);
    }
}
