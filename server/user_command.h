/* `tensord user …`: maintains the file of users, without a daemon. */
#pragma once

/* What follows the word "user". Returns the exit status: 0, 1 for a failure, 2 for wrong usage. */
int user_command(int count, char **arguments);
