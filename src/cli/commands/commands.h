/* The entries of all commands. */
#ifndef CLI_COMMANDS_COMMANDS_H
#define CLI_COMMANDS_COMMANDS_H

#include "cli/core/cli.h"

/* clang-format off */
/* All commands, in the order of the help. Add a new one here. */
#define CLI_COMMANDS(X) \
    X(run) X(acquire) X(renew) X(release) X(check) X(status) X(list) X(unlock) X(wait) X(watch) X(top) X(history) X(stats) \
    X(locks_list) X(locks_status) X(locks_release) X(freeze) X(unfreeze) X(freezes) \
    X(deploy) X(state_load) X(state_save) X(state_history) X(state_backup) X(state_restore) \
    X(state_adopt) X(state_rebind) X(state_verify) X(state_list) X(state_locks) \
    X(app_register) X(app_show) X(app_list) X(app_remove) X(app_status) X(app_mark_stopped) \
    X(app_mark_running) X(app_import) X(app_export) X(db_stop) X(db_start) X(db_list) \
    X(serve) X(auth_new) \
    X(table_create) X(table_describe) X(backup) X(restore) X(repair) X(doctor) \
    X(config_show) X(completion) X(help) X(version)

#define CLI_DECLARE_COMMAND(name) extern const struct cli_command cmd_##name;
CLI_COMMANDS(CLI_DECLARE_COMMAND)
/* clang-format on */

/* ---- shared by commands ---------------------------------------------------- */

/* Print the locks as a table, as JSON or as keys, depending on the context. Returns the exit code. */
int list_locks(struct cli_context *context, struct belay_client *client, const struct belay_query *query,
               struct belay_error *err);

/* Release KEY with --id and --outcome: for `release` and `locks release`. Returns the exit code. */
int release_exec(struct cli_context *context, const struct options *options, struct belay_error *err);

/* For `unlock`, `locks release` and `top`, which end the lock of another client. */

/* The user who does it, for the history: user@host. */
void unlock_actor(char *out, size_t size);

/*
 * The lock of `key`, if it is held and this client may see its lock id. The caller frees *out_info also after an
 * error.
 */
enum belay_code unlock_find_held(struct belay_client *client, const char *key, struct belay_info **out_info,
                                 struct belay_error *err);

#endif
