/* `tensord user …`: maintains the file of users, without a daemon. */
#pragma once

/* `arguments` follow the word "user". Returns the exit status: 0; 1: a failure; 2: wrong usage. */
int user_command(int count, char **arguments);
