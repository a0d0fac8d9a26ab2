#include "server/front/config_check.h"

#include <unistd.h>

#include "proto/net/url.h"
#include "server/front/front_tls.h"
#include "server/front/listener.h"
#include "server/http/http.h"
#include "server/users/users.h"
#include "server/worker/state.h"

static int check_users(const struct config *config, struct fault *fault) {
    struct users *users = NULL;
    int error = *config->users ? users_read(config->users, &users, fault) : STATUS_OK;
    users_destroy(users);
    return error;
}

/* With what a start would allow them: users, certificates. */
static int check_listeners(const struct config *config, bool have_certificate, struct fault *fault) {
    struct listener_list list = {.authenticated = *config->users,
                                 .plaintext = config->allow_plaintext,
                                 .have_certificate = have_certificate,
                                 .clients_show_certificates = config_wants_certificates(config)};
    char text[128];
    int error = STATUS_OK;
    for (unsigned i = 0; i < config->n_listen && !error; i++)
        error = listener_check(&list, config->listen[i], fault);
    return error || config->n_listen ? error : url_default(text, sizeof text, fault);
}

int config_check(const struct config *config, struct fault *fault) {
    struct front_tls_fresh tls;
    int error = check_users(config, fault);
    if (error || (error = front_tls_read(config, &tls, fault)))
        return error;
    error = check_listeners(config, tls.context, fault);
    front_tls_drop(&tls);
    if (!error)
        error = http_check(config, fault);
    /* One that is not there is made at the start. */
    if (!error && *config->state_dir && access(config->state_dir, F_OK) == 0)
        error = state_check_directory(config->state_dir, fault);
    return error;
}
