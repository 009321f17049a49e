/*
 * `belay run`, step by step in run_exec():
 *
 *     fork the guardian -> read options, open the store -> acquire the lock
 *         -> the guardian starts COMMAND -> supervise it -> release the lock
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/store_url.h"
#include "base/text.h"
#include "cli/core/deploy_info.h"
#include "cli/core/wait_display.h"
#include "cli/run/run.h"
#include "cli/run/supervise.h"
#include "telemetry/telemetry.h"

enum {
    RUN_TTL_MS = 120000,
    KILL_AFTER_MS = 10000,
    PUBLISH_MIN_MS = 5,
    PUBLISH_MAX_MS = 1000,
    NOT_EXECUTABLE = 126, /* as a shell has them */
    NOT_FOUND = 127,
    REASON_SIZE = 256
};

struct run_session {
    struct cli_context *context;
    const struct options *options;
    const struct run_callbacks *callbacks; /* NULL: none */
    struct lock_request request;
    struct deploy_info deploy_info; /* metadata of a stack's lock */
    struct guardian guardian;
    struct wait_display *waiting;
    struct belay_client *client; /* borrowed */
    struct belay_lock *lock;     /* owned; NULL: COMMAND runs without one */
    bool is_unlocked;            /* --allow-empty-key, and the key is empty */
    int64_t asked_kill_ms;       /* --kill-after; 0: not given */
    int64_t kill_after_ms;
    int64_t lost_boot_ms;
    struct supervise supervise;
    struct run_result result;
    bool is_result_refused; /* --result FILE cannot be written, which was said */
};

/* ---- options -------------------------------------------------------------- */

const struct option_group run_end_group = {
    "When the lock is held or lost",
    OPTION_TABLE(
        OPT_DURATION(
            "kill-after",
            "time between TERM and KILL when the lease is lost; default 10s, at most a quarter of the ttl"),
        OPT_COUNT("conflict-exit-code", 0, "exit with N instead of 75 if another client holds the lock"),
        OPT_FROM(COMPLETE_FILE, "result", "FILE", "write the outcome to FILE as one JSON object"))
};

static bool is_protected(const struct run_session *run)
{
    return run->lock != NULL && belay_lock_is_protected(run->lock);
}

/*
 * Choose the time between TERM and KILL, and how often the guardian learns the deadline, for a lease that is
 * valid for `lease_ms`. TERM must come well after a renewal was due, or it would hit a healthy lease. Returns
 * the longest --kill-after allowed.
 */
static int64_t set_times(struct run_session *run, int64_t ttl_ms, int64_t lease_ms, int64_t heartbeat_ms)
{
    int64_t spare_ms = lease_ms > heartbeat_ms ? lease_ms - heartbeat_ms : 0;
    int64_t most_ms = ttl_ms / 4 < spare_ms / 2 ? ttl_ms / 4 : spare_ms / 2;
    int64_t asked_ms = options_has(run->options, "kill-after") ? run->asked_kill_ms : KILL_AFTER_MS;

    run->kill_after_ms = asked_ms < most_ms ? asked_ms : most_ms;
    spare_ms = (spare_ms - run->kill_after_ms) / 4;
    run->supervise.publish_ms = spare_ms < PUBLISH_MIN_MS   ? PUBLISH_MIN_MS
                                : spare_ms > PUBLISH_MAX_MS ? PUBLISH_MAX_MS
                                                            : spare_ms;
    return most_ms;
}

/*
 * Set the times again for the lease that was granted: the store decides how much of the ttl is valid, and a
 * re-entered lock has a ttl of its own.
 */
static void fit_to_lease(struct run_session *run)
{
    char text[CLOCK_TEXT_SIZE];

    (void)set_times(run, belay_lock_ttl_ms(run->lock),
                    belay_lock_deadline_boot_ms(run->lock) - belay_now_boot_ms(),
                    belay_lock_heartbeat_ms(run->lock));
    if (run->asked_kill_ms > run->kill_after_ms) {
        cli_warn(run->context, "--kill-after '%s' is too long for this lease; using %s",
                 options_text(run->options, "kill-after"), clock_format_duration(text, run->kill_after_ms));
    }
}

static bool has_empty_key(const struct options *options)
{
    return options->n_args == 1 && options->args[0][0] == '\0';
}

/* For a job that may or may not have a lock (S2.6). An empty key is otherwise an error: a variable that was not set. */
static enum belay_code read_empty_key(struct run_session *run, struct belay_error *err)
{
    static const char *const others[] = { "adopt", "stack", "environment", "service", "component" };

    if (!options_has(run->options, "allow-empty-key")) {
        return error_set(err, BELAY_INVALID,
                         "the key is empty; to run the command without a lock then, add --allow-empty-key");
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (options_has(run->options, others[i])) {
            return error_set(err, BELAY_INVALID, "the key is empty, and --%s needs a lock", others[i]);
        }
    }
    run->is_unlocked = true;
    return BELAY_OK;
}

static enum belay_code read_run_options(struct run_session *run, struct belay_error *err)
{
    const char *path = options_text(run->options, "result");
    enum belay_code code = BELAY_OK;
    long number;

    (void)options_duration(run->options, "kill-after", &run->asked_kill_ms);
    if (options_count(run->options, "conflict-exit-code", &number) && number > 255) {
        return error_set(err, BELAY_INVALID, "--conflict-exit-code '%ld' is not an exit code: give 0 to 255",
                         number);
    }
    if (path != NULL) {
        code = run_result_check(path, err);
        run->is_result_refused = code != BELAY_OK;
    }
    if (code == BELAY_OK && run->callbacks == NULL && has_empty_key(run->options)) {
        code = read_empty_key(run, err);
    }
    return code;
}

/* The lock to acquire, with times for `belay run` and metadata. */
static enum belay_code read_request(struct run_session *run, struct belay_error *err)
{
    struct belay_lock_options *lock = &run->request.options;
    char text[CLOCK_TEXT_SIZE];
    enum belay_code code = lock_request_read(run->context, run->options, 0, &run->request, err);
    int64_t most_ms;

    if (code != BELAY_OK) {
        return code;
    }
    run->result.key = run->request.key;
    lock->ttl_ms = lock->ttl_ms == 0 ? RUN_TTL_MS : lock->ttl_ms;
    lock->heartbeat_ms = lock->heartbeat_ms == 0 ? lock->ttl_ms / 4 : lock->heartbeat_ms;
    most_ms = set_times(run, lock->ttl_ms, lock->ttl_ms - lock->ttl_ms / 20, lock->heartbeat_ms);
    if (run->asked_kill_ms > most_ms) {
        return error_set(err, BELAY_INVALID, "--kill-after '%s' is %s: at most %s",
                         options_text(run->options, "kill-after"),
                         most_ms == lock->ttl_ms / 4 ? "more than a quarter of the ttl"
                                                     : "too long for the heartbeat interval",
                         clock_format_duration(text, most_ms));
    }
    if (run->callbacks != NULL) {
        return run->callbacks->prepare(run->callbacks->context, &run->request, err);
    }
    if (text_has_prefix(run->request.key, "stack:") && !options_has(run->options, "adopt")) {
        /* Metadata that 'belay unlock' and 'belay state locks' show (S4.4, S4.10). */
        code = deploy_info_read(run->options, &run->deploy_info, err);
        code = code == BELAY_OK ? deploy_info_add(&run->deploy_info, &run->request, err) : code;
    }
    return code;
}

/* ---- the lock -------------------------------------------------------------- */

static void update_display(void *context, const struct belay_wait_info *waiting)
{
    struct run_session *run = context;

    if (run->waiting == NULL) {
        run->waiting = wait_display_new(run->context, run->request.key,
                                        run->request.options.attempts > 1 ? WAIT_COUNTED : WAIT_QUEUED);
    }
    wait_display_update(run->waiting, waiting);
}

static void on_lease_lost(void *context, struct belay_lock *lock, const char *why)
{
    struct run_session *run = context;

    (void)lock;
    (void)snprintf(run->supervise.why, sizeof run->supervise.why, "%s", why);
    run->lost_boot_ms = belay_now_boot_ms();
    atomic_store(&run->supervise.lost, true);
    guardian_send(&run->guardian, GUARDIAN_END, 0);
}

/* A command without its lock is dangerous: warn with --quiet too. */
static void warn_loudly(const struct cli_context *context, const char *why, const char *what)
{
    struct cli_context loud = *context;

    loud.quiet = false;
    cli_warn(&loud, "%s: %s", why, what);
}

/* The heartbeat for a lock whose ttl is `ttl_ms`: as the profile has it, else a quarter of the ttl. */
static int64_t heartbeat_for(const struct run_session *run, int64_t ttl_ms)
{
    struct belay_lock_options fitted = BELAY_LOCK_OPTIONS_INIT;
    struct belay_profile profile;

    if (belay_key_profile(run->context->config, options_text(run->options, "profile"), run->request.key,
                          &profile, NULL) == BELAY_OK) {
        fitted.ttl_ms = ttl_ms;
        belay_profile_apply(&profile, &fitted);
    }
    return fitted.heartbeat_ms > 0 && fitted.heartbeat_ms < ttl_ms ? fitted.heartbeat_ms : ttl_ms / 4;
}

/* The ttl of the holder with this id, if it is one of several. */
static int64_t holder_ttl_ms(const struct belay_info *info, const char *id)
{
    for (size_t i = 0; i < info->n_holders; i++) {
        if (info->holders[i].lock_id != NULL && strcmp(info->holders[i].lock_id, id) == 0) {
            return info->holders[i].ttl_ms;
        }
    }
    return info->ttl_ms;
}

/*
 * Without --ttl the lock keeps the ttl that it was acquired with. It is read first, to choose the heartbeat. A store
 * that does not keep the ttl takes that of the profile that the key belongs to; if there is none, it refuses, and the
 * ttl is that of --profile or of `belay run`.
 */
static enum belay_code adopt_lock(struct run_session *run, const char *id, struct belay_error *err)
{
    struct belay_lock_options *options = &run->request.options;
    const char *key = run->request.key;
    struct belay_lock_options kept = *options;
    struct belay_info *info = NULL;
    enum belay_code code;

    if (options_has(run->options, "ttl")) {
        return belay_lock_adopt(run->client, key, id, options, &run->lock, err);
    }
    kept.ttl_ms = 0;
    if (!options_has(run->options, "heartbeat") && belay_get(run->client, key, &info, NULL) == BELAY_OK) {
        int64_t ttl_ms = holder_ttl_ms(info, id);

        kept.heartbeat_ms = ttl_ms > 0 ? heartbeat_for(run, ttl_ms) : kept.heartbeat_ms;
    }
    belay_info_free(info);
    code = belay_lock_adopt(run->client, key, id, &kept, &run->lock, err);
    return code == BELAY_INVALID ? belay_lock_adopt(run->client, key, id, options, &run->lock, err) : code;
}

/* Read which lock it is, open the store, and acquire or adopt the lock. */
static enum belay_code obtain_lock(struct run_session *run, struct belay_error *err)
{
    struct belay_lock_options *options = &run->request.options;
    const char *adopt = options_text(run->options, "adopt");
    enum belay_code code = read_run_options(run, err);

    if (code == BELAY_OK && !run->is_unlocked) {
        code = read_request(run, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    options->on_lost = on_lease_lost;
    options->defer_heartbeat = true;
    options->on_waiting = update_display;
    options->context = run;
    options->cancel = cli_cancel(run->context);
    if (options->cancel == NULL) {
        return error_no_memory(err);
    }
    if (run->is_unlocked) {
        cli_warn(run->context, "the key is empty: the command runs without a lock");
        return BELAY_OK;
    }
    /* Before the store is opened: the switch must work when the store does not. */
    if (run->context->is_locking_disabled) {
        warn_loudly(run->context, "locking is switched off", "the command runs without a lock");
        return BELAY_OK;
    }
    code = cli_client(run->context, &run->client, err);
    if (code != BELAY_OK) {
        return code;
    }
    cli_allow_leaving();
    code = adopt != NULL ? adopt_lock(run, adopt, err)
                         : belay_lock_acquire(run->client, run->request.key, options, &run->lock, err);
    cli_forbid_leaving();
    wait_display_free(run->waiting);
    run->waiting = NULL;
    if (code == BELAY_OK && is_protected(run)) {
        fit_to_lease(run);
    }
    return code;
}

/* The callback may take longer than a heartbeat, so renewal starts first. */
static enum belay_code call_before(struct run_session *run, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    if (is_protected(run)) {
        code = belay_lock_start_heartbeat(run->lock, err);
    }
    return code == BELAY_OK ? run->callbacks->before(run->callbacks->context, run->client, run->lock,
                                                     &run->guardian.shared->job, err)
                            : code;
}

/* True if COMMAND may run: with the lock, or without it after --best-effort. */
static bool may_run(struct run_session *run, enum belay_code code, struct belay_error *err)
{
    if (code == BELAY_OK && cli_signal() != 0) {
        (void)error_set(err, BELAY_CANCELLED, "interrupted before the command started");
        return false;
    }
    if (code == BELAY_UNREACHABLE && options_has(run->options, "best-effort")) {
        warn_loudly(run->context, err->text, "the command runs without a lock");
        return true;
    }
    return code == BELAY_OK;
}

/* ---- the command ------------------------------------------------------------ */

static void copy_string(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from == NULL ? "" : from);
}

/* Tell the guardian all keys: it releases them if belay dies, and COMMAND gets a token for each. */
static void copy_keys(const struct run_session *run, struct guardian_job *job)
{
    size_t n = is_protected(run) ? belay_lock_n_keys(run->lock) : 1;

    copy_string(job->key, sizeof job->key, run->request.key);
    assert(n >= 1 && n <= BELAY_KEYS_MAX);
    for (size_t i = 1; i < n; i++) {
        copy_string(job->more_keys[i - 1], sizeof job->more_keys[0], belay_lock_key_at(run->lock, i));
        job->more_tokens[i - 1] = belay_lock_token_at(run->lock, i);
    }
    job->n_more_keys = n - 1;
}

/* COMMAND gets the URL without a password, by which the guardian could not release the lock. */
static void copy_urls(const struct run_session *run, struct guardian_job *job)
{
    const char *given = cli_store_url(run->context);
    struct buf shown = BUF_INIT(STORE_URL_MAX);

    store_url_add_shown(&shown, text_or_empty(given));
    if (!shown.failed && strcmp(text_or_empty(shown.data), text_or_empty(given)) != 0) {
        copy_string(job->release_url, sizeof job->release_url, given);
    }
    copy_string(job->store_url, sizeof job->store_url,
                run->client != NULL ? belay_client_store_url(run->client)
                : shown.failed      ? NULL
                                    : shown.data);
    buf_release(&shown);
}

static void send_job(struct run_session *run)
{
    struct guardian_shared *shared = run->guardian.shared;
    struct guardian_job *job = &shared->job;

    assert(!atomic_load(&shared->has_job));
    copy_keys(run, job);
    copy_urls(run, job);
    if (is_protected(run)) {
        copy_string(job->lock_id, sizeof job->lock_id, belay_lock_id(run->lock));
        job->token = belay_lock_token(run->lock);
        (void)telemetry_traceparent(run->context->telemetry, job->lock_id, true, job->traceparent);
        /* A re-entered lock is released by its outermost holder. */
        job->release = !belay_lock_is_reentered(run->lock);
        atomic_store(&shared->deadline_boot_ms, belay_lock_deadline_boot_ms(run->lock));
    }
    job->kill_after_ms = run->kill_after_ms;
    atomic_store(&shared->has_job, true);
    terminal_save(run->guardian.tty, &run->supervise.mode);
    guardian_send(&run->guardian, GUARDIAN_START, 0);
    if (atomic_load(&run->supervise.lost)) {
        guardian_send(&run->guardian, GUARDIAN_END, 0); /* the END of on_lease_lost() came before START */
    }
}

static const char *why_denied(const char *name)
{
    struct stat info;

    if (strchr(name, '/') == NULL || stat(name, &info) != 0) {
        return "permission denied";
    }
    return S_ISDIR(info.st_mode) ? "it is a directory"
           : (info.st_mode & 0111) == 0
               ? "it is not executable: run chmod +x on it, or name its interpreter first"
               : "permission denied";
}

/* The file exists, and the program that must run it does not: "#!/no/such/sh", or one with a line end of Windows. */
static const char *why_missing(const char *name, char out[REASON_SIZE])
{
    char line[REASON_SIZE / 2] = "";
    FILE *file = strchr(name, '/') == NULL ? NULL : fopen(name, "re");
    bool is_script = file != NULL && fgets(line, sizeof line, file) != NULL && strncmp(line, "#!", 2) == 0;
    const char *interpreter = line + 2 + strspn(line + 2, " \t");

    if (file == NULL) {
        return "not found";
    }
    (void)fclose(file);
    if (!is_script) {
        return "the program that loads it was not found";
    }
    (void)snprintf(out, REASON_SIZE, "its interpreter '%.*s' was not found",
                   (int)strcspn(interpreter, " \t\n"), interpreter);
    return out;
}

static void report_not_started(struct run_session *run)
{
    const char *name = run->options->rest[0];
    int failure = run->supervise.failure;
    struct belay_error err = BELAY_ERROR_INIT;
    char reason[REASON_SIZE];

    run->result.exit_code = failure == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
    (void)error_set(&err, BELAY_NOT_FOUND, "cannot run '%s': %s", name,
                    failure == ENOENT   ? why_missing(name, reason)
                    : failure == EACCES ? why_denied(name)
                                        : strerror(failure));
    copy_string(run->result.reason, sizeof run->result.reason, err.text);
    (void)cli_error(run->context, &err);
    belay_error_release(&err);
}

/* The result by COMMAND's wait status alone; check_lease() follows. */
static void read_exit_status(struct run_session *run)
{
    const struct supervise *supervise = &run->supervise;
    struct run_result *result = &run->result;

    result->result = "failed";
    if (supervise->end == SUPERVISE_NOT_STARTED) {
        report_not_started(run);
    } else if (supervise->end != SUPERVISE_ENDED) {
        result->signal = SIGKILL;
        result->exit_code = 128 + SIGKILL;
    } else if (WIFSIGNALED(supervise->status)) {
        result->signal = WTERMSIG(supervise->status);
        result->exit_code = 128 + result->signal;
    } else {
        result->exit_code = WEXITSTATUS(supervise->status);
    }
    if (supervise->guardian_died) {
        copy_string(result->reason, sizeof result->reason, "the guardian process was killed");
    } else if (result->exit_code == 0) {
        result->result = "completed";
    }
}

/* ---- the end ---------------------------------------------------------------- */

static void set_lost(struct run_session *run, const char *why)
{
    struct run_result *result = &run->result;

    result->result = "lost";
    result->exit_code = CLI_LOST;
    copy_string(result->reason, sizeof result->reason, why);
}

static void check_lease(struct run_session *run)
{
    const struct supervise *supervise = &run->supervise;
    int64_t ended_ms = atomic_load(&run->guardian.shared->ended_boot_ms);

    /* ended_ms 0: COMMAND is not known to have ended before the loss. */
    if (atomic_load(&supervise->lost) && (ended_ms == 0 || run->lost_boot_ms <= ended_ms)) {
        set_lost(run, supervise->why);
    } else if (supervise->was_ended) {
        set_lost(run, "the lease could not be renewed");
    }
    if (supervise->end == SUPERVISE_STUCK) {
        cli_warn(run->context, "process %ld or one of its descendants could not be killed and may still run",
                 (long)supervise->command);
    }
}

/* A lease that expired after COMMAND ended protected all of it; a lock that was lost before its deadline did not. */
static void on_release_failed(struct run_session *run, const struct belay_error *err)
{
    int64_t deadline_ms = atomic_load(&run->guardian.shared->deadline_boot_ms);
    bool cut_short = err->code == BELAY_LOST && belay_now_boot_ms() < deadline_ms;

    if (run->result.exit_code == CLI_LOST && strcmp(run->result.result, "lost") == 0) {
        return; /* reported already */
    }
    if (cut_short) {
        cli_note(run->context, "lost the lock '%s' while the command ran: %s", run->request.key, err->text);
        set_lost(run, err->text);
    } else {
        cli_warn(run->context, "the command ended, but the lock was not released: %s", err->text);
    }
}

static void release_lock(struct run_session *run)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool completed = strcmp(run->result.result, "completed") == 0;

    if (run->lock == NULL || run->supervise.end == SUPERVISE_STUCK) {
        return;
    }
    if (belay_lock_release(run->lock, completed ? BELAY_OUTCOME_COMPLETED : BELAY_OUTCOME_FAILED, &err) !=
        BELAY_OK) {
        on_release_failed(run, &err);
    }
    belay_error_release(&err);
}

static void run_command(struct run_session *run)
{
    send_job(run);
    run->supervise.context = run->context;
    run->supervise.guardian = &run->guardian;
    run->supervise.lock = is_protected(run) ? run->lock : NULL;
    supervise_run(&run->supervise);
    read_exit_status(run);
    check_lease(run);
    if (run->callbacks != NULL) {
        run->callbacks->after(run->callbacks->context, &run->result);
    }
    release_lock(run);
    if (run->supervise.end == SUPERVISE_STUCK) {
        guardian_abandon(&run->guardian);
    } else {
        guardian_send(&run->guardian, GUARDIAN_DONE, 0);
    }
}

static void report_refusal(struct run_session *run, const struct belay_error *err)
{
    long conflict;

    assert(err->code != BELAY_OK && !atomic_load(&run->guardian.shared->has_job));
    run->result.result = err->code == BELAY_CANCELLED ? "cancelled" : "not_acquired";
    copy_string(run->result.reason, sizeof run->result.reason, err->text);
    run->result.exit_code = cli_error(run->context, err);
    if ((err->code == BELAY_HELD || err->code == BELAY_FROZEN) &&
        options_count(run->options, "conflict-exit-code", &conflict)) {
        run->result.exit_code = (int)conflict;
    }
    if (run->lock != NULL) {
        (void)belay_lock_release(run->lock, BELAY_OUTCOME_FAILED, NULL);
    }
}

static void write_result_file(struct run_session *run)
{
    const char *path = options_text(run->options, "result");
    struct belay_error err = BELAY_ERROR_INIT;

    if (path == NULL || run->is_result_refused) {
        return;
    }
    assert(run->result.result != NULL); /* the run has ended, or was refused */
    run->result.lock = is_protected(run) ? belay_lock_info(run->lock) : NULL;
    if (run_result_write(path, &run->result, &err) != BELAY_OK) {
        cli_warn(run->context, "%s", err.text);
    }
    belay_error_release(&err);
}

int run_exec(struct cli_context *context, const struct options *options,
             const struct run_callbacks *callbacks, struct belay_error *err)
{
    struct run_session run = {
        .context = context, .options = options, .callbacks = callbacks, .request = LOCK_REQUEST_INIT
    };
    struct guardian_setup setup = { options->rest, context->config_path, context->old_sigpipe };
    enum belay_code code;

    if (options->rest == NULL && options->n_args > 1) {
        return cli_fail(context, BELAY_INVALID, "no '--' before the command: belay %s %s -- %s%s",
                        options->command->name, options->args[0], options->args[1],
                        options->n_args > 2 ? " ..." : "");
    }
    if (options->rest == NULL || options->rest[0] == NULL) {
        return cli_fail(context, BELAY_INVALID, "no command given: usage: belay %s %s",
                        options->command->name, options->command->synopsis);
    }
    if (!guardian_start(&run.guardian, &setup)) {
        return cli_fail(context, BELAY_NO_MEMORY, "cannot start the guardian process: %s", strerror(errno));
    }
    code = obtain_lock(&run, err);
    if (code == BELAY_OK && callbacks != NULL) {
        code = call_before(&run, err);
    }
    supervise_block_signals(&run.supervise);
    if (may_run(&run, code, err)) {
        run_command(&run);
    } else {
        report_refusal(&run, err);
    }
    write_result_file(&run);
    belay_lock_free(run.lock);
    cli_close(context); /* while the guardian exits */
    guardian_stop(&run.guardian);
    lock_request_release(&run.request);
    if (run.supervise.die_by_signal != 0 && run.result.exit_code != CLI_LOST) {
        supervise_die_by_signal(run.supervise.die_by_signal);
    }
    return run.result.exit_code;
}
