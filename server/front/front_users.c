/* Which users there are, for the workers: they keep names, and tell those of users that have gone from those of the
 * present ones. Front thread only. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/front/front.h"
#include "server/process/log.h"

/* Lines with their keys (principal_key()), the first after an end of line, too; and for those whose limits of names are their
 * own a line of " KEY NAMED-BYTES NAMED-TENSORS": they may be given names before they have been here. */
static char *front_users_text(const struct users *users, const struct limits *everybody, size_t *bytes) {
    char *text = NULL, key[PRINCIPAL_NAME_BYTES];
    struct limits limits;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    fputc('\n', out);
    for (unsigned i = 0; users && i < users->n_users; i++) {
        struct principal principal = {.role = ROLE_NONE};
        snprintf(principal.name, sizeof principal.name, "%s", users->users[i].name);
        snprintf(principal.id, sizeof principal.id, "%s", users->users[i].id);
        principal_key(&principal, key);
        fprintf(out, "%s\n", key);
        users_limits(users, principal.name, everybody, &limits);
        if (limits.named_bytes != everybody->named_bytes || limits.named_tensors != everybody->named_tensors)
            fprintf(out, " %s %" PRIu64 " %" PRIu64 "\n", key, limits.named_bytes, limits.named_tensors);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

void front_tell_users(struct front *front) {
    size_t bytes = 0;
    char *text = front_users_text(front->login.users, &front->config->limits, &bytes);
    int fd = text ? memfd_create("tensord-users", MFD_CLOEXEC) : -1;
    if (fd < 0 || write(fd, text, bytes) != (ssize_t)bytes) {
        log_event(LOG_LEVEL_ERROR, "users_untold", "cause", strerror(errno), NULL);
    } else {
        int before = front->users;
        front->users = fd;
        supervisor_set_users(&front->supervisor, fd);
        fd = before;
    }
    if (fd >= 0)
        close(fd);
    free(text);
}
