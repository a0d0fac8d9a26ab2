/* Between the connection (control.c) and its requests (control_request.c). */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "server/front/control.h"

enum { CONTROL_MESSAGE_MAX = 16 << 10 };

extern const struct frame_handler control_handler;

/* Appends a reply to what is to be sent. */
int control_reply(struct control *control, enum frame_type type, uint64_t sequence, const ProtobufCMessage *message,
                  struct fault *fault);

/* Notes whether the connection counts as one that has to log in and has not. */
void control_count_stranger(struct control *control, bool stranger);
/* A place for the principal that the connection turns out to be; another connection may be ended for it. */
int control_find_place(struct control *control, const struct principal *principal, struct fault *fault);
/* Goes on after a step of the reader: sends its replies and lets it handle what is buffered, until one of the two has
 * to wait, or it has had its share. The connection may be dead afterwards. */
void control_go_on(struct control *control, int error, struct fault *fault);
/* The last words, and the end. */
void control_refuse(struct control *control, const struct fault *fault);
