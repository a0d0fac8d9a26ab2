/* TENSORD_DEBUG=wire: every frame of this process's connections, readably, on stderr. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/frame.h"

bool trace_enabled(void);
/* `arrow` is "->" for sent and "<-" for received. */
void trace_frame(const char *arrow, const struct frame_header *header, const uint8_t *message);
/* The same for `bytes` of whole frames without payloads between them. */
void trace_frames(const char *arrow, const uint8_t *frames, size_t bytes);
