/* Between the files of a control connection: control.c has its socket and its turns, control_hello.c the login,
 * control_request.c the other requests. Front thread only. */
#pragma once

#include "proto/wire/tensord.pb-c.h"
#include "server/front/control.h"

enum { CONTROL_MESSAGE_MAX = 16 << 10 };

/* control.c */
/* After an answer, or with the error of one: goes on with the next request, or ends the connection. */
void control_go_on(struct control *control, int error, struct fault *fault);
/* Ends it with this as the last word, where one fits. */
void control_refuse(struct control *control, const struct fault *fault);
/* Whether there is room for it as this principal; ends one that is idle where that makes some. */
int control_find_place(struct control *control, const struct principal *principal, struct fault *fault);
void control_count_stranger(struct control *control, bool stranger);

/* control_hello.c */
int control_hello(struct control *control, const struct frame_header *header, const uint8_t *bytes,
                  struct fault *fault);

/* control_request.c */
extern const struct frame_handler control_handler;
/* Appends a frame to what is to be sent. */
int control_answer(struct control *control, enum frame_type type, uint64_t sequence, const ProtobufCMessage *message,
                   struct fault *fault);
/* For a ProtobufCAllocator whose data is a bool that becomes true where there is no memory: a message that is malformed, and
 * one there is no memory for, look the same otherwise. */
void *control_allocate(void *starved, size_t bytes);
void control_free(void *starved, void *memory);
