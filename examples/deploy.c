/* Run one deploy at a time, and reject the writes of a deploy that has lost its lock. */
#include <belay.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

static void on_lost(void *context, struct belay_lock *lock, const char *why)
{
    atomic_bool *stop = context;

    (void)fprintf(stderr, "lost '%s': %s\n", belay_lock_key(lock), why);
    atomic_store(stop, true); /* the work must stop before belay_lock_deadline_boot_ms() */
}

/* Stands in for the service that receives the writes: it remembers the highest token it has seen. */
static bool fenced_write(uint64_t token, const char *what)
{
    static uint64_t highest;

    if (token < highest) {
        return false; /* a later holder has written */
    }
    highest = token;
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

    /* The configuration file and the environment, as the belay command reads them. */
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
