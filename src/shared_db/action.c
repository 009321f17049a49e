/* The configured actions that stop and start a kind of database: reading, running, waiting for the effect. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/items.h"
#include "shared_db/shared_db_internal.h"

enum {
    DEFAULT_TIMEOUT_MS = 60000,
    DEFAULT_EVERY_MS = 500,
    EC2_EVERY_MS = 3000,
    NAME_SIZE = 256,
    ARGS_MAX = 256
};

/* ---- reading ---- */

static const char *action_setting(const struct belay_config *config, const char *where, const char *name)
{
    char dotted[2 * NAME_SIZE];

    (void)snprintf(dotted, sizeof dotted, "%s.%s", where, name);
    return belay_config_get(config, dotted);
}

static bool read_command(const struct belay_config *config, const char *where, struct action_step *step)
{
    const char *argument;
    char name[32];
    size_t n = 0;

    step->argv = calloc(ARGS_MAX + 1, sizeof *step->argv);
    if (step->argv == NULL) {
        return false;
    }
    for (; n < ARGS_MAX; n++) {
        (void)snprintf(name, sizeof name, "command.%zu", n);
        argument = action_setting(config, where, name);
        if (argument == NULL) {
            break;
        }
        step->argv[n] = argument;
    }
    step->n_argv = n;
    return true;
}

/* One of command, http and ec2. */
static enum belay_code read_step(const struct belay_config *config, const char *where,
                                 struct action_step *step, struct belay_error *err)
{
    const char *ec2 = action_setting(config, where, "ec2");
    bool has_command = action_setting(config, where, "command.0") != NULL;
    bool has_http = action_setting(config, where, "http.url") != NULL;

    if ((int)has_command + (int)has_http + (int)(ec2 != NULL) > 1) {
        return error_set(err, BELAY_CONFIG, "%s has more than one of command, http and ec2: choose one",
                         where);
    }
    if (has_command) {
        step->kind = ACTION_COMMAND;
        return read_command(config, where, step) ? BELAY_OK : error_no_memory(err);
    }
    if (has_http) {
        step->kind = ACTION_HTTP;
        step->url = action_setting(config, where, "http.url");
        step->body = action_setting(config, where, "http.body");
        step->content_type = action_setting(config, where, "http.content_type");
        step->method = action_setting(config, where, "http.method");
    }
    if (ec2 != NULL) {
        step->kind = ACTION_EC2;
        step->ec2_start = strcmp(ec2, "start") == 0;
    }
    return BELAY_OK;
}

enum belay_code action_read(const struct belay_config *config, const char *kind, const char *verb,
                            struct db_action *out_action, struct belay_error *err)
{
    struct db_action action = { 0 };
    char where[NAME_SIZE], until[NAME_SIZE + 16];
    const char *ends;
    enum belay_code code;

    (void)snprintf(where, sizeof where, "databases.%.64s.%s", kind, verb);
    (void)snprintf(until, sizeof until, "%s.until", where);
    code = read_step(config, where, &action.step, err);
    if (code == BELAY_OK) {
        code = read_step(config, until, &action.until, err);
    }
    if (code == BELAY_OK && action.step.kind == ACTION_NONE) {
        code = error_set(
            err, BELAY_CONFIG,
            "no action says how a '%.64s' database is %s: put %s: {command: [...]}, {http: {...}} or "
            "{ec2: %s} into the configuration",
            kind, strcmp(verb, "stop") == 0 ? "stopped" : "started", where, verb);
    }
    ends = action_setting(config, where, "ends");
    if (code == BELAY_OK && action.step.kind == ACTION_EC2 && ends != NULL && strcmp(ends, "host") != 0) {
        code = error_set(err, BELAY_CONFIG,
                         "%s: stopping an EC2 instance stops all databases on it: leave 'ends' out", where);
    }
    if (code != BELAY_OK) {
        action_release(&action);
        return code;
    }
    action.ends_host = action.step.kind == ACTION_EC2 || (ends != NULL && strcmp(ends, "host") == 0);
    action.timeout_ms = span_or(action_setting(config, where, "timeout"), DEFAULT_TIMEOUT_MS);
    action.every_ms = span_or(
        action_setting(config, until, "every"),
        action.step.kind == ACTION_EC2 && action.until.kind == ACTION_NONE ? EC2_EVERY_MS : DEFAULT_EVERY_MS);
    *out_action = action;
    return BELAY_OK;
}

void action_release(struct db_action *action)
{
    free(action->step.argv);
    free(action->until.argv);
    memset(action, 0, sizeof *action);
}

/* ---- running ---- */

static enum belay_code run_step(const struct action_step *step, const struct action_context *context,
                                int64_t timeout_ms, struct belay_error *err)
{
    assert(timeout_ms > 0);
    switch (step->kind) {
    case ACTION_COMMAND:
        return action_run_command(step, context, timeout_ms, err);
    case ACTION_HTTP:
        return action_run_http(step, context, timeout_ms, err);
    case ACTION_EC2:
        return action_run_ec2(step, context, timeout_ms, err);
    case ACTION_NONE:
        break;
    }
    assert(false); /* action_read() and has_check() exclude it */
    return BELAY_OK;
}

/* BELAY_OK with *out_holds, or BELAY_LOST and BELAY_CANCELLED. A check that fails does not hold. */
static enum belay_code check_until(const struct db_action *action, const struct action_context *context,
                                   int64_t timeout_ms, bool *out_holds, struct belay_error *err)
{
    enum belay_code code;

    *out_holds = false;
    if (action->until.kind != ACTION_NONE) {
        code = run_step(&action->until, context, timeout_ms, err);
        *out_holds = code == BELAY_OK;
    } else {
        code = action_check_ec2(&action->step, context, timeout_ms, out_holds, err);
    }
    return code == BELAY_LOST || code == BELAY_CANCELLED ? code : BELAY_OK;
}

static bool has_check(const struct db_action *action)
{
    return action->until.kind != ACTION_NONE || action->step.kind == ACTION_EC2;
}

bool action_has_taken_effect(const struct db_action *action, const struct action_context *context)
{
    bool holds = false;

    return has_check(action) && check_until(action, context, action->timeout_ms, &holds, NULL) == BELAY_OK &&
           holds;
}

static enum belay_code await_effect(const struct db_action *action, const struct action_context *context,
                                    int64_t end_ms, struct belay_error *err)
{
    char span_text[CLOCK_TEXT_SIZE];
    bool holds = false;

    for (;;) {
        int64_t left_ms = end_ms - clock_boot_ms();
        enum belay_code code;

        if (atomic_load(context->lost)) {
            return error_set(err, BELAY_LOST, "the lease was lost before the action took effect");
        }
        code = check_until(action, context, left_ms < 1 ? 1 : left_ms, &holds, err);

        if (code != BELAY_OK || holds) {
            return code;
        }
        left_ms = end_ms - clock_boot_ms();
        if (left_ms <= 0) {
            return error_set(err, BELAY_UNKNOWN, "the action was done, but took no effect within %s",
                             clock_format_duration(span_text, action->timeout_ms));
        }
        client_sleep(left_ms < action->every_ms ? left_ms : action->every_ms, context->cancel);
    }
}

enum belay_code action_run(const struct db_action *action, const struct action_context *context,
                           struct belay_error *err)
{
    int64_t end_ms = clock_boot_ms() + action->timeout_ms;
    enum belay_code code = run_step(&action->step, context, action->timeout_ms, err);

    assert(action->step.kind != ACTION_NONE && action->timeout_ms > 0);
    return code == BELAY_OK && has_check(action) ? await_effect(action, context, end_ms, err) : code;
}
