#include "http_client/ca_file.h"

#include <stddef.h>
#include <unistd.h>

const char *ca_file_of_system(void)
{
    static const char *const others[] = {
        "/etc/pki/tls/certs/ca-bundle.crt", /* Red Hat, Fedora, Amazon Linux */
        "/etc/ssl/ca-bundle.pem",           /* SUSE */
    };

    if (access("/etc/ssl/certs/ca-certificates.crt", R_OK) == 0) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (access(others[i], R_OK) == 0) {
            return others[i];
        }
    }
    return NULL;
}
