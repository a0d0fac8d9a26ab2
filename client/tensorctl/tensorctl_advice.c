/* How to start a daemon. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/net/url.h"

/* Whether the system's daemon is installed as a service. */
static bool advice_is_installed(const char *root) {
    static const char *const folders[] = {"/etc", "/usr/local/lib", "/usr/lib", "/lib"};
    char path[512];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s/systemd/system/tensord.service", root, folders[i]);
        if (!access(path, F_OK))
            return true;
    }
    return false;
}

void tensorctl_advice_write(FILE *out, const char *text, const char *root) {
    char folder[sizeof((struct url *)0)->path];
    struct url url;
    if (url_parse(text, &url, NULL) || url.kind != URL_UNIX || (access(url.path, W_OK) && errno != ENOENT))
        return;
    if (advice_is_installed(root)) {
        fputs("To start the daemon that is installed here: systemctl start tensord\n", out);
        return;
    }
    snprintf(folder, sizeof folder, "%s", url.path);
    *strrchr(folder, '/') = 0;
    if (!access(*folder ? folder : "/", W_OK))
        fprintf(out, "To start a daemon there: tensord --listen %s\n", text);
}
