#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/core/wait_display.h"
#include "cli/output/print.h"

/* The keys as they were typed. Returns how many there are; beyond BELAY_KEYS_MAX they were refused. */
static size_t list_keys(const struct lock_request *request, const char *out_keys[BELAY_KEYS_MAX])
{
    const struct belay_lock_options *options = &request->options;
    size_t n = 1;

    out_keys[0] = request->key;
    for (size_t i = 0; i < options->n_more_keys && n < BELAY_KEYS_MAX; i++) {
        out_keys[n++] = options->more_keys[i];
    }
    return n;
}

static void print_for_people(const struct cli_context *context, const struct lock_request *request,
                             struct belay_lock *lock)
{
    const struct belay_info *info = belay_lock_info(lock);
    int64_t heartbeat_ms = belay_lock_heartbeat_ms(lock);
    const char *keys[BELAY_KEYS_MAX];
    size_t n_keys = list_keys(request, keys);
    struct buf command = BUF_INIT(1 << 16);
    char span[CLOCK_TEXT_SIZE];
    char verb[CLOCK_TEXT_SIZE + 16];

    if (context->quiet) {
        (void)printf("%s\n", info->lock_id);
        return;
    }
    lock_print_card(context, info, true);
    if (heartbeat_ms > 0) {
        /* Give the ttl: not every store keeps it. */
        (void)snprintf(verb, sizeof verb, "renew --ttl %s", clock_format_duration(span, info->ttl_ms));
        lock_format_command(&command, context, verb, keys, n_keys, info->lock_id);
        (void)printf("\nRenew it every %s:\n  %s\n", clock_format_span(span, heartbeat_ms),
                     command.failed ? "" : command.data);
        buf_release(&command);
    }
    lock_format_command(&command, context, "release", keys, n_keys, info->lock_id);
    (void)printf("\nRelease it when you are done:\n  %s\n", command.failed ? "" : command.data);
    buf_release(&command);
}

static int print_grant_json(const struct cli_context *context, const struct lock_request *request,
                            struct belay_lock *lock)
{
    const char *keys[BELAY_KEYS_MAX];
    size_t n_keys = list_keys(request, keys);

    return lock_print_grant_json(context, belay_lock_info(lock), keys, n_keys);
}

/* If the lock id cannot be printed, no client could release the lock: release it here. */
static int print_or_release(struct cli_context *context, const struct lock_request *request,
                            struct belay_lock *lock)
{
    int code = CLI_OK;

    if (context->json) {
        code = print_grant_json(context, request, lock);
    } else {
        print_for_people(context, request, lock);
    }
    code = cli_finish(context, code);
    if (code != CLI_OK && !belay_lock_is_reentered(lock)) {
        (void)belay_lock_release(lock, BELAY_OUTCOME_FAILED, NULL);
        cli_note(context, "the lock was released again, because its id could not be printed");
    }
    return code;
}

/* Locking is switched off, and the library has warned. Scripts get an id that 'release' accepts. */
static int print_unprotected(const struct cli_context *context, const struct lock_request *request,
                             struct belay_lock *lock)
{
    const struct belay_info *info = belay_lock_info(lock);

    if (context->json) {
        return print_grant_json(context, request, lock);
    }
    if (context->quiet) {
        (void)printf("%s\n", info->lock_id);
    }
    return CLI_OK;
}

static int report_not_acquired(const struct cli_context *context, const struct lock_request *request,
                               const struct belay_error *err)
{
    const char *keys[BELAY_KEYS_MAX];
    struct buf command = BUF_INIT(1 << 16);
    int code = cli_error(context, err);

    if (err->code == BELAY_UNKNOWN) {
        lock_format_command(&command, context, "acquire", keys, list_keys(request, keys),
                            request->options.lock_id);
        cli_hint(context, "the lock may be yours; to find out, repeat the command with the same id:");
        cli_hint(context, "%s", command.failed ? "" : command.data);
        buf_release(&command);
    } else if ((err->code == BELAY_HELD || err->code == BELAY_FROZEN) && request->options.wait_ms == 0 &&
               request->options.attempts == 0) {
        cli_hint(context, "add --wait 5m to wait for it");
    }
    return code;
}

static int acquire_and_print(struct cli_context *context, struct lock_request *request,
                             struct belay_error *err)
{
    struct belay_client *client;
    struct belay_lock *lock = NULL;
    struct wait_display *waiting;
    char fresh_id[UUID_TEXT_SIZE];
    int code;

    if (cli_client(context, &client, err) != BELAY_OK) {
        return cli_error(context, err);
    }
    /* Choose the id here, so that it is known if the answer is lost. */
    if (request->options.lock_id == NULL && belay_client_locking_enabled(client) &&
        uuid_make_at(clock_unix_ms(), fresh_id)) {
        request->options.lock_id = fresh_id;
    }
    waiting =
        wait_display_new(context, request->key, request->options.attempts > 1 ? WAIT_COUNTED : WAIT_QUEUED);
    request->options.durable = true;
    request->options.on_waiting = wait_display_update;
    request->options.context = waiting;
    request->options.cancel = cli_cancel(context);
    cli_allow_leaving();
    (void)belay_lock_acquire(client, request->key, &request->options, &lock, err);
    cli_forbid_leaving();
    wait_display_free(waiting);
    if (lock == NULL) {
        return report_not_acquired(context, request, err);
    }
    code = belay_lock_is_protected(lock) ? print_or_release(context, request, lock)
                                         : print_unprotected(context, request, lock);
    belay_lock_free(lock);
    return code;
}

static int exec_acquire(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct lock_request request = LOCK_REQUEST_INIT;
    int code;

    if (lock_request_read(context, options, 0, &request, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else {
        code = acquire_and_print(context, &request, err);
    }
    lock_request_release(&request);
    return code;
}

const struct cli_command cmd_acquire = {
    .name = "acquire",
    .synopsis = "[OPTIONS] KEY...",
    .summary = "acquire a lock and print it",
    .about = "Acquires the lock KEY and prints it. The lock is not tied to a process: it lasts until it is "
             "released with its lock id, or until its lease expires, by default after 10m. To keep it "
             "longer, renew it with 'belay renew'. To hold a lock while a command runs, 'belay run' is "
             "safer.\n\n"
             "If another client holds the lock, belay prints the holder and exits with 75. With --wait it "
             "waits in the queue, first come, first served. On a terminal one line shows the place in the "
             "queue, the holder and, if the history has three earlier holds of the lock or more, an estimate "
             "of the time to go. Ctrl-C ends the wait and leaves the queue; if the store does not answer, a "
             "second Ctrl-C exits at once.\n\n"
             "Several keys, up to 16, are acquired together: all of them or none, under one lock id and with "
             "a token for each. Two commands that name the same keys in a different order cannot deadlock. "
             "With --shared or --slots several clients can hold the lock; docs/locks.md describes all kinds "
             "of locks.\n\n"
             "With --quiet only the lock id is printed. If the lock cannot be printed, it is released again.",
    .groups = { &lock_group, &kind_group, &key_group },
    .max_args = CLI_MANY_KEYS,
    .takes_key = true,
    .exits = { { 0, "the lock is acquired" },
               CLI_EXIT_USAGE,
               CLI_EXIT_UNREACHABLE,
               { 74, "unknown: the lock may be acquired; repeat with the same --id to find out" },
               { 75, "another client holds the lock, or the wait timed out" },
               { 77, "the lock id was used before" },
               CLI_EXIT_CONFIG },
    .examples = { { "belay acquire nightly-backup --ttl 1h --wait 5m",
                    "acquire it for one hour, waiting up to five minutes" },
                  { "id=$(belay acquire --quiet db-migration) || exit",
                    "in a script: keep the lock id for 'belay release'" },
                  { "belay acquire deploy-api deploy-web", "acquire both locks, or none" } },
    .exec = exec_acquire,
};
