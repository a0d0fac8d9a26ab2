/* What the connection (control.c) and its requests (control_request.c) share. */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "server/front/control.h"

enum { CONTROL_MESSAGE_MAX = 16 << 10 };

extern const struct frame_handler control_handler;

/* Appends a reply to the bytes that are to be sent. */
int control_reply(struct control *control, enum frame_type type, uint64_t sequence, const ProtobufCMessage *message,
                  struct fault *fault);

/* Notes whether the connection counts as a stranger: it has to log in and has not. */
void control_count_stranger(struct control *control, bool stranger);
/* Finds a place for the connection when its principal becomes known; may end another connection for that. */
int control_find_place(struct control *control, const struct principal *principal, struct fault *fault);
/* Continues after a step of the reader: sends the reply, and waits for what comes next. The connection may be dead
 * afterwards. */
void control_go_on(struct control *control, int error, struct fault *fault);
/* Sends an Error frame, if that is possible, and ends the connection. */
void control_refuse(struct control *control, const struct fault *fault);
