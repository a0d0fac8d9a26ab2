/* What fused.c and fused_chain.c have in common. */
#pragma once

#include "engine/cpu/cpu.h"

/* Elements of a tile: long enough that calling the row functions costs little, short enough that a few slots of f32 stay in the first-level cache. */
enum { FUSED_TILE = 1024 };

/* Of an operation's note, which is not 0: whether the chain loads the first operand; *what is the operation's own step. */
bool fused_note_loads(uint16_t note, uint8_t *what);
bool fused_note_stays(uint16_t note);                  /* whether the result stays in a register: of chains of tiles */
uint8_t fused_load(const struct fused_operand *input); /* what that load's step is */

/* All operations of a plain launch on FUSED_TILE elements at most. */
void fused_few(const struct cpu_kernels *kernels, const struct fused_launch *launch);
