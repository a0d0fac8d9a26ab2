/* The other end of compile_process.h: the process that compiles one user kernel. */
#pragma once

/* `tensord compile KIND PARENT-PID`, started by a worker alone: a struct compile_request in standard input, the reply
 * to COMPILE_REPLY_FD. Does not return. */
_Noreturn void compile_child_main(const char *kind, const char *parent);
