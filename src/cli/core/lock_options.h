/* Read a key and the options of a lock from the command line. */
#ifndef CLI_CORE_LOCK_OPTIONS_H
#define CLI_CORE_LOCK_OPTIONS_H

#include "cli/core/cli.h"

extern const struct option_group key_group;  /* --stack, --environment, ... instead of KEY */
extern const struct option_group lock_group; /* --profile, --ttl, --wait, ... */
extern const struct option_group kind_group; /* --shared, --slots */
/* Reads these. If neither is given, the slots of a profile stay only if --profile names it. */
enum belay_code read_kind(const struct options *options, struct belay_lock_options *lock,
                          struct belay_error *err);

#define PREFIX_OPTION OPT_FROM(COMPLETE_KEY, "prefix", "P", "only locks whose keys begin with P")
extern const struct option_group prefix_group; /* PREFIX_OPTION alone */

/* True if the command line names a lock, by arguments or by the options of key_group. */
bool names_lock(const struct options *options);

/*
 * The key named by args[i], or by --stack, --environment, --service, --component and --profile. BELAY_INVALID if
 * neither or both are given. The caller frees it.
 */
enum belay_code read_key_argument(struct cli_context *context, const struct options *options, size_t i,
                                  char **out_key, struct belay_error *err);

/* The keys that a command line names: args[0] and after, or the one of the key options. */
struct key_arguments {
    char *first;             /* owned */
    const char *const *keys; /* borrowed, from argv or `first` */
    size_t n;
};

/* BELAY_INVALID as read_key_argument(); how many keys there may be is for the library to say. */
enum belay_code read_key_arguments(struct cli_context *context, const struct options *options,
                                   struct key_arguments *out_keys, struct belay_error *err);
void key_arguments_release(struct key_arguments *keys);

struct lock_request {
    char *key; /* owned */
    /* From the profile, then from the options. Borrows from argv, the configuration and `meta`. */
    struct belay_lock_options options;
    struct belay_meta *meta; /* owned */
    char *texts;             /* owned; what `meta` points into */
    char *ci_owner;          /* owned; NULL: --owner was given, or this is not a CI job */
    char *ci_url;            /* owned; of the job; NULL: none */
};
#define LOCK_REQUEST_INIT                                                                                    \
    {                                                                                                        \
        NULL, BELAY_LOCK_OPTIONS_INIT, NULL, NULL, NULL, NULL                                                \
    }

/* The key is args[i], or what the key options name. */
enum belay_code lock_request_read(struct cli_context *context, const struct options *options, size_t i,
                                  struct lock_request *out_request, struct belay_error *err);
void lock_request_release(struct lock_request *request);

#endif
