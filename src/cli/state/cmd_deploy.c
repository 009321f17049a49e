/*
 * belay deploy: acquire the stack's lock, load the state and record the lock's token in it, run COMMAND, save the
 * new state, release the lock.
 *
 * COMMAND reads the state from one file and writes the new state to another. The new state is saved only if no
 * later holder has recorded its token in the stored state; otherwise it is kept in a local file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/run/run.h"
#include "cli/state/state_cli.h"

struct deploy {
    struct cli_context *context;
    const struct options *options;
    struct state_cli cli;
    struct deploy_info info;
    struct belay_state_lock fence;
    char lock_id[BELAY_ID_MAX + 1]; /* `fence` points here: the lock's strings change with each renewal */
    char key[BELAY_KEY_MAX + 1];
    char locked_by[BELAY_OWNER_MAX + 1];
    bool is_fenced;
    struct belay_blob_tag loaded;
    int64_t begun_ms;
    char folder[GUARDIAN_PATH_SIZE - 64];
    char file[GUARDIAN_PATH_SIZE];
    char out[GUARDIAN_PATH_SIZE];
};

/* ---- before COMMAND -------------------------------------------------------------------- */

static enum belay_code prepare_deploy(void *context, struct lock_request *request, struct belay_error *err)
{
    struct deploy *deploy = context;
    enum belay_code code = state_cli_open(deploy->context, deploy->options, &deploy->cli, err);

    if (code == BELAY_OK) {
        code = deploy_info_read(deploy->options, &deploy->info, err);
    }
    return code == BELAY_OK ? deploy_info_add(&deploy->info, request, err) : code;
}

static enum belay_code make_files(struct deploy *deploy, const struct belay_state *state,
                                  struct belay_error *err)
{
    (void)snprintf(deploy->folder, sizeof deploy->folder, "%s/belay-deploy-XXXXXX", state_temp_folder());
    if (mkdtemp(deploy->folder) == NULL) {
        deploy->folder[0] = '\0';
        return error_set(err, BELAY_UNREACHABLE, "cannot create a directory for the state: %s",
                         strerror(errno));
    }
    (void)snprintf(deploy->file, sizeof deploy->file, "%s/state.json", deploy->folder);
    (void)snprintf(deploy->out, sizeof deploy->out, "%s/new-state.json", deploy->folder);
    return state_write_file(deploy->file, "wxe", state)
               ? BELAY_OK
               : error_set(err, BELAY_UNREACHABLE, "cannot write the state to '%.300s': %s", deploy->file,
                           strerror(errno));
}

/* With locking switched off there is no token, but a concurrent write is still refused. */
static enum belay_code load_state(struct deploy *deploy, struct belay_state **out_state,
                                  struct belay_error *err)
{
    enum belay_code code;

    if (deploy->is_fenced) {
        return belay_state_begin(deploy->cli.states, &deploy->cli.name, &deploy->fence, out_state, err);
    }
    code = belay_state_load(deploy->cli.states, &deploy->cli.name, out_state, err);
    return code == BELAY_NOT_FOUND
               ? belay_state_save(deploy->cli.states, &deploy->cli.name, "{}", 2, NULL, out_state, err)
               : code;
}

static enum belay_code copy_fence(struct deploy *deploy, struct belay_client *client, struct belay_lock *lock,
                                  struct belay_error *err)
{
    struct belay_state_lock *fence = &deploy->fence;
    enum belay_code code = state_fence_fill(fence, client, belay_lock_info(lock), err);

    if (code != BELAY_OK) {
        return code;
    }
    (void)snprintf(deploy->locked_by, sizeof deploy->locked_by, "%s", fence->locked_by);
    fence->locked_by = deploy->locked_by;
    (void)snprintf(deploy->key, sizeof deploy->key, "%s", fence->key);
    fence->key = deploy->key;
    if (fence->lock_id != NULL) {
        (void)snprintf(deploy->lock_id, sizeof deploy->lock_id, "%s", fence->lock_id);
        fence->lock_id = deploy->lock_id;
    }
    fence->token = belay_lock_token(lock);
    return BELAY_OK;
}

static enum belay_code before_command(void *context, struct belay_client *client, struct belay_lock *lock,
                                      struct guardian_job *job, struct belay_error *err)
{
    struct deploy *deploy = context;
    struct belay_state *state = NULL;
    enum belay_code code = BELAY_OK;

    deploy->begun_ms = clock_boot_ms();
    if (lock != NULL && belay_lock_is_protected(lock)) {
        code = copy_fence(deploy, client, lock, err);
        deploy->is_fenced = true;
    }
    if (code == BELAY_OK) {
        code = load_state(deploy, &state, err);
    }
    if (code == BELAY_OK) {
        deploy->loaded = state->tag;
        code = make_files(deploy, state, err);
    }
    if (code == BELAY_OK) {
        (void)snprintf(job->state_url, sizeof job->state_url, "%s", belay_states_url(deploy->cli.states));
        (void)snprintf(job->state_file, sizeof job->state_file, "%s", deploy->file);
        (void)snprintf(job->state_out, sizeof job->state_out, "%s", deploy->out);
    }
    belay_state_free(state);
    return code;
}

/* ---- after COMMAND ----------------------------------------------------------------------- */

static enum belay_code save_state(struct deploy *deploy, const char *text, size_t len, const char *status,
                                  struct belay_error *err)
{
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;

    deploy->info.given.status = status;
    deploy->info.given.duration_ms = clock_boot_ms() - deploy->begun_ms;
    write.lock = deploy->is_fenced ? &deploy->fence : NULL;
    write.loaded = &deploy->loaded;
    write.deployment = &deploy->info.given;
    write.detected = &deploy->info.deployment;
    return belay_state_save(deploy->cli.states, &deploy->cli.name, text, len, &write, NULL, err);
}

static void set_failed(struct run_result *result, const char *how, int exit_code, const char *why)
{
    result->result = how;
    result->exit_code = exit_code;
    (void)snprintf(result->reason, sizeof result->reason, "%s", why);
}

/* Keep the state and record the failed deployment in it, unless a later holder has the state. */
static void record_failure(struct deploy *deploy, const char *status)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (save_state(deploy, NULL, 0, status, &err) != BELAY_OK) {
        cli_warn(deploy->context, "cannot record the failed deployment: %s", err.text);
    }
    belay_error_release(&err);
}

static void on_not_saved(struct deploy *deploy, struct run_result *result, const struct belay_error *err)
{
    int exit_code = cli_error(deploy->context, err);

    if (err->code == BELAY_NOT_HOLDER || err->code == BELAY_LOST) {
        set_failed(result, "lost", CLI_LOST, err->text);
    } else {
        set_failed(result, "failed", exit_code, err->text);
    }
    if (err->code == BELAY_BAD_CONTENT) {
        record_failure(deploy, "failed");
    }
}

static void after_command(void *context, struct run_result *result)
{
    struct deploy *deploy = context;
    struct belay_error err = BELAY_ERROR_INIT;
    bool completed = strcmp(result->result, "completed") == 0;
    char *text = NULL;
    size_t len = 0;
    enum belay_code code = BELAY_OK;

    if (access(deploy->out, F_OK) == 0) {
        code = state_read_file(deploy->out, &text, &len, &err);
        if (code == BELAY_NOT_FOUND) {
            code = err.code = BELAY_BAD_CONTENT; /* COMMAND left something there that cannot be opened */
        }
    }
    if (code == BELAY_OK && completed) {
        code = save_state(deploy, text, len, "success", &err);
        if (code == BELAY_BAD_CONTENT && text != NULL) {
            (void)error_wrap(&err, "the new state in BELAY_STATE_OUT was not saved");
        }
    }
    if (code != BELAY_OK) {
        on_not_saved(deploy, result, &err);
    } else if (!completed) {
        record_failure(deploy, strcmp(result->result, "lost") == 0 ? "lost" : "failed");
    }
    if (text != NULL && (code != BELAY_OK || !completed)) {
        (void)state_save_rejected(deploy->context, &deploy->cli.name, text, len);
    }
    free(text);
    belay_error_release(&err);
}

/* ---- the command --------------------------------------------------------------------------- */

static void clean_up(struct deploy *deploy)
{
    if (deploy->folder[0] != '\0') {
        (void)unlink(deploy->file);
        (void)unlink(deploy->out);
        (void)rmdir(deploy->folder);
    }
    state_cli_close(&deploy->cli);
}

static int exec_deploy(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct deploy *deploy = calloc(1, sizeof *deploy);
    struct run_callbacks callbacks = { prepare_deploy, before_command, after_command, deploy };
    int code;

    if (deploy == NULL) {
        return cli_fail(context, BELAY_NO_MEMORY, "out of memory");
    }
    deploy->context = context;
    deploy->options = options;
    if (!options_has(options, "stack") && !options_has(options, "environment")) {
        free(deploy);
        return cli_fail(context, BELAY_INVALID, "no stack given: give --stack and --environment");
    }
    code = run_exec(context, options, &callbacks, err);
    clean_up(deploy);
    free(deploy);
    return code;
}

const struct cli_command cmd_deploy = {
    .name = "deploy",
    .synopsis = "--stack S --environment E [OPTIONS] -- COMMAND [ARG...]",
    .summary = "lock a stack, run COMMAND, save the new state",
    .about = "Acquires the stack's lock, loads its state, runs COMMAND as 'belay run' does, saves the state "
             "that COMMAND wrote, and releases the lock. COMMAND reads the current state from the file "
             "BELAY_STATE_FILE and writes the new state to BELAY_STATE_OUT. If it writes nothing, the state "
             "is kept, and the deployment is recorded in it.\n\n"
             "If COMMAND fails, the state is kept, and the deployment is recorded as failed. If the lease "
             "was lost, the new state is not saved: belay exits with 76, names the client that has the state "
             "now, and keeps what COMMAND wrote in a local file.\n\n"
             "Commit, branch, CI run and user come from the options, else from GitHub Actions, GitLab CI, "
             "Jenkins, Buildkite or git.",
    .groups = { &state_group, &lock_group, &deploy_info_group, &run_end_group },
    .takes_command = true,
    .exits = { { 0,
                 "COMMAND ended with 0 and the state is saved; any other exit code of COMMAND is passed on" },
               { 64, "the command line is wrong; COMMAND was not run" },
               { 65, "the state is damaged, or COMMAND wrote an invalid state" },
               { 69, "a store is unreachable" },
               { 74, "unknown: the state may have been saved" },
               { 75, "another client holds the lock, or the wait timed out; COMMAND was not run" },
               { 76, "the lease was lost while COMMAND ran; its state was not saved" },
               { 77, "a later holder has the state; COMMAND was not run" },
               { 78, "the configuration is wrong, or the lock store issues no tokens" },
               { 128, "plus N: COMMAND was ended by signal N" } },
    .examples = { { "belay deploy --stack shop --environment prod -- ./deploy.sh",
                    "one deployment at a time, with its state" },
                  { "belay deploy --stack shop --environment prod --wait 10m -- make deploy",
                    "wait up to ten minutes for the lock" } },
    .exec = exec_deploy,
};
