#include "cli/state/state_cli.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/new_file.h"
#include "base/paths.h"
#include "base/text.h"
#include "cli/core/lock_id.h"

enum { SHOW_AFTER_MS = 400, SHOW_EVERY_MS = 100, MB = 1 << 20 };

const struct option_group state_group = { "Which state",
                                          OPTION_TABLE(OPT_TEXT("stack", "S", "the stack"),
                                                       OPT_TEXT("environment", "E", "the environment")) };

/* ---- opening --------------------------------------------------------------------- */

static void on_state_warning(void *context, const char *text)
{
    struct state_cli *cli = context;

    cli_warn(cli->context, "%s", text);
}

/* On a terminal, a progress line for transfers that take long. */
static void show_progress(void *context, uint64_t done, uint64_t total)
{
    struct state_cli *cli = context;
    int64_t now = clock_boot_ms();

    if (cli->context->quiet || cli->context->json || !isatty(STDERR_FILENO)) {
        return;
    }
    if (done >= total && total > 0) {
        if (cli->shown_ms != 0) {
            (void)fputs("\r\033[K", stderr);
        }
        cli->shown_ms = cli->begun_ms = 0;
        return;
    }
    if (cli->begun_ms == 0) {
        cli->begun_ms = now;
    }
    if (now - cli->begun_ms < SHOW_AFTER_MS && total < (uint64_t)32 * MB) {
        return;
    }
    if (now - cli->shown_ms >= SHOW_EVERY_MS) {
        cli->shown_ms = now;
        (void)fprintf(stderr, "\r\033[Kbelay: %llu of %llu MB", (unsigned long long)(done / MB),
                      (unsigned long long)(total / MB));
        (void)fflush(stderr);
    }
}

enum belay_code state_store_open(struct cli_context *context, struct state_cli *out, struct belay_error *err)
{
    struct belay_states_options settings = BELAY_STATES_OPTIONS_INIT;
    enum belay_code code = cli_config(context, &settings.config, err);

    *out = (struct state_cli){ .context = context };
    if (code != BELAY_OK) {
        return code;
    }
    settings.url = context->state_store_url;
    settings.lock_store_url = context->store_url;
    settings.on_warning = on_state_warning;
    settings.on_progress = show_progress;
    settings.context = out;
    return belay_states_open(&settings, &out->states, err);
}

enum belay_code state_cli_open(struct cli_context *context, const struct options *options,
                               struct state_cli *out, struct belay_error *err)
{
    struct belay_state_name name = { options_text(options, "stack"), options_text(options, "environment") };
    enum belay_code code;

    *out = (struct state_cli){ .context = context };
    if (name.stack == NULL || name.environment == NULL) {
        return error_set(err, BELAY_INVALID, "no state given: give --stack and --environment");
    }
    code = state_store_open(context, out, err);
    out->name = name;
    return code;
}

void state_cli_close(struct state_cli *cli)
{
    belay_states_close(cli->states);
    cli->states = NULL;
}

/* ---- the lock --------------------------------------------------------------------- */

enum belay_code state_fence_fill(struct belay_state_lock *fence, struct belay_client *client,
                                 const struct belay_info *info, struct belay_error *err)
{
    fence->token = info->token;
    fence->store_url = belay_client_store_url(client);
    fence->lock_id = info->lock_id;
    fence->key = info->key;
    fence->locked_by = *info->locked_by_name != '\0' ? info->locked_by_name : info->locked_by;
    fence->locked_at_unix_ms = info->locked_at_unix_ms;
    fence->expires_at_unix_ms = info->expires_at_unix_ms;
    return belay_client_store_id(client, &fence->store, err);
}

/* Inside `belay deploy` or `belay run` of this stack: use its lock, if it is still held. */
static enum belay_code join_outer_lock(struct belay_client *client, struct state_lock *out,
                                       struct belay_error *err)
{
    enum belay_code code = belay_renew(client, out->request.key, getenv("BELAY_LOCK_ID"), 0, &out->info, err);

    if (code != BELAY_OK) {
        return error_wrap(err, "the lock of BELAY_LOCK_ID");
    }
    if (out->info->mode != BELAY_EXCLUSIVE) {
        return error_set(
            err, BELAY_INVALID,
            "the lock of BELAY_LOCK_ID may have several holders, and a state is for one client at a "
            "time: run this under an exclusive lock");
    }
    out->is_fenced = true;
    out->is_nested = true;
    return state_fence_fill(&out->fence, client, out->info, err);
}

static bool has_outer_lock(const char *key)
{
    char token[INHERITED_TOKEN_SIZE];

    return env_text("BELAY_LOCK_ID") != NULL && inherited_lock_find(key, token);
}

static enum belay_code acquire_state_lock(struct cli_context *context, struct belay_client *client,
                                          const struct deploy_info *info, struct state_lock *out,
                                          struct belay_error *err)
{
    struct belay_lock_options *options = &out->request.options;
    enum belay_code code = deploy_info_add(info, &out->request, err);

    if (code != BELAY_OK) {
        return code;
    }
    options->cancel = cli_cancel(context);
    code = belay_lock_acquire(client, out->request.key, options, &out->lock, err);
    if (code == BELAY_OK && belay_lock_is_protected(out->lock)) {
        out->is_fenced = true;
        code = state_fence_fill(&out->fence, client, belay_lock_info(out->lock), err);
    }
    return code;
}

enum belay_code state_lock_take(struct cli_context *context, const struct options *options, size_t n_args,
                                const struct deploy_info *info, struct state_lock *out,
                                struct belay_error *err)
{
    struct belay_client *client;
    enum belay_code code;

    *out = (struct state_lock){ .request = LOCK_REQUEST_INIT };
    code = lock_request_read(context, options, n_args, &out->request, err);
    if (code == BELAY_OK) {
        code = cli_client(context, &client, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    return has_outer_lock(out->request.key) ? join_outer_lock(client, out, err)
                                            : acquire_state_lock(context, client, info, out, err);
}

void state_lock_release(struct cli_context *context, struct state_lock *lock, bool completed)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (lock->lock != NULL &&
        belay_lock_release(lock->lock, completed ? BELAY_OUTCOME_COMPLETED : BELAY_OUTCOME_FAILED, &err) !=
            BELAY_OK) {
        cli_warn(context, "the lock was not released: %s", err.text);
    }
    belay_lock_free(lock->lock);
    belay_info_free(lock->info);
    lock_request_release(&lock->request);
    belay_error_release(&err);
    *lock = (struct state_lock){ .request = LOCK_REQUEST_INIT };
}

struct belay_state_write state_lock_write(const struct state_lock *lock,
                                          const struct belay_deployment *deployment)
{
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;

    assert(!lock->is_nested || lock->is_fenced);
    write.lock = lock->is_fenced ? &lock->fence : NULL;
    write.keep_locked = lock->is_nested;
    write.deployment = deployment;
    return write;
}

/* ---- files ------------------------------------------------------------------------- */

enum belay_code state_read_file(const char *path, char **out_text, size_t *out_len, struct belay_error *err)
{
    struct buf text = BUF_INIT(BELAY_BLOB_SIZE_MAX);
    enum belay_code code = cli_read_file(path, &text, err);

    if (code == BELAY_OK && text.len == 0 && strcmp(path, "-") == 0) {
        code = error_set(err, BELAY_BAD_CONTENT,
                         "standard input is empty: name a FILE, or pipe the JSON into belay");
    }
    if (code == BELAY_OK) {
        *out_len = text.len;
        *out_text = buf_take(&text);
    }
    buf_release(&text);
    return code;
}

const char *state_temp_folder(void)
{
    const char *folder = getenv("TMPDIR");

    return folder != NULL && *folder == '/' ? folder : "/tmp";
}

bool state_write_file(const char *path, const char *mode, const struct belay_state *state)
{
    FILE *file = fopen(path, mode);
    bool done = file != NULL && fwrite(state->text, 1, state->len, file) == state->len;

    return (file == NULL || fclose(file) == 0) && done;
}

/* Create a folder and those above it, as far as they are missing. */
static void make_folders(const char *folder)
{
    char path[PATH_MAX];
    size_t n = 0;

    while (folder[n] != '\0') {
        n += 1 + strcspn(folder + n + 1, "/");
        (void)snprintf(path, sizeof path, "%.*s", (int)n, folder);
        (void)mkdir(path, 0700);
    }
}

/* Create a file for a rejected state: in belay's own directory, else in that of temporary files. */
static int create_rejected_file(const struct belay_state_name *name, char path[PATH_MAX])
{
    char *kept = home_path("XDG_STATE_HOME", ".local/state", "belay/kept");
    const char *const folders[] = { kept, state_temp_folder() };
    char utc[CLOCK_TEXT_SIZE];
    int fd = -1;

    for (size_t i = kept == NULL; fd < 0 && i < sizeof folders / sizeof folders[0]; i++) {
        make_folders(folders[i]);
        (void)snprintf(path, PATH_MAX, "%s/%s-%s-%s-XXXXXX.json", folders[i], name->stack, name->environment,
                       clock_format_utc(utc, clock_unix_ms(), false));
        fd = mkostemps(path, 5, O_CLOEXEC);
    }
    free(kept);
    return fd;
}

bool state_save_rejected(const struct cli_context *context, const struct belay_state_name *name,
                         const char *text, size_t len)
{
    char path[PATH_MAX];
    int fd = create_rejected_file(name, path);
    bool done = fd >= 0 && file_write_all(fd, text, len) && fsync(fd) == 0;

    if (fd >= 0) {
        done = close(fd) == 0 && done;
    }
    /* With --quiet too: the user needs the path to recover the work. */
    if (done && context->json) {
        cli_warn(context, "the unsaved state is kept in %s", path);
    } else if (done) {
        (void)fprintf(stderr, "  the unsaved state is kept in %s\n", path);
    } else {
        cli_warn(context, "cannot keep the unsaved state in a file: %s", strerror(errno));
    }
    return done;
}
