/* What the handlers of requests share, for request*.c. Loop thread only. */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "proto/ops/op.h"
#include "server/worker/request.h"

#define REQUEST_PROTOCOL(fault, ...) fault_set(fault, STATUS_PROTOCOL, __VA_ARGS__)

/* Checks the number of an operation: everything that makes a result is numbered, and both sides count. */
int request_sequence(const struct connection *connection, uint64_t sequence, struct fault *fault);
int request_label(const char *label, struct fault *fault);
/* Returns `status`, a handler's. STATUS_AGAIN (the turn has no time left, or there is no memory yet): the same frame is
 * handled again later. */
int request_later(struct connection *connection, int status);
/* Reading a large message has taken a part of the share already: it must not take all of it, turn by turn. */
void request_share(struct connection *connection, const struct frame_header *header);
/* Sets a type from a dtype and shape that a client sent. If they are wrong, `bad` says so, for the tensor's failure,
 * and the type is one without bytes. */
void request_type(struct tensor_type *type, uint32_t dtype, const int64_t *shape, size_t rank, struct fault *bad);

/* Upload and UploadChunk, as rows of request.c's table have them. */
int request_upload(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                   uint8_t **sink, struct fault *fault);
int request_upload_chunk(struct connection *connection, const struct frame_header *header,
                         const ProtobufCMessage *message, uint8_t **sink, struct fault *fault);

/* KernelCompile and KernelRelease, likewise. */
int request_kernel_compile(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault);
int request_kernel_release(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault);

/* ProgramDefine, ProgramLoop and ProgramRelease, likewise. */
int request_program_define(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault);
int request_program_loop(struct connection *connection, const struct frame_header *header,
                         const ProtobufCMessage *message, uint8_t **sink, struct fault *fault);
int request_program_release(struct connection *connection, const struct frame_header *header,
                            const ProtobufCMessage *message, uint8_t **sink, struct fault *fault);
/* A definition that was put off is forgotten: it will come again. */
void request_program_cut(struct connection *connection);

/* Publish, OpenName, ListNames, RemoveName and MoveName, likewise. */
int request_publish(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                    uint8_t **sink, struct fault *fault);
int request_open_name(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                      uint8_t **sink, struct fault *fault);
int request_list_names(struct connection *connection, const struct frame_header *header,
                       const ProtobufCMessage *message, uint8_t **sink, struct fault *fault);
int request_move_name(struct connection *connection, const struct frame_header *header, const ProtobufCMessage *message,
                      uint8_t **sink, struct fault *fault);
int request_remove_name(struct connection *connection, const struct frame_header *header,
                        const ProtobufCMessage *message, uint8_t **sink, struct fault *fault);
