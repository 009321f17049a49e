#include "cli/core/lock_options.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/core/deploy_info.h"

const struct option_group key_group = {
    "Instead of KEY",
    OPTION_TABLE(
        OPT_TEXT("stack", "S", "the stack; needs --environment"),
        OPT_TEXT("environment", "E", "the environment; needs --stack or --component"),
        OPT_TEXT("service", "V", "a service of the stack"),
        OPT_TEXT("component", "C", "a component of the stack, or the one for the key template of --profile"),
        OPT_FROM(COMPLETE_PROFILE, "profile", "NAME",
                 "use the key template and the defaults of this profile"))
};

const struct option_group lock_group = {
    "Lock options",
    OPTION_TABLE(
        OPT_DURATION("ttl", "how long the lock lasts unless it is renewed"),
        OPT_DURATION("wait", "wait this long in the queue for the lock; default: do not wait"),
        OPT_COUNT("attempts", 1, "give up after N attempts; with --wait, when either limit is reached"),
        OPT_TEXT("owner", "ID",
                 "id of the holder; default: unique to this process, or the run of the CI system"),
        OPT_TEXT("owner-name", "NAME", "name of the holder for people; default: user@host"),
        OPT_LIST("meta", "K=V", "metadata kept with the lock; may be repeated"),
        OPT_TEXT("correlation-id", "ID", "an id of your own, to find the lock in logs"),
        OPT_DURATION("heartbeat",
                     "renew the lease this often; a holder that misses its heartbeats is flagged as stale"),
        OPT_FLAG("reentrant", "with --owner: if this owner holds the lock already, succeed and share it"),
        OPT_TEXT("id", "LOCK_ID", "the lock id to use; repeat an acquire with it if the answer was lost"),
        OPT_FLAG("ignore-freeze",
                 "acquire the lock although it is frozen; needs --reason, and an admin's token"),
        OPT_TEXT("reason", "TEXT", "with --ignore-freeze: the reason, for the history"))
};

const struct option_group kind_group = {
    "Several holders",
    OPTION_TABLE(
        OPT_FLAG("shared", "hold the lock beside other shared holders; it excludes only exclusive ones"),
        OPT_COUNT("slots", 1, "at most N clients hold the lock at a time; all of them give the same N"))
};

const struct option_group prefix_group = { "Options", OPTION_TABLE(PREFIX_OPTION) };

/* The first of the options that name a lock; NULL: none is given. */
static const char *first_key_option(const struct options *options)
{
    static const char *const names[] = { "stack", "environment", "service", "component" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (options_has(options, names[i])) {
            return names[i];
        }
    }
    return NULL;
}

bool names_lock(const struct options *options)
{
    return options->n_args > 0 || first_key_option(options) != NULL;
}

/* The key that args[i] or the key options name. A key that was typed is not checked. The caller frees it. */
static enum belay_code name_key(const struct belay_config *config, const struct options *options, size_t i,
                                char **out_key, struct belay_error *err)
{
    const struct belay_key_parts parts = { .profile = options_text(options, "profile"),
                                           .stack = options_text(options, "stack"),
                                           .environment = options_text(options, "environment"),
                                           .service = options_text(options, "service"),
                                           .component = options_text(options, "component") };
    const char *part = first_key_option(options);

    if (options->n_args <= i && part == NULL) {
        return error_set(err, BELAY_INVALID,
                         "no lock given: give a KEY, or --stack and --environment, or --profile, --component "
                         "and --environment");
    }
    if (options->n_args <= i) {
        return belay_key_make(config, &parts, out_key, err);
    }
    if (part != NULL) {
        return error_set(err, BELAY_INVALID, "'%s' and --%s both name a lock: give only one of them",
                         options->args[i], part);
    }
    *out_key = strdup(options->args[i]);
    return *out_key == NULL ? error_no_memory(err) : BELAY_OK;
}

enum belay_code read_key_argument(struct cli_context *context, const struct options *options, size_t i,
                                  char **out_key, struct belay_error *err)
{
    const char *name = options_text(options, "profile");
    const struct belay_config *config;
    struct belay_profile profile;
    char *key = NULL;
    enum belay_code code = cli_config(context, &config, err);

    if (code == BELAY_OK) {
        code = name_key(config, options, i, &key, err);
    }
    if (code == BELAY_OK) {
        code = belay_key_check(config, NULL, key, err);
    }
    /* The profile's lists are checked when a lock is acquired: a lock that is held can always be released. */
    if (code == BELAY_OK && name != NULL) {
        code = belay_config_profile(config, name, &profile, err);
    }
    if (code == BELAY_OK) {
        *out_key = key;
    } else {
        free(key);
    }
    return code;
}

enum belay_code read_key_arguments(struct cli_context *context, const struct options *options,
                                   struct key_arguments *out_keys, struct belay_error *err)
{
    enum belay_code code = read_key_argument(context, options, 0, &out_keys->first, err);

    if (code == BELAY_OK) {
        out_keys->keys =
            options->n_args > 0 ? (const char *const *)options->args : (const char *const *)&out_keys->first;
        out_keys->n = options->n_args > 0 ? options->n_args : 1;
    }
    return code;
}

void key_arguments_release(struct key_arguments *keys)
{
    free(keys->first);
    *keys = (struct key_arguments){ NULL, NULL, 0 };
}

static enum belay_code read_meta(const struct options *options, struct lock_request *request,
                                 struct belay_error *err)
{
    size_t n = 0;
    size_t bytes = 0;
    char *to;

    for (const char *text; (text = options_nth(options, "meta", n)) != NULL; n++) {
        bytes += strlen(text) + 1;
    }
    request->meta = calloc(n + 1, sizeof *request->meta);
    request->texts = malloc(bytes + 1);
    if (request->meta == NULL || request->texts == NULL) {
        return error_no_memory(err);
    }
    to = request->texts;
    for (size_t i = 0; i < n; i++) {
        const char *text = options_nth(options, "meta", i);
        char *equals;

        strcpy(to, text);
        equals = strchr(to, '=');
        if (equals == NULL || equals == to) {
            return error_set(err, BELAY_INVALID, "--meta '%s' is not NAME=VALUE", text);
        }
        *equals = '\0';
        request->meta[i] = (struct belay_meta){ to, equals + 1 };
        to += strlen(text) + 1;
    }
    request->options.metadata = request->meta;
    request->options.n_metadata = n;
    return BELAY_OK;
}

enum belay_code read_kind(const struct options *options, struct belay_lock_options *lock,
                          struct belay_error *err)
{
    long slots = 0;

    /* Commands that write a state have no such options, but the profile may have slots. */
    if (!options_accept(options, "slots")) {
        return lock->slots == 0
                   ? BELAY_OK
                   : error_set(err, BELAY_INVALID,
                               "the profile of this lock has slots, and a state is for one client "
                               "at a time: use a profile without slots");
    }
    lock->shared = options_has(options, "shared");
    if (options_count(options, "slots", &slots) && lock->shared) {
        return error_set(err, BELAY_INVALID, "--shared and --slots exclude each other: leave out one");
    }
    if (slots > BELAY_HOLDERS_MAX) {
        return error_set(err, BELAY_INVALID, "--slots '%ld' is too many: give 1 to %d", slots,
                         BELAY_HOLDERS_MAX);
    }
    if (slots > 0) {
        lock->slots = (int)slots;
    } else if (lock->shared || options_text(options, "profile") == NULL) {
        lock->slots = 0; /* of several keys, each has its own profile: the library looks them up */
    }
    return BELAY_OK;
}

/* The command line overrides the profile, also with 0. Its ttl comes first: the profile's heartbeat fits it (S2.5). */
static enum belay_code read_lock_options(const struct options *options, const struct belay_profile *profile,
                                         struct belay_lock_options *lock, struct belay_error *err)
{
    long attempts;

    if (options_duration(options, "ttl", &lock->ttl_ms) && lock->ttl_ms == 0) {
        return error_set(err, BELAY_INVALID, "--ttl '%s' is too short: a lease lasts at least 100ms",
                         options_text(options, "ttl"));
    }
    if (profile->name != NULL) {
        belay_profile_apply(profile, lock);
    }
    /* Retries follow S4.9; the profile "database" has its own rule (S3.2). */
    lock->stepped_backoff = profile->name == NULL || strcmp(profile->name, "database") != 0;
    (void)options_duration(options, "wait", &lock->wait_ms);
    (void)options_duration(options, "heartbeat", &lock->heartbeat_ms);
    if (options_count(options, "attempts", &attempts)) {
        lock->attempts = (int)attempts;
    }
    if (read_kind(options, lock, err) != BELAY_OK) {
        return BELAY_INVALID;
    }
    lock->owner = options_text(options, "owner");
    lock->owner_name = options_text(options, "owner-name");
    lock->correlation_id = options_text(options, "correlation-id");
    lock->lock_id = options_text(options, "id");
    lock->reentrant = lock->reentrant || options_has(options, "reentrant");
    if (options_has(options, "reentrant") && lock->owner == NULL) {
        return error_set(err, BELAY_INVALID, "--reentrant needs --owner");
    }
    lock->ignore_freeze = options_has(options, "ignore-freeze");
    lock->ignore_reason = options_text(options, "reason");
    if (lock->ignore_freeze && (lock->ignore_reason == NULL || lock->ignore_reason[0] == '\0')) {
        return error_set(err, BELAY_INVALID, "--ignore-freeze needs --reason TEXT: the history records it");
    }
    if (!lock->ignore_freeze && lock->ignore_reason != NULL) {
        return error_set(err, BELAY_INVALID, "--reason is for --ignore-freeze: add that, or leave it out");
    }
    return BELAY_OK;
}

enum belay_code lock_request_read(struct cli_context *context, const struct options *options, size_t i,
                                  struct lock_request *out_request, struct belay_error *err)
{
    struct lock_request request = LOCK_REQUEST_INIT;
    struct belay_profile profile = { 0 };
    const struct belay_config *config;
    enum belay_code code = cli_config(context, &config, err);

    if (code == BELAY_OK) {
        code = name_key(config, options, i, &request.key, err);
    }
    if (code == BELAY_OK) {
        /* Without --profile, the form of the key selects the profile. */
        code = belay_key_profile(config, options_text(options, "profile"), request.key, &profile, err);
    }
    if (code == BELAY_OK) {
        code = read_lock_options(options, &profile, &request.options, err);
    }
    if (code == BELAY_OK && options->n_args > i + 1) {
        request.options.more_keys = (const char *const *)options->args + i + 1;
        request.options.n_more_keys = options->n_args - i - 1;
    }
    if (code == BELAY_OK) {
        code = read_meta(options, &request, err);
    }
    /* Which job has the lock, and where its log is. An adopted lock keeps its own metadata. */
    if (code == BELAY_OK && !options_has(options, "adopt")) {
        code = deploy_info_add_ci(&request, err);
    }
    if (code != BELAY_OK) {
        lock_request_release(&request);
        return code;
    }
    *out_request = request;
    return BELAY_OK;
}

void lock_request_release(struct lock_request *request)
{
    free(request->key);
    free(request->meta);
    free(request->texts);
    free(request->ci_owner);
    free(request->ci_url);
    *request = (struct lock_request)LOCK_REQUEST_INIT;
}
