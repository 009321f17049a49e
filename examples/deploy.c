/* One deploy at a time, and a write that a late one cannot do. */
#include <belay.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

static void on_lost(void *context, struct belay_lock *lock, const char *why)
{
    atomic_bool *stop = context;

    (void)fprintf(stderr, "lost '%s': %s\n", belay_lock_key(lock), why);
    atomic_store(stop, true); /* we have until belay_lock_deadline_boot_ms() */
}

/* Stands for the service that is written to. It remembers the greatest token it has seen. */
static bool fenced_write(uint64_t token, const char *what)
{
    static uint64_t greatest;

    if (token < greatest) {
        return false; /* somebody newer was here: refuse */
    }
    greatest = token;
    (void)printf("wrote '%s' with token %" PRIu64 "\n", what, token);
    return true;
}

int main(void)
{
    struct belay_client_options client_options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_config *config = NULL;
    struct belay_client *client = NULL;
    struct belay_lock *lock = NULL;
    enum belay_code code;
    atomic_bool stop = false;

    /* The file, BELAY_STORE and so on, as the command line tool reads them. */
    code = belay_config_load(NULL, &config, &err);
    if (code != BELAY_OK) {
        goto done;
    }
    client_options.config = config;
    code = belay_client_open(&client_options, &client, &err);
    if (code != BELAY_OK) {
        goto done;
    }

    options.ttl_ms = 60000;
    options.heartbeat_ms = 15000;
    options.wait_ms = 5000;
    options.on_lost = on_lost;
    options.context = &stop;
    code = belay_lock_acquire(client, "deploy-api-prod", &options, &lock, &err);
    if (code != BELAY_OK) {
        goto done;
    }
    for (int step = 1; step <= 3 && !atomic_load(&stop); step++) {
        char what[32];

        (void)snprintf(what, sizeof what, "step %d", step);
        if (!fenced_write(belay_lock_token(lock), what)) {
            break;
        }
    }
    code = belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &err);

done:
    if (code != BELAY_OK) {
        (void)fprintf(stderr, "deploy: %s\n", err.text);
    }
    belay_lock_free(lock);
    belay_client_close(client);
    belay_config_free(config);
    belay_error_release(&err);
    return code == BELAY_OK ? 0 : 1;
}
