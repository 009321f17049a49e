/*
 * belay run: hold a lock while a command runs.
 *
 *     start the guardian -> read options, open the store -> acquire
 *         -> the guardian starts COMMAND -> supervise -> release
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/lock_options.h"
#include "cli/run_result.h"
#include "cli/supervise.h"
#include "cli/waiting.h"
#include "telemetry/telemetry.h"

enum {
    RUN_TTL_MS = 120000,
    KILL_AFTER_MS = 10000,
    PUBLISH_MIN_MS = 5,
    PUBLISH_MAX_MS = 1000,
    NOT_EXECUTABLE = 126, /* as a shell has them */
    NOT_FOUND = 127
};

static const struct option_def run_defs[] = {
    { .name = "adopt",
      .kind = OPTION_TEXT,
      .value = "LOCK_ID",
      .help = "take over the lock that somebody acquired for this job; its id is good for one job" },
    { .name = "kill-after",
      .kind = OPTION_DURATION,
      .value = "D",
      .help = "from TERM to KILL when the lease is lost; at most, and by default up to 10s, a quarter of the "
              "ttl" },
    { .name = "conflict-exit-code",
      .kind = OPTION_COUNT,
      .value = "N",
      .help = "exit with N instead of 75 if somebody else has the lock" },
    { .name = "best-effort",
      .kind = OPTION_FLAG,
      .help = "run without a lock, with a warning, if the store cannot be reached" },
    { .name = "result",
      .kind = OPTION_TEXT,
      .value = "FILE",
      .complete = COMPLETE_FILE,
      .help = "write how it ended to FILE, as one JSON object" },
    { .name = NULL },
};
static const struct option_group run_group = { "Options of run", run_defs };

struct run {
    struct cli_context *context;
    const struct options *options;
    struct lock_request request;
    struct guardian guardian;
    struct waiting *waiting;
    struct belay_client *client; /* borrowed */
    struct belay_lock *lock;     /* owned; NULL: it runs without one */
    int64_t kill_after_ms;
    int64_t lost_boot_ms;
    struct supervise supervise;
    struct run_result result;
};

/* ---- options -------------------------------------------------------------- */

/* TERM must come after a renewal was due, or it would come to a healthy lease. */
static enum belay_code read_times(struct run *run, struct belay_error *err)
{
    struct belay_lock_options *lock = &run->request.options;
    char text[CLOCK_TEXT_SIZE];
    int64_t most_ms;
    int64_t spare_ms;

    lock->ttl_ms = lock->ttl_ms == 0 ? RUN_TTL_MS : lock->ttl_ms;
    lock->heartbeat_ms = lock->heartbeat_ms == 0 ? lock->ttl_ms / 4 : lock->heartbeat_ms;
    spare_ms = lock->ttl_ms - lock->ttl_ms / 20 - lock->heartbeat_ms;
    most_ms = lock->ttl_ms / 4 < spare_ms / 2 ? lock->ttl_ms / 4 : spare_ms / 2;
    most_ms = most_ms < 0 ? 0 : most_ms;
    run->kill_after_ms = most_ms < KILL_AFTER_MS ? most_ms : KILL_AFTER_MS;
    (void)options_duration(run->options, "kill-after", &run->kill_after_ms);
    if (run->kill_after_ms > most_ms) {
        return error_set(err, BELAY_INVALID, "--kill-after '%s' is %s: at most %s",
                         options_text(run->options, "kill-after"),
                         most_ms == lock->ttl_ms / 4 ? "more than a quarter of the ttl"
                                                     : "too long for so rare a heartbeat",
                         clock_format_duration(text, most_ms));
    }
    spare_ms = (spare_ms - run->kill_after_ms) / 4;
    run->supervise.publish_ms = spare_ms < PUBLISH_MIN_MS   ? PUBLISH_MIN_MS
                                : spare_ms > PUBLISH_MAX_MS ? PUBLISH_MAX_MS
                                                            : spare_ms;
    return BELAY_OK;
}

static enum belay_code read_options(struct run *run, struct belay_error *err)
{
    const char *path = options_text(run->options, "result");
    enum belay_code code = BELAY_OK;
    long number;

    if (options_count(run->options, "conflict-exit-code", &number) && number > 255) {
        return error_set(err, BELAY_INVALID, "--conflict-exit-code '%ld' is no exit code: 0 to 255", number);
    }
    if (path != NULL) {
        code = run_result_check(path, err);
    }
    if (code == BELAY_OK) {
        code = lock_request_read(run->context, run->options, &run->request, err);
    }
    if (code == BELAY_OK) {
        run->result.key = run->request.key;
        code = read_times(run, err);
    }
    return code;
}

/* ---- the lock -------------------------------------------------------------- */

static void on_waiting(void *context, const struct belay_waiting *waiting)
{
    struct run *run = context;

    waiting_show(run->waiting, waiting);
}

static void on_lost(void *context, struct belay_lock *lock, const char *why)
{
    struct run *run = context;

    (void)lock;
    (void)snprintf(run->supervise.why, sizeof run->supervise.why, "%s", why);
    run->lost_boot_ms = belay_now_boot_ms();
    atomic_store(&run->supervise.lost, true);
    guardian_tell(&run->guardian, GUARDIAN_END, 0);
}

/* What nobody may overlook is said with --quiet too. */
static void warn_loudly(const struct cli_context *context, const char *why, const char *what)
{
    struct cli_context loud = *context;

    loud.quiet = false;
    cli_warn(&loud, "%s: %s", why, what);
}

/* The kill switch must work above all when the store does not. */
static bool is_switched_off(struct run *run)
{
    const struct belay_config *config;
    const char *enabled = NULL;

    if (cli_config(run->context, &config, NULL) == BELAY_OK) {
        enabled = belay_config_get(config, "locking_enabled");
    }
    return enabled != NULL && strcmp(enabled, "false") == 0;
}

static enum belay_code acquire(struct run *run, struct belay_error *err)
{
    struct belay_lock_options *options = &run->request.options;
    const char *adopt = options_text(run->options, "adopt");
    enum belay_code code;

    options->on_lost = on_lost;
    options->keep_later = true;
    options->on_waiting = on_waiting;
    options->context = run;
    options->cancel = cli_cancel(run->context);
    if (options->cancel == NULL) {
        return error_no_memory(err);
    }
    if (is_switched_off(run)) {
        warn_loudly(run->context, "locking is switched off", "the command runs without a lock");
        return BELAY_OK;
    }
    code = cli_client(run->context, &run->client, err);
    if (code != BELAY_OK) {
        return code;
    }
    if (adopt != NULL) {
        return belay_lock_adopt(run->client, run->request.key, adopt, options, &run->lock, err);
    }
    run->waiting = waiting_new(run->context, run->request.key);
    code = belay_lock_acquire(run->client, run->request.key, options, &run->lock, err);
    waiting_free(run->waiting);
    run->waiting = NULL;
    return code;
}

/* True if COMMAND may run, with the lock or, where that was asked for, without. */
static bool may_run(struct run *run, enum belay_code code, struct belay_error *err)
{
    if (code == BELAY_OK && cli_signal() != 0) {
        (void)error_set(err, BELAY_CANCELLED, "interrupted before the command was started");
        return false;
    }
    if (code == BELAY_UNREACHABLE && options_has(run->options, "best-effort")) {
        warn_loudly(run->context, err->text, "the command runs without a lock");
        return true;
    }
    return code == BELAY_OK;
}

static bool is_protected(const struct run *run)
{
    return run->lock != NULL && belay_lock_is_protected(run->lock);
}

/* ---- the command ------------------------------------------------------------ */

static void copy(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from == NULL ? "" : from);
}

static const char *store_url(const struct run *run)
{
    const struct belay_config *config;

    if (run->client != NULL) {
        return belay_client_store_url(run->client);
    }
    if (run->context->store_url != NULL) {
        return run->context->store_url;
    }
    return cli_config(run->context, &config, NULL) == BELAY_OK ? belay_config_get(config, "store") : NULL;
}

/* A lock that was there before (--reentrant) keeps its ttl, which may be shorter than ours. */
static void fit_to_ttl(struct run *run)
{
    const struct belay_info *info = belay_lock_info(run->lock);

    if (info != NULL && info->ttl_ms < run->request.options.ttl_ms) {
        run->kill_after_ms = run->kill_after_ms < info->ttl_ms / 4 ? run->kill_after_ms : info->ttl_ms / 4;
        run->supervise.publish_ms = PUBLISH_MIN_MS;
    }
}

static void start_command(struct run *run)
{
    struct guardian_page *page = run->guardian.page;
    struct guardian_job *job = &page->job;

    copy(job->key, sizeof job->key, run->request.key);
    copy(job->store_url, sizeof job->store_url, store_url(run));
    if (is_protected(run)) {
        fit_to_ttl(run);
        copy(job->lock_id, sizeof job->lock_id, belay_lock_id(run->lock));
        job->token = belay_lock_token(run->lock);
        (void)telemetry_traceparent(run->context->telemetry, job->lock_id, job->traceparent);
        /* The outermost holder ends a lock that was re-entered. */
        job->release = !belay_lock_is_reentered(run->lock);
        atomic_store(&page->deadline_boot_ms, belay_lock_deadline_boot_ms(run->lock));
    }
    job->kill_after_ms = run->kill_after_ms;
    atomic_store(&page->has_job, true);
    terminal_save(run->guardian.tty, &run->supervise.mode);
    guardian_tell(&run->guardian, GUARDIAN_GO, 0);
    if (atomic_load(&run->supervise.lost)) {
        guardian_tell(&run->guardian, GUARDIAN_END, 0); /* the first one came before there was a command */
    }
}

static void say_not_started(struct run *run)
{
    const char *name = run->options->rest[0];
    int failure = run->supervise.failure;
    struct belay_error err = BELAY_ERROR_INIT;

    run->result.exit_code = failure == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
    (void)error_set(&err, BELAY_NOT_FOUND, "%s: %s", name,
                    failure == ENOENT   ? "not found"
                    : failure == EACCES ? "permission denied"
                                        : strerror(failure));
    copy(run->result.reason, sizeof run->result.reason, err.text);
    (void)cli_error(run->context, &err);
    belay_error_release(&err);
}

/* COMMAND's own code, before anything is known of the lease. */
static void read_status(struct run *run)
{
    const struct supervise *supervise = &run->supervise;
    struct run_result *result = &run->result;

    result->result = "failed";
    if (supervise->end == SUPERVISE_NOT_STARTED) {
        say_not_started(run);
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
        copy(result->reason, sizeof result->reason, "the guardian process was killed");
    } else if (result->exit_code == 0) {
        result->result = "completed";
    }
}

/* ---- the end ---------------------------------------------------------------- */

static void is_lost(struct run *run, const char *why)
{
    struct run_result *result = &run->result;

    result->result = "lost";
    result->exit_code = CLI_LOST;
    copy(result->reason, sizeof result->reason, why);
}

static void check_lease(struct run *run)
{
    const struct supervise *supervise = &run->supervise;
    int64_t ended_ms = atomic_load(&run->guardian.page->ended_boot_ms);

    if (atomic_load(&supervise->lost) && run->lost_boot_ms <= ended_ms) {
        is_lost(run, supervise->why);
    } else if (supervise->was_ended) {
        is_lost(run, "the lease could not be renewed");
    }
    if (supervise->end == SUPERVISE_STUCK) {
        cli_warn(run->context, "process %ld and what it started could not be ended, and may still run",
                 (long)supervise->command);
    }
}

/* A lease that ended only after COMMAND had ended protected all of it; one that somebody cut short did not. */
static void on_release_failed(struct run *run, const struct belay_error *err)
{
    int64_t deadline_ms = atomic_load(&run->guardian.page->deadline_boot_ms);
    bool cut_short = err->code == BELAY_LOST && belay_now_boot_ms() < deadline_ms;

    if (run->result.exit_code == CLI_LOST && strcmp(run->result.result, "lost") == 0) {
        return; /* said already */
    }
    if (cut_short) {
        cli_note(run->context, "lost the lock '%s' while the command ran: %s", run->request.key, err->text);
        is_lost(run, err->text);
    } else {
        cli_warn(run->context, "the command has ended, but the lock was not released: %s", err->text);
    }
}

static void release(struct run *run)
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

static void run_command(struct run *run)
{
    start_command(run);
    run->supervise.context = run->context;
    run->supervise.guardian = &run->guardian;
    run->supervise.lock = is_protected(run) ? run->lock : NULL;
    supervise_run(&run->supervise);
    read_status(run);
    check_lease(run);
    release(run);
    if (run->supervise.end == SUPERVISE_STUCK) {
        guardian_leave(&run->guardian);
    } else {
        guardian_tell(&run->guardian, GUARDIAN_DONE, 0);
    }
}

static void refuse(struct run *run, const struct belay_error *err)
{
    long conflict;

    run->result.result = err->code == BELAY_CANCELLED ? "cancelled" : "not_acquired";
    copy(run->result.reason, sizeof run->result.reason, err->text);
    run->result.exit_code = cli_error(run->context, err);
    if (err->code == BELAY_HELD && options_count(run->options, "conflict-exit-code", &conflict)) {
        run->result.exit_code = (int)conflict;
    }
    if (run->lock != NULL) {
        (void)belay_lock_release(run->lock, BELAY_OUTCOME_FAILED, NULL);
    }
}

static void write_result(struct run *run)
{
    const char *path = options_text(run->options, "result");
    struct belay_error err = BELAY_ERROR_INIT;

    if (path == NULL) {
        return;
    }
    run->result.lock = is_protected(run) ? belay_lock_info(run->lock) : NULL;
    if (run_result_write(path, &run->result, &err) != BELAY_OK) {
        cli_warn(run->context, "%s", err.text);
    }
    belay_error_release(&err);
}

static int exec_run(struct cli_context *context, const struct options *options)
{
    struct run run = { .context = context, .options = options, .request = LOCK_REQUEST_INIT };
    struct guardian_setup setup = { options->rest, context->config_path, context->old_sigpipe };
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;

    if (options->n_rest == 0) {
        return cli_fail(context, BELAY_INVALID, "which command? belay run %s", options->command->synopsis);
    }
    if (!guardian_start(&run.guardian, &setup)) {
        return cli_fail(context, BELAY_NO_MEMORY, "cannot start a process: %s", strerror(errno));
    }
    code = read_options(&run, &err);
    if (code == BELAY_OK) {
        code = acquire(&run, &err);
    }
    supervise_block_signals();
    if (may_run(&run, code, &err)) {
        run_command(&run);
    } else {
        refuse(&run, &err);
    }
    write_result(&run);
    belay_lock_free(run.lock);
    cli_close(context); /* while the guardian ends */
    guardian_finish(&run.guardian);
    telemetry_close(context->telemetry);
    context->telemetry = NULL;
    lock_request_release(&run.request);
    belay_error_release(&err);
    if (run.supervise.die_of != 0 && run.result.exit_code != CLI_LOST) {
        supervise_die_of(run.supervise.die_of);
    }
    return run.result.exit_code;
}

const struct cli_command cmd_run = {
    .name = "run",
    .synopsis = "[OPTIONS] KEY -- COMMAND [ARG...]",
    .summary = "hold the lock while COMMAND runs",
    .about =
        "Acquires the lock, runs COMMAND, releases the lock when COMMAND ends, and exits with COMMAND's own "
        "code. The lease (2m unless a profile or --ttl says otherwise) is renewed in the background for as "
        "long as COMMAND runs.\n\n"
        "COMMAND finds BELAY_KEY, BELAY_LOCK_ID, BELAY_TOKEN and BELAY_STORE in its environment. Signals are "
        "passed to its process group; its standard input is left alone. It has the terminal if belay has it: "
        "Ctrl-C goes to COMMAND, Ctrl-Z stops both, and COMMAND is continued once the lease is proved.\n\n"
        "If the lease is lost COMMAND is ended, with TERM and then KILL, before anybody else can have the "
        "lock; "
        "the exit code is 76 then, whatever COMMAND says. A second process, lease-guardian, sees to that "
        "even if "
        "belay itself is stopped or killed: it ends COMMAND with all its descendants, and releases the lock "
        "as soon as they are gone.",
    .groups = { &key_group, &lock_group, &run_group },
    .min_args = 0,
    .max_args = 1,
    .takes_key = true,
    .takes_command = true,
    .exits = { { 0, "COMMAND ended with 0; any other code of COMMAND is passed on" },
               { 64, "the command line is wrong; COMMAND was not run" },
               { 69, "the store could not be reached; COMMAND was not run" },
               { 75, "held by someone else, or the wait timed out; COMMAND was not run" },
               { 76, "the lease was lost while COMMAND ran" },
               { 77, "--adopt: the lock is not that id's any more; COMMAND was not run" },
               { 126, "COMMAND cannot be executed" },
               { 127, "COMMAND was not found" },
               { 128, "and N: COMMAND was ended by signal N" } },
    .examples = { { "belay run deploy-api-prod -- ./deploy.sh api", "one deploy at a time" },
                  { "belay run --wait 10m --ttl 30s nightly -- make backup", "wait for the one before" },
                  { "belay run --adopt \"$LOCK_ID\" build-router-plt -- make",
                    "take over the lock that was acquired for this job" } },
    .exec = exec_run,
};
