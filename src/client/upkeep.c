/* What is done to an embedded store as a whole: see belay.h. */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "client/client.h"
#include "store/sqlite/sqlite_store.h"

/* What follows "sqlite:". *out_own is a configuration for the caller to free, also after an error. */
static enum belay_code find_file(const struct belay_upkeep_options *options, const char *what,
                                 struct belay_config **out_own, const char **out_path,
                                 struct belay_error *err)
{
    const struct belay_config *config = options == NULL ? NULL : options->config;
    const char *url = options == NULL ? NULL : options->store_url;
    enum belay_code code = BELAY_OK;

    if (url == NULL && config == NULL) {
        code = belay_config_load(NULL, out_own, err);
        config = *out_own;
    }
    if (code != BELAY_OK) {
        return code;
    }
    url = url == NULL ? belay_config_get(config, "store") : url;
    if (url == NULL || !text_has_prefix(url, "sqlite:")) {
        return error_set(err, BELAY_INVALID,
                         "only an embedded store can be %s, and the store is '%.200s': name one with --store "
                         "sqlite:PATH",
                         what, url == NULL ? "not set" : url);
    }
    *out_path = url + strlen("sqlite:");
    return BELAY_OK;
}

enum belay_code belay_repair(const struct belay_upkeep_options *options, bool *out_lost,
                             struct belay_error *err)
{
    struct belay_config *own = NULL;
    const char *path = NULL;
    bool lost = false;
    enum belay_code code = find_file(options, "repaired", &own, &path, err);

    if (code == BELAY_OK) {
        code = sqlite_store_repair(path, NULL, &lost, err);
    }
    if (code == BELAY_OK && out_lost != NULL) {
        *out_lost = lost;
    }
    belay_config_free(own);
    return code;
}
