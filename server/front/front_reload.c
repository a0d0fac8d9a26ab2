#include <stdio.h>
#include <string.h>

#include "server/front/front.h"
#include "server/process/log.h"
#include "server/process/loop.h"

/* All that a reload reads. What is added here is read by reload_read() and takes effect in reload_apply(). */
struct reload {
    struct config config;
    struct users *users; /* NULL: the configuration names no file of users */
    struct front_tls_fresh tls;
};

/* Changes nothing but the room for connections, and says what is wrong. */
static int reload_read(struct front *front, struct reload *reload, struct fault *fault) {
    enum config_action action;
    config_init(&reload->config);
    reload->config.ignore_devices = true;
    reload->users = NULL;
    int error = config_read_flags(&reload->config, front->n_arguments, front->arguments, &action, fault);
    /* The path of the file of users changes only by a restart, so this reads the path of the present configuration. */
    if (!error && *front->config->users)
        error = users_read(front->config->users, &reload->users, fault);
    /* The paths of certificates change only by a restart, too. */
    if (!error)
        error = front_tls_read(front->config, &reload->tls, fault);
    if (!error) {
        error = loop_raise_descriptors(&front->loop, reload->config.max_connections, fault);
        if (error)
            front_tls_drop(&reload->tls);
    }
    if (error) {
        users_destroy(reload->users);
        reload->users = NULL;
    }
    return error;
}

static void reload_tell(void *owner, const char *key, bool taken) {
    (void)owner;
    if (taken)
        log_event(LOG_LEVEL_INFO, "config_changed", "key", key, NULL);
    else
        log_event(LOG_LEVEL_WARNING, "config_ignored", "key", key, "cause", "it takes a restart to change", NULL);
}

/* Those who are here, and whose limits are others now. */
static void reload_tell_limits(struct front *front, const struct users *before, const struct limits *everybody) {
    const struct users *users = front->login.users;
    const struct limits *now = &front->config->limits;
    struct limits was, is;
    if (memcmp(everybody, now, sizeof *now) != 0)
        supervisor_set_limits(&front->supervisor, "", now);
    for (unsigned i = 0; users && i < users->n_users; i++) {
        const char *name = users->users[i].name;
        users_limits(before, name, everybody, &was);
        users_limits(users, name, now, &is);
        if (!memcmp(&was, &is, sizeof is))
            continue;
        supervisor_set_limits(&front->supervisor, name, &is);
        log_event(LOG_LEVEL_INFO, "limits_changed", "principal", name, NULL);
    }
}

/* Cannot fail. The configuration first: the rights of users are worked out from it. Whoever may not stay is told so
 * before anybody's limits change. */
static void reload_apply(struct front *front, struct reload *reload) {
    struct config *config = front->config;
    struct limits everybody = config->limits;
    struct users *before = NULL;
    bool more = reload->config.max_connections > config->max_connections;
    bool other_kernels = strcmp(reload->config.user_kernels, config->user_kernels) != 0;
    config_take(config, &reload->config, reload_tell, NULL);
    front_set_places(front);
    if (more)
        supervisor_set_places(&front->supervisor, config->max_connections);
    if (other_kernels)
        supervisor_set_kernels(&front->supervisor, config->user_kernels);
    if (reload->users) {
        before = login_replace_users(&front->login, reload->users);
        users_compare(before, reload->users, front->login.expired, front_revoke, front);
        front_tell_users(front);
    }
    reload_tell_limits(front, before, &everybody);
    users_destroy(before);
    front_tls_take(front, &reload->tls);
}

void front_reload(struct front *front) {
    static struct reload reload; /* large, and one thread */
    struct fault fault;
    char users[24];
    if (reload_read(front, &reload, &fault)) {
        log_event(LOG_LEVEL_ERROR, "reload_failed", "cause", fault.message, "kept", "the old settings", NULL);
    } else {
        reload_apply(front, &reload);
        log_event(LOG_LEVEL_INFO, "reloaded", "users",
                  log_text(users, sizeof users, "%u", front->login.users ? front->login.users->n_users : 0), NULL);
    }
}
